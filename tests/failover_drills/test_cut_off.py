"""Networks that are cut while a set is failed over, and masters that do not know that they were."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from failover_drills.drill import QUEUES, TOPIC, check_log
from failover_drills.hammered import Hammer
from failover_drills.interrupted import Struck, fail_over, shorten
from support.clusters.replica_set import SETTINGS, ReplicaSet
from support.histories.commitlog import stored_messages
from support.processes.admin import create_topic
from support.processes.namespaces import Net, open_net
from support.processes.rig import Processes

from trioha.failover.outcome import Result

pytestmark = pytest.mark.slow
QUICK_LINKS = {
    **SETTINGS,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 1500,
    "registerNameServerPeriod": 10_000,
}


@pytest.fixture
def net() -> Iterator[Net]:
    with open_net(2) as net:
        yield net


@pytest.fixture
def struck(processes: Processes, net: Net, monkeypatch: pytest.MonkeyPatch) -> Struck:
    shorten(monkeypatch)
    replica_set = ReplicaSet(processes, settings=QUICK_LINKS, net=net).start()
    create_topic(replica_set.master.address, replica_set.namesrv, TOPIC, QUEUES)
    return Struck(replica_set, TOPIC)


@pytest.mark.parametrize("ways", [(0, 1), (1, 0), (0, 1, 1, 0)], ids=["a to b", "b to a", "both"])
def test_a_cut_between_the_two_ends_at_any_step_in_a_state_that_is_told(
    struck: Struck, net: Net, ways: tuple[int, ...]
) -> None:
    for step in ("ticket", "pause", "catch up", "hand over", "promote", "follow"):

        def cut() -> None:
            for source, target in zip(ways[::2], ways[1::2], strict=True):
                net.cut(net.hosts[source], net.hosts[target])

        struck.strike(step, cut, net.heal)
    struck.account()


def test_a_master_that_is_cut_off_acknowledges_nothing_and_follows_when_it_is_back(
    struck: Struck, net: Net, processes: Processes
) -> None:
    """Fault A8: its clients go on sending to it from its own side of the cut."""
    old = struck.set.nodes[0]
    hammer = Hammer(processes, old.address, TOPIC, net.hosts[0].prefix)
    hammer.wait_for_more()
    assert hammer.acknowledged()
    net.isolate(net.hosts[0])
    cut_s = time.monotonic()
    outcome = fail_over(struck.set)
    assert outcome.result is Result.DONE, outcome
    hammer.wait_for_more(200)
    struck.sender.wait_for_stored()
    assert not hammer.acknowledged_since(cut_s), hammer.codes
    net.heal()
    struck.set.wait_whole()
    hammer.stop()
    struck.account()
    held = {stored.name for stored in stored_messages(struck.set.nodes[1].commitlog, TOPIC)}
    lost = [one for one in hammer.acknowledged() if one.name not in held]
    assert not lost, f"{len(lost)} acknowledged to the hammer are gone, the first {lost[0]}"


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_master_that_comes_back_after_a_failover_acknowledges_nothing(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """The window of the first failover: epoch 1 comes back before a peer can have told it."""
    shorten(monkeypatch)
    replica_set = ReplicaSet(processes, role=role).start()
    create_topic(replica_set.master.address, replica_set.namesrv, TOPIC, QUEUES)
    old = replica_set.master
    hammer = Hammer(processes, old.address, TOPIC)
    hammer.wait_for_more()
    old.kill()
    killed_s = time.monotonic()
    outcome = fail_over(replica_set, force=True)
    assert outcome.result is Result.DONE, outcome
    old.start()
    hammer.wait_for_more()
    replica_set.wait_whole()
    hammer.wait_for_more()
    hammer.stop()
    stored = {one.name: one.place for one in stored_messages(replica_set.master.commitlog, TOPIC)}
    wrong = [one for one in hammer.acknowledged_since(killed_s) if one.name not in stored]
    assert not wrong, f"{len(wrong)} acknowledged by the old master and gone: {wrong[0]}"
    replica_set.wait_level()
    master = replica_set.master
    replica_set.stop()
    replica_set.check_equal_logs()
    check_log(master.commitlog, [])
