"""Sets of three whose new master dies, or stands still, once its term is on its disk.

No member has followed that term and no message was acknowledged in it. The old master comes back,
the set goes on or waits, and then the member with the unused term comes back, too.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from failover_drills.interrupted import continue_process, stop_process
from failover_drills.traps import Trap
from failover_drills.watched_set import WHOLE_S, WatchedSet
from support.clusters.replica_set import SETTINGS, ReplicaSet
from support.processes.namespaces import Net, open_net
from support.processes.rig import Node, Processes
from support.processes.status import journal, wait_until

pytestmark = pytest.mark.slow
UNKNOWN = 5
SELDOM: Mapping[str, object] = {**SETTINGS, "registerNameServerPeriod": 60_000}
"""Members find each other without a periodic registration, which comes later than any wait ends.

tests/services/ha/test_failover_sets.py holds the times, on virtual time.
"""


@pytest.fixture
def watched(processes: Processes) -> WatchedSet:
    return WatchedSet(processes, settings=SELDOM)


def interrupt_a_promotion(
    watched: WatchedSet, number: signal.Signals = signal.SIGKILL
) -> tuple[Node, Node]:
    """Kill the master and strike the promotion of another member; returns both."""
    replica_set = watched.set
    old = replica_set.master
    new = next(node for node in replica_set.nodes if node is not old)
    watched.make_level()
    old.kill()
    watched.resume()
    trap = Trap(new, "after epochs", number).arm()
    switch = replica_set.fail_over("--to", str(watched.name_of(new)))
    assert trap.struck, f"{new.name} was not promoted: {switch.code} {switch.text}"
    trap.wait_struck()
    assert switch.code == UNKNOWN, f"exit {switch.code}: {switch.text}"
    return old, new


def go_on_and_come_back(
    watched: WatchedSet, old: Node, new: Node, namesrv: Callable[[ReplicaSet], None] | None = None
) -> None:
    """The old master comes back, sends go on if the set allows it, the new one comes back."""
    if namesrv is not None:
        namesrv(watched.set)
    watched.bring_back(old)
    went_on = watched.acknowledges(300)
    print(f"{old.name} {'went on' if went_on else 'waited'}: {watched.set.describe()}")
    watched.bring_back(new)
    watched.wait_whole()
    watched.own.wait_for_more(100)
    print(watched.account().acknowledged, "acknowledged, none lost")


def restart_wiped(replica_set: ReplicaSet) -> None:
    """A name server remembers nothing when it starts."""
    for namesrv in replica_set.namesrvs:
        namesrv.kill()
        namesrv.start()


def test_a_master_whose_successor_died_before_it_was_followed_loses_nothing(
    watched: WatchedSet,
) -> None:
    """Issue 15, 1: the name server remembers the old master's claim."""
    go_on_and_come_back(watched, *interrupt_a_promotion(watched))


def test_the_same_after_two_switches(watched: WatchedSet) -> None:
    """Issue 15, 1: in epoch 3."""
    for _ in range(2):
        switch = watched.set.fail_over()
        assert switch.code == 0, switch.text
        watched.wait_whole()
    go_on_and_come_back(watched, *interrupt_a_promotion(watched))


def test_the_same_with_a_name_server_that_forgot(watched: WatchedSet) -> None:
    """Issue 15, 1: the name server has forgotten the master."""
    old, new = interrupt_a_promotion(watched)
    go_on_and_come_back(watched, old, new, restart_wiped)


def test_the_same_with_a_successor_that_stood_still(watched: WatchedSet) -> None:
    """Issue 15, 1: it goes on in the middle of its promotion."""
    go_on_and_come_back(watched, *interrupt_a_promotion(watched, signal.SIGSTOP))


def test_a_forced_switch_does_not_give_out_the_epoch_of_a_silent_member(
    watched: WatchedSet,
) -> None:
    """Issue 15, 2: the member with the unused term comes back while the name server is down."""
    old, new = interrupt_a_promotion(watched)
    third = next(node for node in watched.nodes if node not in (old, new))
    # The sets' logs were equal when the master died, so this switch loses nothing.
    switch = watched.fail_over_at_last("--to", str(watched.name_of(third)), "--force")
    watched.bring_back(old)
    went_on = watched.acknowledges(300, WHOLE_S)
    assert went_on or switch.code, f"promoted, and takes no sends: {watched.set.describe()}"
    print(f"exit {switch.code}, {'went on' if went_on else 'waited'}: {watched.set.describe()}")
    (namesrv,) = watched.set.namesrvs
    namesrv.kill()
    returned_s = time.monotonic()
    watched.bring_back(new)
    # The name server hears of the returned member before it hears of the others.
    for node in (old, third):
        stop_process(node)
    registered = len(journal(new, "namesrv_registered"))
    namesrv.start()
    wait_until("registered", lambda: len(journal(new, "namesrv_registered")) > registered)
    for node in (old, third):
        continue_process(node)
    watched.wait_whole()
    watched.own.wait_for_more(100)
    reigned = [
        one
        for one in watched.probes.asked
        if one.home_id == watched.name_of(new) and one.epoch and one.began_s > returned_s
    ]
    print(watched.account().acknowledged, "acknowledged, none lost")
    assert not (went_on and reigned), f"{new.name} was master: {reigned[0]}"


@pytest.fixture
def net() -> Iterator[Net]:
    """Hosts for three members and a name server, and for an operator."""
    with open_net(5) as net:
        yield net


@pytest.mark.parametrize("kind", ["planned", "forced"])
def test_members_that_the_command_cannot_tell_find_the_new_master_at_once(
    processes: Processes, net: Net, kind: str
) -> None:
    """Issue 15, 8: the operator is cut off from one member; the old master comes back later."""
    watched = WatchedSet(processes, settings=SELDOM, net=net)
    old = watched.set.master
    new, third = (node for node in watched.nodes if node is not old)
    operator = net.hosts[-1]
    net.separate(operator, net.hosts[watched.name_of(third)])
    watched.make_level()
    if kind == "forced":
        old.kill()
    switch = watched.set.fail_over(
        *("--to", str(watched.name_of(new)), "--timeout", "1"),
        *(["--force"] if kind == "forced" else []),
        prefix=operator.prefix,
    )
    assert switch.code == 0, switch.text
    watched.wait_following(third, new, WHOLE_S)
    watched.bring_back(old)
    watched.wait_following(old, new, WHOLE_S)
    watched.resume()
    watched.wait_whole()
    watched.account()
