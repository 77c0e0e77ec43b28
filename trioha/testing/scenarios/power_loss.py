"""The master loses power with messages that it had not flushed: its slave has them all."""

from __future__ import annotations

from trioha.testing import TriohaCluster

LAYOUT = "pair"


async def scenario(cluster: TriohaCluster) -> None:
    """Cut the power of the master under load, fail over, and let it return."""
    master = await cluster.master_of()
    async with cluster.load("orders") as load:
        await load.more(100)
        await master.power_loss()
        await cluster.fail_over(force=True)
        await load.more(50)
        await master.start()
        await load.more(50)
    await cluster.assert_stores_equal()
    await cluster.assert_nothing_lost(load.safe)
