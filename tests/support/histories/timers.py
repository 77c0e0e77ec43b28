"""Timer messages at real nodes: producers in a thread of their own, beside the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio

from support.nodes.timers import TimerLoad
from support.processes.admin import request
from support.processes.rig import Node
from support.processes.status import wait_until
from trioha.services.loop.clock import Clock
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import integer, object_of
from trioha.wire.remoting_command import RemotingCommand

FINISHED_S = 60.0
PAUSE_S = 0.02


@contextmanager
def delaying(load: TimerLoad, nodes: list[Node]) -> Iterator[None]:
    """Send timer messages to every node, in a thread, while the block runs."""
    over = threading.Event()
    clock = Clock()

    async def ask(address: str, command: RemotingCommand) -> RemotingCommand:
        host, port = parse_address(address)
        async with open_remoting_client(host, port, clock) as client:
            return await client.request(command)

    async def send(address: str) -> None:
        while not over.is_set():
            await load.send(partial(ask, address))
            await trio.sleep(PAUSE_S)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(send, node.address)

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def pending_count(address: str) -> int:
    """Return the number of timer messages that wait at a master."""
    answer = request(address, RemotingCommand(RequestCode.TRIOHA_TIMERS, {"count": 0}))
    assert answer.code == 0, answer.remark
    return integer(object_of(fastjson.loads(answer.body_bytes()), "timers"), "pending")


def wait_delivered(address: str) -> None:
    """Wait until nothing is pending at a master."""
    wait_until("nothing is pending", lambda: pending_count(address) == 0 or "some are", FINISHED_S)
