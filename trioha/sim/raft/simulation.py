"""One seed, from its options to its verdict: everything breaks, then nothing does.

First everything may fail, within what a majority survives, and safety is watched after every event.
Then all is healed and progress is demanded: a leader, a write from a client, and the same log on
every member, all of it committed. A group that is safe because it stands still does not pass.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import attrs

from trioha.checksum import crc32
from trioha.dledger.membership import Configuration
from trioha.dledger.messages import RaftMessage
from trioha.errors import TriohaError
from trioha.sim.raft.clients import Client, SentHistory
from trioha.sim.raft.faults import RaftFaults
from trioha.sim.raft.hang_ups import HangUps
from trioha.sim.raft.invariants import Invariants, Violation
from trioha.sim.raft.member import SimMember
from trioha.sim.raft.options import Options, draw_options
from trioha.sim.raft.packets import PacketNetwork
from trioha.sim.scheduler import Scheduler

LIVENESS_MS = 20_000
"""Ten longest election timeouts: after that a healed group has no excuse."""


@attrs.frozen
class SeedVerdict:
    """Result of a seed."""

    seed: int
    failure: str
    """Empty when all is well."""
    is_judged: bool
    """True if a violation or a failed assertion ended the seed, not a `TriohaError`."""
    options: Options
    counts: Counter[str]
    trace: tuple[str, ...]
    digest: int
    """Digest of the run; equal seeds must give equal digests."""


class Simulation:
    """One group's life."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.scheduler = Scheduler()
        self.members: dict[str, SimMember] = {}
        self.history = SentHistory()
        seed = options.seed
        self._rng = Random(f"members {seed}")
        self._disk_weather = attrs.evolve(options.disk)
        self.network = PacketNetwork(
            self.scheduler, options.packets, Random(f"network {seed}"), self._deliver
        )
        self.invariants = Invariants(self.members, all_disks_whole=options.all_disks_whole)
        self._configuration = Configuration.of(*(f"n{n}" for n in range(options.member_count)))
        for member_id in self._configuration.voters:
            self._make_member(member_id)
        self.clients = [self._make_client(number) for number in range(options.client_count)]
        self._hang_ups = HangUps(
            self.members, self.scheduler, Random(f"resets {seed}"), is_on=options.hang_ups
        )
        self._faults = RaftFaults(
            options,
            self.members,
            self._make_member,
            self.scheduler,
            self.network,
            self.invariants,
            self._hang_ups.cut,
            Random(f"faults {seed}"),
        )

    def run(self) -> None:
        """Live through the seed. Errors: Violation, or any error that the core raised."""
        for member in self.members.values():
            member.start()
        if self.options.client_pause_ms_max:
            for client in self.clients:
                client.begin()
        self._faults.begin()
        self._hang_ups.begin()
        self.scheduler.run_until(self.options.duration_ms)
        self._heal()
        self._demand_progress()
        self._demand_agreement()

    def digest(self) -> int:
        """A number that tells two runs apart."""
        digest = crc32(f"{self.scheduler.action_count} {self.network.sent}".encode())
        for member in self.members.values():
            digest = crc32(str(member.disk.chains[-1:]).encode(), digest)
        return digest

    def _heal(self) -> None:
        self.scheduler.tell("fault", "all is healed")
        self._faults.stopped = self._hang_ups.stopped = True
        self.network.calm()
        weather = self._disk_weather
        weather.stall = weather.fsync_error = weather.save_error = weather.crash_point = 0.0
        for member in self.members.values():
            member.disk.room = None

    def _demand_progress(self) -> None:
        """Demand that a new client gets its writes acknowledged after all is healed.

        Where a batch is one record and an fsync takes long, clients offer more than the group can
        do, and who gives up after 300 ms is never told of its write. So the others stop, this one
        has patience, and what is left of theirs may be committed first.
        """
        scheduler = self.scheduler
        for one in self.clients:
            one.stopped = True
        client = self._make_client(len(self.clients), LIVENESS_MS // 8)
        self.clients.append(client)
        client.begin()
        deadline_ms = scheduler.now_ms + LIVENESS_MS
        while scheduler.now_ms < deadline_ms and client.written < 3:
            scheduler.run_until(scheduler.now_ms + 500)
        client.stopped = True
        if client.written < 3:
            raise Violation(f"no progress in {LIVENESS_MS} ms after all was healed")

    def _demand_agreement(self) -> None:
        scheduler = self.scheduler
        # Twice: a copy of a long log by batches of one record takes its time.
        deadline_ms = scheduler.now_ms + 2 * LIVENESS_MS
        while scheduler.now_ms < deadline_ms:
            scheduler.run_until(scheduler.now_ms + 500)
            if not self._disagreement():
                break
        else:
            raise Violation(f"no agreement in {2 * LIVENESS_MS} ms: {self._disagreement()}")
        (leader,) = self._serving()
        trimmed = {
            name: end
            for name, end in self.history.acknowledged.items()
            if end <= leader.disk.begin_offset
        }
        self.history.check(leader.disk, trimmed)

    def _serving(self) -> list[SimMember]:
        """The members that lead; one that was killed while it led is none of them."""
        return [one for one in self.members.values() if one.is_up and one.node.is_serving]

    def _disagreement(self) -> str:
        """Return the first reason the members do not agree yet; empty if they agree."""
        serving = self._serving()
        if len(serving) != 1:
            return f"{len(serving)} leaders"
        leader = serving[0]
        end = leader.disk.end_offset
        if leader.node.state.committed_offset != end:
            return f"{leader.member_id} commits {leader.node.state.committed_offset} of {end}"
        for name in leader.node.state.configuration.members:
            member = self.members[name]
            if not member.is_up:
                return f"{name} is down"
            if (member.node.state.committed_offset, member.disk.end_offset) != (end, end):
                return (
                    f"{name} commits {member.node.state.committed_offset} of "
                    f"{member.disk.end_offset}, {leader.member_id} has {end}"
                )
            if member.node.state.configuration != leader.node.state.configuration:
                return f"{name} has {member.node.state.configuration}"
            if member.disk.chain_at(end) != leader.disk.chain_at(end):
                raise Violation(f"{name} and {leader.member_id} have other logs up to {end}")
        return ""

    def _deliver(self, message: RaftMessage) -> None:
        member = self.members.get(message.target)
        if member is not None:
            member.deliver(message)

    def _make_member(self, member_id: str) -> SimMember:
        drift = self.options.clock_drift
        member = SimMember(
            member_id,
            self.options.settings,
            self._configuration,
            self.scheduler,
            self.network,
            self.invariants,
            self._disk_weather,
            self._rng,
            1.0 + self._rng.uniform(-drift, drift),
            lambda member: self._faults.elected(member),
            lambda member: self._faults.first_commit(member),
            lambda member: self._hang_ups.killed(member),
        )
        self.members[member_id] = member
        return member

    def _make_client(self, number: int, timeout_ms: int | None = None) -> Client:
        return Client(
            number,
            self.members,
            self.scheduler,
            self.invariants,
            self.history,
            Random(f"client {number} {self.options.seed}"),
            max(self.options.client_pause_ms_max, 1),
            timeout_ms or self.options.client_timeout_ms,
        )


def run_seed(seed: int) -> SeedVerdict:
    """Live through one seed and judge it."""
    return run_options(draw_options(seed))


def run_options(options: Options) -> SeedVerdict:
    simulation = Simulation(options)
    failure, is_judged = "", False
    try:
        simulation.run()
    except (Violation, AssertionError, TriohaError) as error:
        is_judged = not isinstance(error, TriohaError)
        failure = f"{type(error).__name__}: {error}"
    return SeedVerdict(
        options.seed,
        failure,
        is_judged,
        options,
        simulation.invariants.counts,
        tuple(simulation.scheduler.trace),
        simulation.digest(),
    )
