"""The links of a node in its present role: to its slaves, or to its master."""

from __future__ import annotations

import trio

from trioha.services.ha.client import HaClient
from trioha.services.ha.master import HaMaster
from trioha.services.ha.slave_synchronize import SlaveSynchronizer


class RoleLinks:
    """Links in the nursery of one role, from one role to the next (`services.ha.role`)."""

    def __init__(self) -> None:
        self.master: HaMaster | None = None
        self.client: HaClient | None = None
        self.synchronizer: SlaveSynchronizer | None = None
        self._scope = trio.CancelScope()

    def lead(self, scope: trio.CancelScope, master: HaMaster) -> None:
        """Note the links of a master; `scope` is that of their nursery."""
        self._scope, self.master = scope, master

    def follow(
        self, scope: trio.CancelScope, client: HaClient, synchronizer: SlaveSynchronizer
    ) -> None:
        """Note the links of a slave; `scope` is that of their nursery."""
        self._scope, self.client, self.synchronizer = scope, client, synchronizer

    def change(self) -> None:
        """End the links; those of the next role begin after it."""
        self._scope.cancel()

    def ended(self) -> None:
        self.master = self.client = self.synchronizer = None

    def end_to_slaves(self, reason: str) -> None:
        """Count no acknowledgement from this pass on."""
        if self.master is not None:
            self.master.end_nowait(f"not master any more: {reason}")
            self.master = None

    # A slave's link; without a link these calls do nothing.

    def hurry(self) -> None:
        if self.client is not None:
            self.client.hurry()

    def follow_anew(self, reason: str) -> None:
        if self.client is not None:
            self.client.follow_anew(reason)

    def suspend(self, reason: str) -> None:
        if self.client is not None:
            self.client.suspend(reason)

    def resume(self) -> None:
        if self.client is not None:
            self.client.resume()
