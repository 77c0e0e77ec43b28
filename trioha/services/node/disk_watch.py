"""Looks at the disk: old segments go, writes stop before it is full and resume after."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.config import BrokerConfig


async def watch_disk(
    check_disk: Callable[[], object], config: BrokerConfig, on_looked: Callable[[], None]
) -> None:
    """Look every `cleanResourceInterval`: disks fill behind our back and send no event."""
    while True:
        await trio.sleep(config.clean_resource_interval / 1000)
        check_disk()
        on_looked()
