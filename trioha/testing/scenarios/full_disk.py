"""The disk of the master is full for a minute: sends are rejected meanwhile, and none is lost."""

from __future__ import annotations

import trio

from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Fill the disk, wait a minute, make room."""
    events = cluster.events()
    async with cluster.load("orders", pause_s=0.2) as load:
        await load.more(50)
        cluster.broker().disk_full()
        await events.wait_for("write_refused", node="broker-a-0")
        stored = len(load.sent)
        await trio.sleep(60)
        assert len(load.sent) <= stored + 4, await cluster.story()
        cluster.broker().disk_full(False)
        await load.more(50)
    await cluster.assert_stores_equal()
    await cluster.assert_nothing_lost(load.sent)
