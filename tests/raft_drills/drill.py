"""A Raft group under load that is hurt again and again, and the account of it.

`python -m raft_drills.drill --rounds 1000` from tests/ is the release run (`just raft-drill`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from failover_drills.drill import spread_ms
from raft_drills.faults import (
    DISK_FAULTS,
    ENDS_A_LEADERSHIP,
    FIVE_FAULTS,
    NET_FAULTS,
    POWER_FAULTS,
    PROCESS_FAULTS,
    Heal,
    Strike,
    Struck,
)
from raft_drills.hurt_group import HurtGroup
from raft_drills.load import RaftLoad
from raft_drills.member_clients import Mix
from support.peers.clients import Clients
from support.processes.admin import create_topic
from support.processes.faults import small_disk
from support.processes.namespaces import open_net
from support.processes.rig import Processes, running_processes
from support.suite.drawn_seed import drawn_seed

TOPIC = "drill"
QUEUES = 4
HOLD_S = (0.1, 1.6)
SECOND_CHANCE = 0.25
WHOLE_EVERY = 8
"""Rounds after which the group has to be whole: in between, faults overlap what came before."""
RECOVERY_S = 20.0
"""With timers of less than a second; most of it is patience with a busy machine."""
DISK_BYTES = 192 << 20
ROUNDS_PER_GROUP = 60

Say = Callable[[str], None]


def silent(line: str) -> None:
    """Discard the line."""


def in_turns(faults: Iterable[str], rng: random.Random) -> Iterator[str]:
    """Yield names without end; each kind comes before any comes again.

    The first one ends a leadership: a drill of four rounds might draw none otherwise.
    """
    kinds = sorted(faults)
    first = rng.choice([kind for kind in kinds if kind in ENDS_A_LEADERSHIP])
    yield first
    yield from (kind for kind in rng.sample(kinds, len(kinds)) if kind != first)
    while True:
        yield from rng.sample(kinds, len(kinds))


class Drill:
    """One group's life: rounds of faults, then the account."""

    def __init__(
        self, group: HurtGroup, seed: int, *, stock: bool = True, mix: Mix | None = None
    ) -> None:
        self.group = group
        self.seed = seed
        self.rounds: list[Struck] = []
        self._rng = random.Random(seed)
        create_topic(group.leader.address, group.namesrv, TOPIC, QUEUES)
        clients = Clients(group.processes) if stock else None
        self.load = RaftLoad(group, TOPIC, seed=seed, mix=mix, stock=clients).start()

    def run(self, faults: Mapping[str, Strike], rounds: int, say: Say = silent) -> None:
        """Faults in an order that the seed decides."""
        order = in_turns(faults, random.Random(f"order {self.seed}"))
        for name in itertools.islice(order, rounds):
            struck = self.round(name, faults)
            say(
                f"seed {self.seed} round {struck.number}: {struck.fault}, held "
                f"{struck.held_s:.2f} s, recovered in {struck.recovery_s:.2f} s"
            )

    def round(self, name: str, faults: Mapping[str, Strike]) -> Struck:
        """One fault, perhaps a second one on top of it, healed; the group serves again."""
        rng = self._rng
        number = len(self.rounds) + 1
        began_s = time.monotonic()
        heals: list[Heal] = [faults[name](self.group, rng)]
        time.sleep(rng.uniform(*HOLD_S))
        if rng.random() < SECOND_CHANCE:
            second = rng.choice(sorted(faults))
            name = f"{name} + {second}"
            heals.append(faults[second](self.group, rng))
            time.sleep(rng.uniform(*HOLD_S))
        for heal in heals:
            heal()
        self.group.start_all(self.group.members)
        held_s = time.monotonic() - began_s
        try:
            recovery_s = self.load.wait_for_progress(RECOVERY_S)
            if number % WHOLE_EVERY == 0:
                self.group.wait_whole()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}, round {number} ({name}): {error}") from error
        struck = Struck(number, name, held_s, recovery_s)
        self.rounds.append(struck)
        return struck

    def wipe_one(self) -> float:
        """A follower loses its disk and is filled again, under load; how long that took.

        It has no vote from then on, so this comes last.
        """
        self.group.wait_whole()
        victim = self._rng.choice(self.group.others(self.group.leader))
        victim.kill()
        victim.wipe()
        victim.node.start()
        began_s = time.monotonic()
        try:
            self.group.wait_whole()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}, {victim.member_id} wiped: {error}") from error
        assert victim.raft()["impaired"], f"{victim.member_id} may have forgotten a vote"
        return time.monotonic() - began_s

    def account(self) -> dict[str, Any]:
        """Stop sending, read all of it everywhere, stop the group, judge.

        Errors: AssertionError with what was broken.
        """
        group, load = self.group, self.load
        try:
            group.wait_whole()
            terms = max(raft["term"] for raft in group.rafts().values())
            history, log = load.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {self.seed}: {error}") from error
        outcomes = Counter(put.outcome for put in history.puts)
        return {
            "seed": self.seed,
            "members": group.size,
            "rounds": len(self.rounds),
            "faults": dict(Counter(one for s in self.rounds for one in s.fault.split(" + "))),
            "terms": terms,
            "puts": dict(outcomes),
            **history.counts(log),
            "stored": len(log),
            "reads": len(history.reads),
            "commits_acknowledged": sum(one.acknowledged for one in history.commits),
            "looks": len(history.looks),
            "topic_changes_acknowledged": sum(
                change.acknowledged for change in history.topic_changes
            ),
            "stock_acknowledged": {
                sender.label: sum(one.is_ok for one in sender.attempts) for sender in load.routed
            },
            "stood_still": load.stood_still,
            "recovery_ms": spread_ms([one.recovery_s for one in self.rounds]),
        }


@contextlib.contextmanager
def cut_group(processes: Processes, size: int = 3, **more: Any) -> Iterator[HurtGroup]:
    """A group whose networks can be cut."""
    with open_net(size) as net:
        try:
            yield HurtGroup(processes, size, net=net, **more).start()
        finally:
            # Before the namespaces go.
            processes.close()


@contextlib.contextmanager
def small_disk_group(processes: Processes, size: int = 3, **more: Any) -> Iterator[HurtGroup]:
    """A group whose disks can be filled."""
    with contextlib.ExitStack() as disks:
        stores = [
            disks.enter_context(small_disk(processes.root / "disks" / f"n{index}", DISK_BYTES))
            for index in range(size)
        ]
        try:
            yield HurtGroup(processes, size, stores=stores, **more).start()
        finally:
            processes.close()


@contextlib.contextmanager
def power_group(processes: Processes, size: int = 3, **more: Any) -> Iterator[HurtGroup]:
    """A group whose power can be cut."""
    try:
        yield HurtGroup(processes, size, keeps_synced=True, **more).start()
    finally:
        processes.close()


@attrs.frozen
class Plan:
    """One group's share of a run."""

    kind: str
    size: int
    open: Callable[..., contextlib.AbstractContextManager[HurtGroup]]
    faults: Mapping[str, Strike]
    share: int
    """Rounds of a hundred that are drawn from this plan."""
    stock: bool = True


PLANS = (
    Plan("cut", 3, cut_group, {**PROCESS_FAULTS, **NET_FAULTS}, 50),
    Plan("disk", 3, small_disk_group, {**PROCESS_FAULTS, **DISK_FAULTS}, 20, stock=False),
    Plan("power", 3, power_group, POWER_FAULTS, 15, stock=False),
    Plan("five", 5, cut_group, {**PROCESS_FAULTS, **NET_FAULTS, **FIVE_FAULTS}, 15, stock=False),
)


def live(plan: Plan, root: Path, seed: int, rounds: int, say: Say = silent) -> dict[str, Any]:
    """One group from its start to its account.

    Errors: AssertionError with what was broken, or with an account of too little.
    """
    with running_processes(root) as processes, plan.open(processes, plan.size) as group:
        drill = Drill(group, seed, stock=plan.stock)
        drill.run(plan.faults, rounds, say)
        refill_s = drill.wipe_one()
        say(f"seed {seed}: a wiped follower is filled in {refill_s:.2f} s")
        account = {"kind": plan.kind, **drill.account()}
    demand_enough(plan, rounds, account)
    return account


def demand_enough(plan: Plan, rounds: int, account: Mapping[str, Any]) -> None:
    """A drill that did less than this proves nothing by losing nothing. Errors: AssertionError."""
    assert account["rounds"] == rounds > 0, account
    assert len(account["faults"]) >= min(rounds, len(plan.faults)), account
    assert account["terms"] > rounds // 4, account
    assert account["puts"]["acknowledged"] > 30 * rounds, account
    for what in ("reads", "looks", "commits_acknowledged", "topic_changes_acknowledged"):
        assert account[what] > rounds, account
    assert len(account["stock_acknowledged"]) == (3 if plan.stock else 0), account
    assert all(count > rounds for count in account["stock_acknowledged"].values()), account


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="in all (default: 100)")
    parser.add_argument("--seed", type=int, help="of the first group (default: the commit's)")
    parser.add_argument("--only", choices=[plan.kind for plan in PLANS], help="one kind of group")
    parser.add_argument("--minutes", type=float, help="no new group after so many")
    parser.add_argument("--output", type=Path, help="write the account there as JSON, too")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    seed = drawn_seed("raft drill") if options.seed is None else options.seed
    began_s = time.monotonic()
    groups: list[dict[str, Any]] = []
    plans = [plan for plan in PLANS if options.only in (None, plan.kind)]
    whole = sum(plan.share for plan in plans)
    left = {plan.kind: -(-options.rounds * plan.share // whole) for plan in plans}
    while any(left.values()):
        for plan in plans:
            rounds = min(left[plan.kind], ROUNDS_PER_GROUP)
            elapsed_s = time.monotonic() - began_s
            if not rounds or (options.minutes and elapsed_s > options.minutes * 60):
                left[plan.kind] = 0
                continue
            left[plan.kind] -= rounds
            root = Path(tempfile.mkdtemp(prefix="trioha-raft-drill-"))
            try:
                groups.append(live(plan, root, seed, rounds, lambda line: print(line, flush=True)))
            except BaseException:
                print(f"seed {seed} ({plan.kind}): stores and logs are in {root}", file=sys.stderr)
                raise
            print(json.dumps(groups[-1]), flush=True)
            shutil.rmtree(root)
            seed += 1
    assert groups, "no group was hurt: --minutes is over before the first"
    sums = ("rounds", "acknowledged_lost", "queue_offset_faults", "progress_regressions")
    account = {
        "acknowledged": sum(group["puts"]["acknowledged"] for group in groups),
        **{what: sum(group[what] for group in groups) for what in sums},
        "elapsed_s": round(time.monotonic() - began_s, 1),
        "groups": groups,
    }
    text = json.dumps(account, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
