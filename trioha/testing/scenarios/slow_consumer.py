"""A consumer slower than its producers: it falls behind, is joined by two more, and catches up."""

from __future__ import annotations

import trio

from trioha.client import ReceivedMessage
from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Consume with one member while the load runs, then with three."""
    handled: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        await trio.sleep(1)
        handled.append(message)

    async with cluster.consumer("orders", handle, group="billing"):
        async with cluster.load("orders") as load:
            await load.more(500)
        assert len(handled) < len(load.sent), "the consumer was not slow"
        async with (
            cluster.consumer("orders", handle, group="billing"),
            cluster.consumer("orders", handle, group="billing"),
        ):
            await cluster.wait_level("billing", within_s=600)
    await cluster.assert_nothing_lost(load.sent, handled=handled)
