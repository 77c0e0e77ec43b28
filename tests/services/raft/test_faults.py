"""Whole members under random faults, watched by the invariants of the simulation.

The core is simulated with far worse packets in `tests/sim/raft`; here it is the shell that is
tried: connections that end in the middle of anything, greetings, restarts, disks that fail.
`RAFT_MEMBER_SEEDS=0:500 pytest ...` tries more of them.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
import trio
from support.nodes.raft_members import Machine, Put, Rig, member_group
from support.suite.sizes import MEMBER_SEEDS, drawn_seeds, sized

from trioha.dledger.settings import RaftSettings
from trioha.errors import StoreError
from trioha.testing.virtual_time import run_on_virtual_time, seeded_scheduler

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

_QUICK = 6
"""Seeds of the quick tests. The others are slow ones, and the gate draws them from the commit."""
_FAULTS_S = 60
# A few records wide, so that everything is in the middle of something.
_NARROW = RaftSettings(batch_bytes_max=200, inflight_bytes_max=600, inflight_count_max=4)


class Chaos:
    """Faults of a group, and the writes meanwhile."""

    def __init__(self, rig: Rig, rng: Random) -> None:
        self.rig = rig
        self.puts: list[tuple[Put, int]] = []
        self._rng = rng
        self._families = [
            family
            for family in (
                self._cut,
                self._kill,
                self._slow,
                self._break_disk,
                self._fill,
                self._hand,
            )
            if rng.random() < 0.7
        ] or [self._cut]

    async def write(self) -> None:
        rng = self._rng
        while True:
            await trio.sleep(rng.uniform(0, 0.1))
            for machine in self.rig.machines.values():
                member = machine.member
                if machine.is_up and member is not None and member.may_append:
                    for _ in range(rng.randint(1, 5)):
                        put = machine.append(rng.randbytes(rng.randint(1, 80)))
                        self.puts.append((put, machine.disk.chains[-1]))
                    member.log_grown()

    async def rage(self) -> None:
        while True:
            await trio.sleep(self._rng.expovariate(1.0))
            await self._rng.choice(self._families)()

    async def heal(self) -> None:
        rig = self.rig
        rig.network.set_cuts()
        for machine in rig.machines.values():
            machine.fsync_ms, machine.fsync_fails = 1.0, False
            machine.slots.failing = False
            machine.disk.room = None
            if not machine.is_up:
                await rig.start(machine.member_id)

    def _machine(self) -> Machine:
        leaders = self.rig.leaders()
        if leaders and self._rng.random() < 0.5:
            return self._rng.choice(leaders)
        return self._rng.choice(list(self.rig.machines.values()))

    async def _cut(self) -> None:
        rng, names = self._rng, list(self.rig.machines)
        ways = [(one, other) for one in names for other in names if one != other]
        kind = rng.randrange(4)
        if kind == 0:
            self.rig.network.isolate(rng.choice(names))
        elif kind == 1:
            half = set(rng.sample(names, len(names) // 2))
            cuts = [way for way in ways if (way[0] in half) != (way[1] in half)]
            self.rig.network.set_cuts(*cuts)
        elif kind == 2:
            self.rig.network.set_cuts(*rng.sample(ways, rng.randint(1, 3)))
        else:
            self.rig.network.set_cuts()

    async def _kill(self) -> None:
        machine = self._machine()
        if machine.is_up:
            await self.rig.stop(machine.member_id, power=self._rng.random() < 0.5)
        await trio.sleep(self._rng.uniform(0, 3))
        if not machine.is_up:
            await self.rig.start(machine.member_id)

    async def _slow(self) -> None:
        self._machine().fsync_ms = self._rng.choice((0.1, 1, 20, 700, 3000))

    async def _break_disk(self) -> None:
        machine, rng = self._machine(), self._rng
        if rng.random() < 0.5:
            machine.fsync_fails = True
        else:
            machine.slots.failing = True
        await trio.sleep(rng.uniform(0, 4))
        machine.fsync_fails = machine.slots.failing = False
        if not machine.is_up:
            machine.disk.lose_power(rng)
            await self.rig.start(machine.member_id)

    async def _fill(self) -> None:
        machine = self._machine()
        machine.disk.room = 0 if machine.disk.room is None else None

    async def _hand(self) -> None:
        machine = self._machine()
        if machine.is_leader and machine.member is not None:
            machine.member.transfer(self._rng.choice(self.rig.founders))


async def _known(rig: Rig, put: Put) -> None:
    await rig.wait(lambda: put.safe or put.unknown, within_s=20)


def _seeds() -> list[Any]:
    if wanted := os.environ.get("RAFT_MEMBER_SEEDS"):
        first, last = map(int, wanted.split(":"))
        return list(range(first, last))
    slow = sized(
        gate=drawn_seeds("members", MEMBER_SEEDS - _QUICK), release=range(_QUICK, MEMBER_SEEDS)
    )
    return [
        *range(_QUICK),
        *(
            pytest.param(seed, id=f"slow-{i}", marks=pytest.mark.slow)
            for i, seed in enumerate(slow)
        ),
    ]


@pytest.mark.parametrize("seed", _seeds())
async def test_whatever_fails_nothing_acknowledged_is_lost(seed: int) -> None:
    # The order of tasks is drawn from the seed as well.
    with seeded_scheduler(seed):
        await _rage(seed)


async def _rage(seed: int) -> None:
    rng = Random(seed)
    size = rng.choice((3, 3, 5))
    settings = _NARROW if rng.random() < 0.5 else RaftSettings(lease_reads=rng.random() < 0.5)
    secret = rng.choice(("", "s3cret"))
    async with member_group(size, seed, settings=settings, secret=secret) as rig:
        await rig.start()
        chaos = Chaos(rig, rng)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chaos.write)
            with trio.move_on_after(_FAULTS_S):
                await chaos.rage()
            nursery.cancel_scope.cancel()
        await chaos.heal()
        last = Put(0)
        while not last.safe:
            # A transfer may still be in progress, or a leader about to step down.
            await rig.wait(lambda: any(one.may_append for one in rig.leaders()), within_s=20)
            last = next(one for one in rig.leaders() if one.may_append).put(b"the last")
            await _known(rig, last)
        await rig.wait_level(within_s=60)
        for machine in rig.machines.values():
            assert machine.died is None or isinstance(machine.died, StoreError)
        safe = [(one.end_offset, chain) for one, chain in chaos.puts if one.safe]
        for machine in rig.machines.values():
            assert all(machine.disk.chain_at(end) == chain for end, chain in safe)
        assert safe
