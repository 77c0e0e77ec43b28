"""Known faults (docs/known-faults.md), lived through by real sets."""

from __future__ import annotations

import pytest
from failover_drills.drill import QUEUES, TOPIC
from failover_drills.interrupted import (
    Struck,
    continue_process,
    fail_over,
    shorten,
    start_again,
    stop_process,
)
from support.clusters.replica_set import BROKER, ReplicaSet
from support.processes.admin import create_topic, request
from support.processes.rig import Processes
from support.processes.status import wait_until
from support.processes.worker import Worker

from trioha.failover.outcome import Result
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import ClusterInfo

pytestmark = pytest.mark.slow
LOOK_PERIOD_S = 0.005


@pytest.fixture
def struck(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Struck:
    """A pair under load."""
    shorten(monkeypatch)
    replica_set = ReplicaSet(processes).start()
    create_topic(replica_set.master.address, replica_set.namesrv, TOPIC, QUEUES)
    return Struck(replica_set, TOPIC)


def test_a_master_that_dies_as_its_slave_joins_had_acknowledged_no_more_than_it_holds(
    struck: Struck,
) -> None:
    """Fault A7: the in-sync set grows, and the master counted on it too soon."""
    for _ in range(5):
        master = struck.set.master
        slave = struck.other(master)
        slave.kill()
        struck.sender.wait_for_stored(50)
        slave.start()
        struck.sender.wait_for_more(1)
        master.kill()
        outcome = fail_over(struck.set)
        assert outcome.result is Result.DONE, outcome
        start_again(master)
        struck.set.wait_whole()
    struck.account()


def test_master_and_name_server_die_together_and_queue_offsets_go_on(struck: Struck) -> None:
    """Fault D3: a coordinator that remembered nothing reset the offsets of its master."""
    (namesrv,) = struck.set.namesrvs
    for epoch in (1, 2, 3):
        master = struck.set.master
        namesrv.kill()
        master.kill()
        namesrv.start()
        start_again(master)
        struck.set.wait_whole()
        struck.sender.wait_for_more()
        assert struck.set.statuses()[struck.set.nodes.index(master)]["epoch"] == epoch
        assert fail_over(struck.set).result is Result.DONE
        struck.set.wait_whole()
    struck.account()


class RouteWatch(Worker):
    """A record of the masters that a name server names, one per change."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("watch[route]", 20.0)
        self.masters: list[str] = []
        self._namesrv = namesrv

    def _work(self) -> None:
        while not self._stopping.wait(LOOK_PERIOD_S):
            answer = request(self._namesrv, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
            broker = ClusterInfo.decode(answer.body_bytes()).broker_addr_table.get(BROKER)
            master = broker.broker_addrs.get(0, "") if broker is not None else ""
            if not self.masters or self.masters[-1] != master:
                self.masters.append(master)


def test_a_returning_master_never_takes_the_route_back(struck: Struck) -> None:
    """Faults D4 and D5: a name server believed the last registration."""
    watch = RouteWatch(struck.set.namesrv).start()
    wait_until("seen", lambda: bool(watch.masters))
    expected = [struck.set.master.address]
    for _ in range(3):
        old = struck.set.master
        old.kill()
        assert fail_over(struck.set).result is Result.DONE
        expected.append(struck.other(old).address)
        start_again(old)
        struck.set.wait_whole()
        struck.sender.wait_for_more()
    watch.stop()
    assert [master for master in watch.masters if master] == expected
    struck.account()


def test_a_master_that_stalls_for_seconds_stays_master(struck: Struck) -> None:
    """Fault D7: long pauses were read as death, and the old master never caught up."""
    master = struck.set.master
    for _ in range(3):
        stop_process(master)
        # One answer was perhaps on its way.
        with pytest.raises(AssertionError):
            struck.sender.wait_for_stored(2, within_s=1.5)
        continue_process(master)
        struck.sender.wait_for_more()
    assert struck.set.master is master
    struck.set.wait_whole()
    assert {status["epoch"] for status in struck.set.statuses().values()} == {1}
    struck.account()
