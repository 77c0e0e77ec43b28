"""Faults, one at a time, at drawn moments; never more than a majority can bear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from trioha.dledger.membership import ChangeKind
from trioha.dledger.node import RaftNode
from trioha.sim.raft.invariants import Invariants
from trioha.sim.raft.member import SimMember
from trioha.sim.raft.options import CUT_KINDS, Options
from trioha.sim.raft.packets import PacketNetwork
from trioha.sim.scheduler import Scheduler

JOINERS_MAX = 3


class RaftFaults:
    """The enemy, and the operator who does not know when to stop."""

    def __init__(
        self,
        options: Options,
        members: Mapping[str, SimMember],
        make_member: Callable[[str], SimMember],
        scheduler: Scheduler,
        network: PacketNetwork,
        invariants: Invariants,
        on_cut: Callable[[set[tuple[str, str]]], None],
        rng: Random,
    ) -> None:
        self.stopped = False
        self._options = options
        self._members = members
        self._make_member = make_member
        self._scheduler = scheduler
        self._network = network
        self._invariants = invariants
        self._on_cut = on_cut
        self._rng = rng
        self._joined = 0
        self._impaired = ""
        families: list[tuple[bool, Callable[[], None]]] = [
            (options.cuts, self._cut),
            (options.kills, lambda: self._stop(power=False)),
            (options.power_losses, lambda: self._stop(power=True)),
            (options.pauses, self._pause),
            (options.full_disks, self._fill_disk),
            (options.clock_jumps, self._jump_clock),
            (options.transfers, self._transfer),
            (options.membership, self._change_membership),
            (options.trims, self._trim),
            (options.wipes, self._wipe),
            (options.damage, self._damage),
        ]
        self._families = [fault for is_on, fault in families if is_on]

    def begin(self) -> None:
        if self._families:
            self._again()

    def elected(self, member: SimMember) -> None:
        """Strike down a member that has just become leader, if the seed has an assassin."""
        if self.stopped or not self._options.assassin or self._rng.random() < 0.3:
            return
        self._strike_down(member, self._rng.randint(0, 200))

    def first_commit(self, member: SimMember) -> None:
        """A new leader has committed something: what if that was too early?"""
        if self._options.membership and not self.stopped and self._rng.random() < 0.5:
            self._scheduler.after(0, self._change_one)
        if not self.stopped and self._options.assassin and self._rng.random() < 0.3:
            self._strike_down(member, 0)

    def _strike_down(self, member: SimMember, delay_ms: int) -> None:
        strike = self._rng.choice((self._isolate,) * 3 + (self._kill, self._power_off))
        self._scheduler.after(delay_ms, lambda: strike(member))

    def _isolate(self, member: SimMember) -> None:
        """Cut a member off. It hears no other member; fewer than a majority may still hear it."""
        others = [one for one in self._members if one != member.member_id]
        heard_by = set(self._rng.sample(others, self._rng.randint(0, (len(others) - 1) // 2)))
        cuts = {(one, member.member_id) for one in others}
        cuts |= {(member.member_id, one) for one in others if one not in heard_by}
        self._cut_for_a_while(cuts, "isolate a new leader")

    def _kill(self, member: SimMember) -> None:
        member.stop(power=False)

    def _power_off(self, member: SimMember) -> None:
        member.stop(power=True)

    def _again(self) -> None:
        gap = self._options.fault_gap_ms
        self._scheduler.after(self._rng.randint(gap // 4, gap * 2), self._strike)

    def _strike(self) -> None:
        if not self.stopped:
            self._rng.choice(self._families)()
            self._again()

    def _pick(self) -> SimMember:
        """Pick any member, the leader more often."""
        rng = self._rng
        leaders = [one for one in self._members.values() if one.is_leader]
        if leaders and rng.random() < 0.5:
            return rng.choice(leaders)
        return rng.choice(list(self._members.values()))

    def _cut(self) -> None:
        rng = self._rng
        kind = rng.choice(CUT_KINDS)
        names = list(self._members)
        rng.shuffle(names)
        pairs = [(a, b) for a in names for b in names if a != b]
        half = len(names) // 2
        match kind:
            case "one":
                cuts = {pair for pair in pairs if names[0] in pair}
            case "halves":
                side = set(names[:half])
                cuts = {(a, b) for a, b in pairs if (a in side) != (b in side)}
            case "one-way":
                cuts = {rng.choice(pairs)}
                if rng.random() < 0.5:
                    cuts = {(a, b) for a, b in pairs if a == names[0]}
            case "bridge":
                left, right = set(names[:half]), set(names[half + 1 :])
                cuts = {
                    (a, b)
                    for a, b in pairs
                    if (a in left and b in right) or (a in right and b in left)
                }
            case _:  # a ring: each member sees only two neighbours
                count = len(names)
                near = {(i, (i + step) % count) for i in range(count) for step in (1, -1)}
                cuts = {(names[a], names[b]) for a in range(count) for b in range(count)}
                cuts -= {(names[a], names[b]) for a, b in near}
                if count == 3:
                    cuts = {(names[0], names[1]), (names[1], names[0])}
        self._cut_for_a_while(cuts, f"cut {kind}")

    def _cut_for_a_while(self, cuts: set[tuple[str, str]], why: str) -> None:
        self._tell(f"{why}: {' '.join(f'{a}>{b}' for a, b in sorted(cuts) if a != b)}")
        self._network.set_cuts(cuts)
        self._on_cut(cuts)
        self._scheduler.after(self._rng.randint(100, 8000), lambda: self._network.set_cuts(set()))

    def _stop(self, *, power: bool) -> None:
        if self._rng.random() < 0.2:
            for member in self._members.values():  # the whole rack
                member.stop(power=power)
        else:
            self._pick().stop(power=power)

    def _pause(self) -> None:
        self._pick().pause(self._rng.randint(100, 10_000))

    def _jump_clock(self) -> None:
        self._pick().jump_clock(self._rng.choice((-5000, 30, 500, 3000, 60_000)))

    def _fill_disk(self) -> None:
        disk = self._pick().disk
        disk.room = self._rng.randint(0, 6000)

        def free() -> None:
            disk.room = None

        self._scheduler.after(self._rng.randint(500, 5000), free)

    def _transfer(self) -> None:
        target = self._rng.choice(list(self._members))
        member = self._pick()

        def transfer(node: RaftNode, now_ms: int) -> None:
            why = node.transfer_leadership(target, now_ms)
            self._invariants.counts["transfers"] += not why
            self._tell(f"transfer {member.member_id} to {target}: {why or 'begun'}")

        member.ask(transfer)

    def _change_membership(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._change_one()

    def _change_one(self) -> None:
        leaders = [one for one in self._members.values() if one.is_leader]
        if not leaders:
            return
        leader = self._rng.choice(leaders)
        configuration = leader.node.state.configuration
        if configuration.learners and self._rng.random() < 0.6:
            self._change(leader, ChangeKind.PROMOTE, self._rng.choice(configuration.learners))
        elif self._joined < JOINERS_MAX and self._rng.random() < 0.5:
            self._join(leader)
        elif len(configuration.voters) > 3:
            self._change(leader, ChangeKind.REMOVE, self._rng.choice(configuration.voters))

    def _join(self, leader: SimMember) -> None:
        member_id = f"n{5 + self._joined}"
        if not self._change(leader, ChangeKind.ADD_LEARNER, member_id):
            self._joined += 1
            self._make_member(member_id).start()

    def _change(self, leader: SimMember, kind: ChangeKind, member_id: str) -> str:
        if leader.is_paused or not leader.is_up:
            return "does not answer"
        answers: list[str] = []
        leader.ask(
            lambda node, now_ms: answers.append(node.change_membership(kind, member_id, now_ms))
        )
        why = answers[0] if answers else "died"
        self._invariants.counts["membership changes"] += not why
        self._tell(f"{kind.value} {member_id} at {leader.member_id}: {why or 'begun'}")
        return why

    def _trim(self) -> None:
        member = self._pick()
        if not member.is_up:
            return
        disk = member.disk
        ends = [end for end in disk.ends if end <= member.node.state.committed_offset]
        if len(ends) > 4:
            member.trim(ends[self._rng.randrange(len(ends) - 1)])

    def _wipe(self) -> None:
        """A machine loses its disk and comes back under its old name."""
        member = self._pick()
        if self._may_impair(member):
            self._invariants.counts["wipes"] += 1
            self._tell(f"{member.member_id} loses its disk")
            member.wipe()

    def _damage(self) -> None:
        member = self._pick()
        if self._may_impair(member):
            self._invariants.counts["damages"] += 1
            self._tell(f"{member.member_id} finds a damaged log")
            member.stop(power=False)
            member.disk.damage(self._rng)

    def _may_impair(self, member: SimMember) -> bool:
        """One per life of a group: the second copy of a majority is no more than that."""
        if self._impaired:
            return False
        self._impaired = member.member_id
        return True

    def _tell(self, text: str) -> None:
        self._scheduler.tell("fault", text)
