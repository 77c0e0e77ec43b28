"""A group that does what a script says: the simulation's members, a calm network, a told fate.

A transcript is blocks of commands, ``----``, and everything that the group said while they ran.
`just rewrite` writes what it says now; read the difference before you believe it. Commands:

    nodes n0 n1 n2          a group
    elapse 500              milliseconds pass; a packet takes 1, an fsync 2
    stand n0                its election timeout is over now
    write n0 3              a client writes so many records at n0
    cut n0, cut n0>n1       nothing to and from n0, or one way
    heal
    kill n0, power n0       the process, or the machine with what it had not fsynced
    lose n1 n0              all connections of n1 with n0 have ended
    start n0, wipe n0       back, or back with an empty disk under the old name
    hold Append n0>n1, hold Append 3
                            packets of one kind wait, on one way or of bytes of one term
    release, drop           they arrive, oldest first, or never
    transfer n0 n1, add n0 n3, promote n0 n3, remove n0 n3     asked of the first
    read n0                 may a read be served?
    trim n0                 retention deletes all but the last committed record
    full n0, free n0        its disk
    packets on, packets off tell what arrives
    log                     every member's log and state
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trioha.dledger import messages as say
from trioha.dledger.membership import ChangeKind, Configuration
from trioha.dledger.settings import RaftSettings
from trioha.sim.raft.invariants import Invariants
from trioha.sim.raft.member import DiskWeather, SimMember
from trioha.sim.raft.packets import PacketNetwork, PacketWeather
from trioha.sim.scheduler import Scheduler

_RECORD_BYTES = 16
_FOREVER_MS = 10**9


class _ToldNetwork(PacketNetwork):
    """Network that holds back the packets that a script names."""

    def __init__(self, scheduler: Scheduler, deliver: Callable[[say.RaftMessage], None]) -> None:
        weather = PacketWeather(latency_ms_min=1, latency_ms_max=1)
        super().__init__(scheduler, weather, Random(1), deliver)
        self.holds: list[tuple[str, str]] = []
        self.held: list[say.RaftMessage] = []

    def send(self, message: say.RaftMessage) -> None:
        for kind, what in self.holds:
            if type(message).__name__ == kind and what in (
                f"{message.source}>{message.target}",
                str(getattr(message, "entry_term", "")),
            ):
                self.held.append(message)
                return
        super().send(message)


class ScriptedGroup:
    """Group that runs commands and collects what is said."""

    def __init__(self) -> None:
        self._scheduler = Scheduler()
        self._members: dict[str, SimMember] = {}
        self._network = _ToldNetwork(self._scheduler, self._deliver)
        # `stand` makes members forget which peers they have heard; no lease survives that.
        self._invariants = Invariants(self._members, all_disks_whole=False, timeouts_are_real=False)
        self._configuration = Configuration.of("n0")
        self._tells_packets = False
        self._cuts: set[tuple[str, str]] = set()
        self._writes = 0
        self._reads = 0

    def run(self, commands: list[str]) -> list[str]:
        """Run the commands; return what the group says meanwhile."""
        self._scheduler.trace.clear()
        for command in commands:
            name, *words = command.split()
            getattr(self, f"_do_{name}")(*words)
        lines = [" ".join(line.split()) for line in self._scheduler.trace]
        return lines or ["ok"]

    def _do_nodes(self, *names: str) -> None:
        self._configuration = Configuration.of(*names)
        for name in names:
            self._make(name)

    def _do_elapse(self, duration_ms: str) -> None:
        self._scheduler.run_until(self._scheduler.now_ms + int(duration_ms))

    def _do_stand(self, name: str) -> None:
        state = self._members[name].node.state
        state.election_deadline_ms = self._members[name].now_ms()
        # No member has heard a leader for long: the script says when to stand.
        for member in self._members.values():
            if member.is_up and not member.is_leader:
                member.node.state.heard_ms = -_FOREVER_MS
        self._members[name].ask(lambda node, now_ms: node.on_time(now_ms))

    def _do_write(self, name: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self._writes += 1
            number = self._writes
            if not self._members[name].may_append:
                self._tell(name, f"refuses write {number}")
                continue

            def answer(safe: bool | None, end_offset: int, number: int = number) -> None:
                said = "is safe" if safe else "may be lost or not"
                self._tell(name, f"write {number} up to {end_offset} {said}")

            self._members[name].propose(bytes(_RECORD_BYTES), answer)

    def _do_cut(self, what: str) -> None:
        names = list(self._members)
        if ">" in what:
            source, target = what.split(">")
            self._cuts.add((source, target))
        else:
            self._cuts |= {(what, other) for other in names} | {(other, what) for other in names}
        self._network.set_cuts(self._cuts)

    def _do_heal(self) -> None:
        self._cuts = set()
        self._network.set_cuts(self._cuts)

    def _do_kill(self, name: str) -> None:
        self._stop(name, power=False)

    def _do_power(self, name: str) -> None:
        self._stop(name, power=True)

    def _do_lose(self, name: str, lost: str) -> None:
        self._members[name].lose_peer(lost)

    def _do_start(self, name: str) -> None:
        self._members[name].is_retired = False
        self._members[name].start()

    def _do_wipe(self, name: str) -> None:
        self._members[name].wipe()
        self._do_start(name)

    def _do_hold(self, kind: str, what: str) -> None:
        self._network.holds.append((kind, what))

    def _do_release(self) -> None:
        held, self._network.held = self._network.held, []
        self._network.holds.clear()
        for message in held:
            self._deliver(message)

    def _do_drop(self) -> None:
        self._network.held.clear()
        self._network.holds.clear()

    def _do_transfer(self, name: str, target: str) -> None:
        self._ask(name, f"transfer to {target}", "transfer_leadership", target)

    def _do_add(self, name: str, member: str) -> None:
        self._ask(name, f"add {member}", "change_membership", ChangeKind.ADD_LEARNER, member)
        if member not in self._members:
            self._make(member)

    def _do_promote(self, name: str, member: str) -> None:
        self._ask(name, f"promote {member}", "change_membership", ChangeKind.PROMOTE, member)

    def _do_remove(self, name: str, member: str) -> None:
        self._ask(name, f"remove {member}", "change_membership", ChangeKind.REMOVE, member)

    def _do_read(self, name: str) -> None:
        self._reads += 1
        token = self._reads
        member = self._members[name]
        member.pending_reads[token] = 0
        lease = member.node.status().lease_until_ms > member.now_ms()
        member.ask(lambda node, now_ms: node.read_index(token, now_ms))
        served = token not in member.pending_reads
        how = "by lease" if served and lease else "at once" if served else "asks a majority"
        self._tell(name, f"read: {how}")

    def _do_trim(self, name: str) -> None:
        member = self._members[name]
        ends = [end for end in member.disk.ends if end <= member.node.state.committed_offset]
        member.trim(ends[-2])

    def _do_full(self, name: str) -> None:
        self._members[name].disk.room = 0
        self._members[name].ask(lambda node, now_ms: None)

    def _do_free(self, name: str) -> None:
        self._members[name].disk.room = None
        self._members[name].ask(lambda node, now_ms: None)

    def _do_packets(self, what: str) -> None:
        self._tells_packets = what == "on"

    def _do_log(self) -> None:
        for name, member in self._members.items():
            if not member.is_up:
                self._tell(name, "is down")
                continue
            state = member.node.state
            terms = " ".join(f"{term}@{start}" for term, start in state.terms.rows)
            flags = " impaired" * state.impaired + " full" * (not state.writable)
            self._tell(
                name,
                f"{state.role.value} term={state.term} log={state.begin_offset}..{state.end_offset}"
                f" committed={state.committed_offset} terms={terms or '-'}"
                f" {state.configuration}{flags}",
            )

    def _ask(self, name: str, what: str, method: str, *arguments: object) -> None:
        member = self._members[name]
        answers: list[str] = []
        member.ask(lambda node, now_ms: answers.append(getattr(node, method)(*arguments, now_ms)))
        self._tell(name, f"{what}: {answers[0] or 'begun'}")

    def _stop(self, name: str, *, power: bool) -> None:
        self._members[name].is_retired = True
        self._members[name].stop(power=power)

    def _deliver(self, message: say.RaftMessage) -> None:
        member = self._members.get(message.target)
        if member is None or not member.is_up:
            return
        if self._tells_packets and not isinstance(message, (say.Heartbeat, say.HeartbeatResponse)):
            self._tell(f"{message.source}>{message.target}", _packet(message))
        member.deliver(message)

    def _make(self, name: str) -> None:
        member = SimMember(
            name,
            RaftSettings(caught_up_bytes=200),
            self._configuration,
            self._scheduler,
            self._network,
            self._invariants,
            DiskWeather(fsync_ms_max=2),
            Random(f"member {name}"),
            1.0,
            lambda member: None,
            lambda member: None,
            lambda member: None,
        )
        self._members[name] = member
        member.start()

    def _tell(self, who: str, text: str) -> None:
        self._scheduler.tell(who, text)


def _packet(message: say.RaftMessage) -> str:
    """The part of a message that a reader wants to see."""
    kind = type(message).__name__
    match message:
        case say.Append():
            end = message.prev_offset + len(message.body)
            return (
                f"{kind} {message.prev_offset}..{end} of term {message.entry_term} on "
                f"{message.prev_term}, commit {message.committed_offset}"
            )
        case say.Compare():
            terms = " ".join(f"{term}@{start}" for term, start in message.rows)
            return f"{kind} {message.begin_offset}..{message.end_offset} {terms}"
        case say.Truncate():
            return f"{kind} at {message.phy_offset}: term {message.conflict_term} is there"
        case say.Install():
            return f"{kind} begin at {message.begin_offset}"
        case say.PushResponse():
            conflict = ", conflict" * message.conflict
            return (
                f"{message.type.name} {message.status.name} matched {message.matched_offset} "
                f"held {message.held_offset}{conflict}"
            )
        case say.VoteRequest():
            what = "pre-vote?" if message.is_pre else "vote?"
            return f"{what} term {message.term}, log {message.log_end} of {message.log_term}"
        case say.VoteResponse():
            return f"{'yes' if message.granted else 'no: ' + message.reason}"
        case _:
            return f"{kind} term {message.term}"
