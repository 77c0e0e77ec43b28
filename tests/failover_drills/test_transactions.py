"""Open transactions and waiting messages of real brokers through kill -9 and planned switches.

Producers with a connection to every node send half messages, end some, and answer checks; at the
end the log of the master must hold each committed message once, and nothing may be open. Others
send messages with a delay and take some back: none may be lost, early, or there though recalled.
"""

from __future__ import annotations

from random import Random

import pytest
from support.clusters.replica_set import SETTINGS, ReplicaSet
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
def test_transactions_and_timers_live_through_kills_and_planned_switches(
    processes: Processes, run: int
) -> None:
    set_ = ReplicaSet(processes, slave_count=2, settings={**SETTINGS, **QUICK}).start()
    create_topic(set_.master.address, set_.namesrvs[0].address, TOPIC)
    seed = drawn_seed(f"transactions of sets {run}")
    load, timers = TransactionLoad(Clock(), connect, Random(seed)), TimerLoad(Random(seed))
    with delaying(timers, set_.nodes), transacting(load, set_.nodes) as stop_sending:
        wait_for_more(load)
        assert set_.fail_over().code == 0
        wait_for_more(load)
        set_.wait_whole()
        victim = set_.master
        victim.kill()
        assert set_.fail_over().code == 0
        wait_for_more(load)
        victim.start()
        set_.wait_whole()
        stop_sending.set()
        wait_finished(set_.master.address)
    wait_delivered(set_.master.address)
    set_.wait_level()
    log = set_.master.commitlog
    set_.stop()
    set_.check_equal_logs()
    records = [one for one in iter_records(log, 0) if isinstance(one, Record)]
    load.check(records)
    timers.check(records, is_exact=False)
