"""The line between master and slave fails six times: the slave returns and lacks nothing."""

from __future__ import annotations

import trio

from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Cut and heal the line under load, for seconds and for half a minute."""
    async with cluster.load("orders", pause_s=0.5) as load:
        for round_number in range(6):
            await load.more(5)
            cluster.cut("broker-a-0", "broker-a-1", one_way=round_number % 2 == 1)
            await trio.sleep(1 + 5 * round_number)
            cluster.heal()
            await trio.sleep(2)
    await cluster.assert_stores_equal()
    await cluster.assert_nothing_lost(load.sent)
