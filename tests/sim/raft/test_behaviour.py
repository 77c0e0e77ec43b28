"""Times without a leader, and events that must not cost a group its leader: default timers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import pytest

from trioha.dledger.settings import RaftSettings
from trioha.sim.raft.member import DiskWeather, SimMember
from trioha.sim.raft.options import Options, draw_options
from trioha.sim.raft.packets import PacketWeather
from trioha.sim.raft.simulation import Simulation

_STEP_MS = 5


def _calm(seed: int, member_count: int = 3, **settings: int) -> Options:
    """Return options without faults but those that a test makes."""
    names = ("cuts", "assassin", "kills", "power_losses", "pauses", "full_disks", "transfers")
    more = ("membership", "trims", "wipes", "damage", "clock_jumps")
    return attrs.evolve(
        draw_options(seed),
        settings=RaftSettings(**settings),  # type: ignore[arg-type]
        member_count=member_count,
        packets=PacketWeather(),
        disk=DiskWeather(fsync_ms_max=5),
        clock_drift=0.01,
        **dict.fromkeys(names + more, False),
    )


class _Group:
    """A group in calm weather, and a stopwatch."""

    def __init__(self, options: Options) -> None:
        self.simulation = Simulation(options)
        for member in self.simulation.members.values():
            member.start()
        self.wait(lambda: self.leader() is not None)

    def leader(self) -> SimMember | None:
        """Return the serving member with the newest term."""
        serving = [
            one for one in self.simulation.members.values() if one.is_up and one.node.is_serving
        ]
        return max(serving, key=lambda one: one.node.state.term, default=None)

    def the_leader(self) -> SimMember:
        leader = self.leader()
        assert leader is not None
        return leader

    def elapse(self, duration_ms: int) -> None:
        scheduler = self.simulation.scheduler
        scheduler.run_until(scheduler.now_ms + duration_ms)

    def wait(self, is_true: Callable[[], bool]) -> int:
        """Let time pass until then; return how much."""
        begin = self.simulation.scheduler.now_ms
        while not is_true():
            assert self.simulation.scheduler.now_ms < begin + 30_000, "never"
            self.elapse(_STEP_MS)
        return self.simulation.scheduler.now_ms - begin

    def wait_for_another_leader(self, old: SimMember) -> int:
        return self.wait(lambda: self.leader() not in (None, old))

    def wait_until_it_takes_bytes(self, member: SimMember) -> int:
        return self.wait(lambda: member.may_append)

    def transfer(self, leader: SimMember, target: SimMember) -> str:
        answers: list[str] = []
        leader.ask(
            lambda node, now_ms: answers.append(node.transfer_leadership(target.member_id, now_ms))
        )
        return answers[0]

    def cut(self, pairs: set[tuple[str, str]]) -> None:
        self.simulation.network.set_cuts(pairs)

    @property
    def elections(self) -> int:
        return self.simulation.invariants.counts["elections"]


@pytest.mark.parametrize("member_count", [3, 5])
@pytest.mark.parametrize("silently", [False, True])
def test_a_dead_leader_is_replaced_within_three_seconds(member_count: int, silently: bool) -> None:
    """No member notices a closed connection here: a killed leader is as silent as a black hole."""
    taken = []
    for seed in range(100):
        group = _Group(_calm(seed, member_count))
        group.elapse(seed % 10 * 37)
        dead = group.the_leader()
        if silently:
            others = [one for one in group.simulation.members if one != dead.member_id]
            group.cut({(dead.member_id, one) for one in others})
        else:
            dead.is_retired = True
            dead.stop(power=True)
        taken.append(group.wait_for_another_leader(dead))
    taken.sort()
    assert taken[50] <= 2000, f"half within {taken[50]} ms"
    assert taken[98] <= 3000, f"99 of 100 within {taken[98]} ms"


@pytest.mark.parametrize("member_count", [3, 5])
def test_spares_lose_no_time_when_the_leader_falls_silent(member_count: int) -> None:
    """A spare that stands first cannot win. The member with the newer log stands right after it,
    and does not wait for a timeout of its own."""
    medians = []
    for push_delay_ms in (0, 40):
        taken = []
        for seed in range(100):
            options = attrs.evolve(
                _calm(seed, member_count, push_delay_ms=push_delay_ms),
                client_count=3,
                client_pause_ms_max=0,
            )
            group = _Group(options)
            group.elapse(200 + seed % 10 * 37)
            dead = group.the_leader()
            dead.is_retired = True
            dead.stop(power=True)
            taken.append(group.wait_for_another_leader(dead))
        taken.sort()
        medians.append(taken[50])
        assert taken[98] <= 2300, f"{push_delay_ms}: 99 of 100 within {taken[98]} ms"
    assert medians[1] <= medians[0] + 40, medians


def test_a_transfer_stops_the_writes_for_a_moment_only() -> None:
    for seed in range(50):
        group = _Group(_calm(seed))
        group.elapse(300)
        leader = group.the_leader()
        target = next(one for one in group.simulation.members.values() if one is not leader)
        assert group.transfer(leader, target) == ""
        assert group.wait_until_it_takes_bytes(target) <= 100


def test_one_way_cut_of_any_link_costs_two_elections_at_most() -> None:
    """Fault B8: without pre-vote and check-quorum this churns."""
    for source, target in itertools.permutations(("n0", "n1", "n2"), 2):
        group = _Group(_calm(7))
        before = group.elections
        group.cut({(source, target)})
        group.elapse(30_000)
        assert group.elections - before <= 2, f"{source} is not heard by {target}"
        assert group.leader() is not None


def test_an_isolated_member_comes_back_without_an_election() -> None:
    """Fault B1, and its opposite: terms that grew in isolation."""
    group = _Group(_calm(3))
    lonely = next(one for one in group.simulation.members.values() if not one.is_leader)
    others = [one for one in group.simulation.members if one != lonely.member_id]
    before = group.elections
    group.cut(
        {pair for one in others for pair in ((one, lonely.member_id), (lonely.member_id, one))}
    )
    group.elapse(30_000)
    group.cut(set())
    assert group.wait(lambda: lonely.node.state.leader_id != "") <= 1000
    group.elapse(5000)
    assert group.elections == before


def test_an_isolated_leader_takes_no_bytes_for_longer_than_the_shortest_timeout() -> None:
    group = _Group(_calm(5))
    leader = group.the_leader()
    others = [one for one in group.simulation.members if one != leader.member_id]
    group.cut({(one, leader.member_id) for one in others})
    assert group.wait(lambda: not leader.may_append) <= 1200


def test_a_preferred_member_gets_the_leadership_and_a_dead_one_does_not_stop_the_writes() -> None:
    """Fault B7."""
    options = _calm(11)
    settings = RaftSettings(preferred_leader_ids=("n1",))
    group = _Group(attrs.evolve(options, settings=settings))
    n1 = group.simulation.members["n1"]
    group.wait(lambda: group.leader() is n1)
    n1.is_retired = True
    n1.stop(power=False)
    group.wait(lambda: group.leader() not in (None, n1))
    refusing = 0
    for _ in range(2000):
        group.elapse(_STEP_MS)
        refusing += not group.the_leader().may_append
    assert refusing == 0
    n1.start()
    group.wait(lambda: group.leader() is n1)


def test_an_idle_group_fills_a_wiped_member_in_five_seconds() -> None:
    """Fault A5."""
    group = _Group(_calm(4))
    leader = group.the_leader()
    for _ in range(500):
        leader.propose(bytes(200), lambda safe, end: None)
    group.elapse(2000)
    wiped = next(one for one in group.simulation.members.values() if one is not leader)
    wiped.wipe()
    wiped.start()
    end = leader.disk.end_offset
    assert group.wait(lambda: wiped.disk.synced_offset == end) <= 5000
    assert wiped.node.state.impaired
