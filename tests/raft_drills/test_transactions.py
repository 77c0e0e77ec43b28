"""Open transactions and waiting messages of a group whose leader is killed, or loses power."""

from __future__ import annotations

from random import Random

import pytest
from raft_drills.hurt_group import SETTINGS, HurtGroup
from support.histories.timers import delaying, wait_delivered
from support.histories.transactions import QUICK, transacting, wait_finished, wait_for_more
from support.nodes.timers import TimerLoad
from support.nodes.transactions import TOPIC, TransactionLoad
from support.processes.admin import create_topic
from support.processes.rig import Processes
from support.suite.drawn_seed import drawn_seed
from support.suite.sizes import TRANSACTION_DRILLS

from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import connect
from trioha.store.inspect import iter_records
from trioha.wire.record import Record

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("run", range(TRANSACTION_DRILLS))
def test_transactions_and_timers_live_through_kills_and_power_losses(
    processes: Processes, run: int
) -> None:
    group = HurtGroup(processes, settings={**SETTINGS, **QUICK}, keeps_synced=True).start()
    create_topic(group.leader.address, group.namesrv, TOPIC)
    seed = drawn_seed(f"transactions of groups {run}")
    load, timers = TransactionLoad(Clock(), connect, Random(seed)), TimerLoad(Random(seed))
    rng = Random(seed)
    nodes = [member.node for member in group.members]
    with delaying(timers, nodes), transacting(load, nodes) as stop_sending:
        for loses_power in (False, True):
            wait_for_more(load)
            victim = group.leader
            if loses_power:
                victim.lose_power(rng)
            else:
                victim.kill()
            group.wait_serving()
            wait_for_more(load)
            group.start_all([victim])
            group.wait_whole()
        stop_sending.set()
        wait_finished(group.wait_serving().address)
    wait_delivered(group.wait_serving().address)
    end = group.wait_level()
    log = group.leader.node.commitlog
    group.stop()
    records = [one for one in iter_records(log, 0, end) if isinstance(one, Record)]
    load.check(records)
    timers.check(records, is_exact=False)
