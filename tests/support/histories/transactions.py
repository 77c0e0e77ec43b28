"""Transactions at real nodes: producers in a thread of their own, beside the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio

from support.nodes.transactions import TransactionLoad
from support.processes.admin import request
from support.processes.rig import Node
from support.processes.status import wait_until
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

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
    """Return the number of open transactions of a master."""
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


def wait_finished(address: str) -> None:
    """Wait until a master has no open transaction."""
    wait_until("nothing is open", lambda: open_count(address) == 0 or "some are", FINISHED_S)
