"""Open transactions of real brokers through kill -9 and planned switches.

Producers with a connection to every node send half messages, end some, and answer checks; at the
end the log of the master must hold each committed message once, and nothing may be open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio
from support.clusters.replica_set import SETTINGS, ReplicaSet
from support.nodes.transactions import TOPIC, TransactionLoad
from support.processes.admin import create_topic, request
from support.processes.rig import Node, Processes
from support.processes.status import wait_until
from support.suite.sizes import SWITCHES_OF_THREE

from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import connect
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.store.inspect import iter_records
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow
QUICK = {"transactionTimeOut": 1000, "transactionCheckInterval": 2000, "transactionCheckMax": 10000}
FINISHED_S = 60.0
PAUSE_S = 0.02


@contextmanager
def transacting(load: TransactionLoad, nodes: list[Node]) -> Iterator[threading.Event]:
    """Run producers in a thread while the block runs; they stop sending at the yielded event."""
    stop_sending, over = threading.Event(), threading.Event()

    async def ask(address: str, command: RemotingCommand) -> RemotingCommand:
        host, port = parse_address(address)
        async with open_remoting_client(host, port, load.clock) as client:
            return await client.request(command)

    async def send(address: str) -> None:
        while not stop_sending.is_set():
            await load.transact(partial(ask, address))
            await trio.sleep(PAUSE_S)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(load.serve_producer, *parse_address(node.address))
                nursery.start_soon(send, node.address)
            await trio.to_thread.run_sync(over.wait)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        yield stop_sending
    finally:
        stop_sending.set()
        over.set()
        thread.join()


def open_count(address: str) -> int:
    answer = request(address, RemotingCommand(RequestCode.TRIOHA_TRANSACTIONS, {"count": 0}))
    assert answer.code == 0, answer.remark
    return int(fastjson.loads(answer.body_bytes())["open"])  # type: ignore[index]


def wait_for_more(load: TransactionLoad, count: int = 30) -> None:
    """Wait until so many more half messages are acknowledged."""
    goal = len(load.acknowledged) + count
    wait_until(
        "half messages are acknowledged",
        lambda: len(load.acknowledged) >= goal or f"{len(load.acknowledged)} are",
        FINISHED_S,
    )


def test_transactions_live_through_kills_and_planned_switches(processes: Processes) -> None:
    set_ = ReplicaSet(processes, slave_count=2, settings={**SETTINGS, **QUICK}).start()
    create_topic(set_.master.address, set_.namesrvs[0].address, TOPIC)
    load = TransactionLoad(Clock(), connect)
    with transacting(load, set_.nodes) as stop_sending:
        for _ in range(SWITCHES_OF_THREE):
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
        address = set_.master.address
        wait_until("nothing is open", lambda: open_count(address) == 0 or "some are", FINISHED_S)
    set_.wait_level()
    log = set_.master.commitlog
    set_.stop()
    set_.check_equal_logs()
    load.check(one for one in iter_records(log, 0) if isinstance(one, Record))
