"""A slave behind a slow line: sends go on at its pace, and it catches up when the line is good."""

from __future__ import annotations

from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Send across the slow line, then let it be quick again."""
    async with cluster.load("orders") as load:
        await load.more(50)
        cluster.slow("broker-a-0", "broker-a-1", latency_s=0.3)
        await load.more(50)
        cluster.heal()
        await load.more(50)
    await cluster.assert_stores_equal()
    await cluster.assert_nothing_lost(load.sent)
