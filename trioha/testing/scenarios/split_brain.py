"""A master cut off with its clients, and another one promoted: nothing acknowledged is lost."""

from __future__ import annotations

import trio

from trioha.testing import TriohaCluster

LAYOUT = "three"


async def scenario(cluster: TriohaCluster) -> None:
    """Cut the master from its set and the name server, promote a slave, and heal."""
    old = cluster.broker("broker-a", 0)
    async with cluster.load("orders", pause_s=0.5) as load:
        await load.more(50)
        for other in ("broker-a-1", "broker-a-2", "namesrv", "operator"):
            cluster.cut(old, other)
        await trio.sleep(10)
        safe_before = len(load.safe)
        await cluster.fail_over(force=True)
        await load.more(50)
        cluster.heal()
        await trio.sleep(60)
    assert len(load.safe) > safe_before, await cluster.story()
    await cluster.assert_stores_equal()
    await cluster.assert_nothing_lost(load.safe)
