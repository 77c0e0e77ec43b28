"""Looks at the disk: old segments go, writes stop before it is full and resume after."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.config import BrokerConfig
from trioha.services.loop.clock import Clock
from trioha.store.interface import MessageStore


async def watch_disk(
    store: MessageStore, config: BrokerConfig, clock: Clock, on_looked: Callable[[], None]
) -> None:
    """Look every `cleanResourceInterval`: disks fill behind our back and send no event."""
    while True:
        await trio.sleep(config.clean_resource_interval / 1000)
        store.check_disk(clock.wall_ms())
        on_looked()
