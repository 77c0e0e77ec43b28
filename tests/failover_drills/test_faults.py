"""A fault after every step of both kinds of switch (two of each in the gate): what the engine says
is true, and a second attempt repairs what a first one left."""

from __future__ import annotations

import time
from functools import partial

import pytest
from failover_drills.drill import QUEUES, TOPIC
from failover_drills.interrupted import (
    Struck,
    continue_process,
    shorten,
    start_again,
    stop_process,
)
from support.clusters.replica_set import ReplicaSet
from support.processes.admin import create_topic
from support.processes.rig import Processes
from support.suite.sizes import FORCED_STEPS, PLANNED_STEPS

from trioha.failover.outcome import Result

pytestmark = pytest.mark.slow
STANDSTILL_S = 30.0


@pytest.fixture
def struck(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Struck:
    shorten(monkeypatch)
    replica_set = ReplicaSet(processes, namesrv_count=2).start()
    create_topic(replica_set.master.address, replica_set.namesrvs[0].address, TOPIC, QUEUES)
    return Struck(replica_set, TOPIC)


def test_the_master_is_killed_at_every_step_of_a_planned_switch(struck: Struck) -> None:
    for step in PLANNED_STEPS:
        master = struck.set.master
        struck.strike(step, master.kill, partial(start_again, master))
    struck.account()


def test_the_target_is_killed_at_every_step_of_a_planned_switch(struck: Struck) -> None:
    for step in PLANNED_STEPS:
        target = struck.other(struck.set.master)
        struck.strike(step, target.kill, partial(start_again, target))
    struck.account()


def test_the_master_stands_still_at_every_step_of_a_planned_switch(struck: Struck) -> None:
    for step in PLANNED_STEPS:
        master = struck.set.master
        struck.strike(step, partial(stop_process, master), partial(continue_process, master))
    struck.account()


def test_the_target_stands_still_at_every_step_of_a_planned_switch(struck: Struck) -> None:
    for step in PLANNED_STEPS:
        target = struck.other(struck.set.master)
        struck.strike(step, partial(stop_process, target), partial(continue_process, target))
    struck.account()


def test_a_name_server_is_killed_at_every_step_of_a_planned_switch(struck: Struck) -> None:
    for step in PLANNED_STEPS:
        namesrv = struck.set.namesrvs[1]
        outcome = struck.strike(step, namesrv.kill, partial(start_again, namesrv))
        assert outcome.result is Result.DONE, outcome
    struck.account()


def test_the_target_is_killed_at_every_step_of_a_forced_switch(struck: Struck) -> None:
    for step in FORCED_STEPS:
        master = struck.set.master
        target = struck.other(master)
        master.kill()
        struck.strike(step, target.kill, partial(start_again, target), partial(start_again, master))
    struck.account()


def test_the_target_stands_still_at_every_step_of_a_forced_switch(struck: Struck) -> None:
    for step in FORCED_STEPS:
        master = struck.set.master
        target = struck.other(master)
        master.kill()
        struck.strike(
            step,
            partial(stop_process, target),
            partial(continue_process, target),
            partial(start_again, master),
        )
    struck.account()


def test_the_old_master_comes_back_at_every_step_of_a_forced_switch(struck: Struck) -> None:
    for step in FORCED_STEPS:
        master = struck.set.master
        master.kill()
        struck.strike(step, partial(start_again, master))
    struck.account()


@pytest.mark.release
@pytest.mark.parametrize("who", ["master", "target"])
def test_a_node_stands_still_for_half_a_minute_with_nobody_s_patience_shortened(
    processes: Processes, who: str
) -> None:
    """Longer than every deadline of a switch and of the link."""
    replica_set = ReplicaSet(processes).start()
    create_topic(replica_set.master.address, replica_set.namesrv, TOPIC, QUEUES)
    struck = Struck(replica_set, TOPIC)
    master = replica_set.master
    node = master if who == "master" else struck.other(master)
    began_s = time.monotonic()

    def go_on_after_half_a_minute() -> None:
        time.sleep(max(0.0, STANDSTILL_S - (time.monotonic() - began_s)))
        continue_process(node)

    struck.strike("hand over", partial(stop_process, node), go_on_after_half_a_minute)
    struck.account()
