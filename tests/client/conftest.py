"""A cluster in memory for the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.fakes.cluster import FakeBroker, FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with trio.open_nursery() as nursery:
        yield FakeCluster(nursery)
        nursery.cancel_scope.cancel()


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    """The master of the one replica set most tests need."""
    return cluster.add_broker()
