"""All name servers are gone for ten minutes: clients go on with the routes that they know."""

from __future__ import annotations

import trio

from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Kill the name server under load, and let an empty one return."""
    async with cluster.load("orders", pause_s=5.0) as load:
        await load.more(20)
        await cluster.stop_namesrv()
        await trio.sleep(600)
        await load.more(20)
        await cluster.start_namesrv()
        await trio.sleep(60)
        await load.more(20)
    received = await cluster.consume("orders", "billing")
    await cluster.assert_nothing_lost(load.sent, handled=received)
