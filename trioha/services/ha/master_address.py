"""The address of a slave's master, from the configuration or from a registration."""

from __future__ import annotations

import trio


class MasterAddress:
    """An address that may not be known yet and may change. `host:port`, or "" while unknown."""

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._changed = trio.Event()

    @property
    def value(self) -> str:
        return self._address

    def set(self, address: str) -> None:
        """Name the master; the same address again disturbs nothing."""
        if address != self._address:
            self._address = address
            self._changed.set()
            self._changed = trio.Event()

    async def wait_known(self) -> str:
        """Wait until there is an address."""
        while not self._address:
            await self._changed.wait()
        return self._address

    async def wait_changed(self, address: str) -> None:
        """Wait until the address is another than `address`."""
        while self._address == address:
            await self._changed.wait()
