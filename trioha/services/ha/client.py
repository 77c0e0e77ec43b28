"""Slave's side of replication on Trio: finds its master and follows it, link after link (HAClient).

Each link comes after a handshake (`services.ha.handshake`), which makes our log one that the
master's continues; a master of the classic kind is followed without.

A link that ends is tried again after `haReconnectInterval`. When the master turned us away, or our
own disk did, the pause doubles up to half a minute: trying faster cures neither, and would flood
both journals (fault C1).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import attrs
import trio

from trioha.errors import TriohaError, Unreachable
from trioha.ha.events import Term
from trioha.services.ha.client_link import LINK_READ_BYTES_MAX, HaClientLink, SlaveContext
from trioha.services.ha.client_link_tasks import follow_master
from trioha.services.ha.handshake import Handshake
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import wake_time_s
from trioha.services.loop.transport import Connect, Transport, connect, parse_address

CONNECT_PATIENCE_S = 5.0
PAUSE_MAX_MS = 30_000
_DOUBLINGS_MAX = 16

connect_link = partial(connect, read_bytes_max=LINK_READ_BYTES_MAX)


class SlaveState(Enum):
    NO_MASTER = "NO_MASTER"
    """The master's address is not known yet, from configuration or registration."""
    ASKING = "ASKING"
    """The handshake is in progress, or the cut that it needs."""
    RESYNCING = "RESYNCING"
    """The log is being set aside, to copy the master's anew."""
    CONNECTING = "CONNECTING"
    HANDSHAKE = "HANDSHAKE"
    """Connected; the master has not yet accepted us by a frame that fits."""
    TRANSFER = "TRANSFER"
    SUSPENDED = "SUSPENDED"
    """This node follows no master for now; `last_error` says why."""
    PAUSED = "PAUSED"
    """The last attempt failed; `last_error` says how."""


@attrs.frozen
class SlaveStatistics:
    """The slave's end of the link as `ha status` shows it."""

    master: str
    state: str
    last_read_age_s: float | None
    """Seconds since the last read; None until the first one."""
    gap_bytes: int | None
    """Bytes that the newest frame announced and this node lacks; None without a master."""
    reconnects: int
    last_error: str
    """Reason why the last link or attempt ended; it stays until the next one ends."""
    last_error_age_s: float | None
    epoch: int = 0
    """Epoch of an extended link; 0 for a classic one and without a link."""
    needs_resync: bool = False
    """An operator has to decide how the slave goes on."""
    holds_more: bool = False
    """`trioha ha resync` is not the way: this log goes further than the master's."""


class HaClient:
    """A slave's link to its master, one after the other, and its state."""

    def __init__(
        self,
        context: SlaveContext,
        master_address: MasterAddress,
        *,
        handshake: Handshake | None = None,
        on_failed: Callable[[], None] = lambda: None,
        connect_to: Connect = connect_link,
    ) -> None:
        """`on_failed` is called when the master cannot be followed, once for each new reason.

        Without a `handshake` every link is a classic one.
        """
        self._on_failed = on_failed
        self._handshake = handshake
        if handshake is not None:
            # It outlives roles; a suspension ends with the client that was told of it.
            handshake.suspended = ""
        self._context = context
        self._master_address = master_address
        self._store = context.store
        self._config = context.config
        self._events = context.events
        self._clock = context.clock
        self._connect_to = connect_to
        self._state = SlaveState.NO_MASTER
        self._link: HaClientLink | None = None
        self._attempts = 0
        self._last_read_ms: int | None = None
        self._last_error = ""
        self._last_error_ms: int | None = None
        self._suspended = ""
        self._resumed = trio.Event()
        self._resumed.set()
        self._resync_wanted = False
        self._again = trio.Event()

    def suspend(self, reason: str) -> None:
        """Follow no master until `resume`. From this pass on nothing is acknowledged."""
        self._suspended = reason
        if self._handshake is not None:
            self._handshake.suspended = reason
        if self._resumed.is_set():
            self._resumed = trio.Event()
        if self._link is not None:
            self._link.end_nowait(reason)

    def resume(self) -> None:
        """Follow again."""
        self._suspended = ""
        if self._handshake is not None:
            self._handshake.suspended = ""
        self._resumed.set()

    def follow_anew(self, reason: str) -> None:
        """End the link, and ask again which master may be followed."""
        self._again.set()
        if self._link is not None:
            self._link.end_nowait(reason)

    def hurry(self) -> None:
        """Try the master without a pause: now, or when the attempt or link in progress ends."""
        self._again.set()

    def refuse_nowait(self, reason: str) -> None:
        """End the link because of what the master has sent; the next attempt waits longer."""
        if self._link is not None:
            self._link.refuse_nowait(reason)
        self._fail(reason)

    def resync(self) -> None:
        """Give up our log for the master's, now: `Handshake.start_anew`."""
        self._resync_wanted = True
        self._again.set()
        if self._link is not None:
            self._link.end_nowait("an operator wants the log copied anew")

    def holds_more(self) -> bool:
        """Is this log the one to keep? The log of a node that follows a master is never longer."""
        if self._handshake is None or (self._link is not None and self._link.heard):
            return False
        return self._handshake.holds_more()

    @property
    def catching_up(self) -> bool:
        """True while reads come back full: dispatching leaves the processor to replication then."""
        return self._link is not None and self._link.catching_up

    @property
    def metadata_position(self) -> int:
        """Master's position of the last metadata taken; -1 while the master sends none."""
        return self._link.metadata_position if self._link is not None else -1

    def statistics(self) -> SlaveStatistics:
        state, link, last_read_ms = self._state, self._link, self._last_read_ms
        if link is not None:
            state = SlaveState.TRANSFER if link.heard else SlaveState.HANDSHAKE
            last_read_ms = last_read_ms if link.last_read_ms is None else link.last_read_ms
        return SlaveStatistics(
            master=self._master_address.value,
            state=state.value,
            last_read_age_s=self._age_s(last_read_ms),
            gap_bytes=link.gap_bytes if link is not None and link.heard else None,
            reconnects=max(0, self._attempts - 1),
            last_error=self._last_error,
            last_error_age_s=self._age_s(self._last_error_ms),
            epoch=link.epoch if link is not None else 0,
            needs_resync=self._handshake is not None and bool(self._handshake.needs_resync),
            holds_more=self.holds_more(),
        )

    async def run(self) -> None:
        """Follow the present master; a new address ends the link to the old master."""
        while True:
            self._state = SlaveState.NO_MASTER
            address = await self._master_address.wait_known()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, address, name=f"ha.client[{address}]")
                await self._master_address.wait_changed(address)
                nursery.cancel_scope.cancel()

    async def _follow(self, address: str) -> None:
        """Connect to one master again and again, with pauses between."""
        interval_ms = self._config.ha_reconnect_interval
        turned_away = 0
        while True:
            if self._suspended:
                self._state = SlaveState.SUSPENDED
                self._fail(self._suspended)
                await self._resumed.wait()
            # Before the attempt: a master may name itself after it was asked and was none.
            self._again = trio.Event()
            turned_away = turned_away + 1 if await self._attempt(address) else 0
            if self._suspended or self._resync_wanted:
                continue
            pause_ms = interval_ms << min(max(0, turned_away - 1), _DOUBLINGS_MAX)
            self._state = SlaveState.PAUSED
            until_ms = self._clock.now_ms() + max(interval_ms, min(pause_ms, PAUSE_MAX_MS))
            with trio.move_on_at(wake_time_s(until_ms)):
                await self._again.wait()

    async def _attempt(self, address: str) -> bool:
        """Make one handshake and one link; return True if trying again soon would be no use."""
        term: Term | None = None
        if self._handshake is not None:
            try:
                if self._resync_wanted:
                    self._state, self._resync_wanted = SlaveState.RESYNCING, False
                    await self._handshake.start_anew()
                self._state = SlaveState.ASKING
                term = await self._handshake.shake()
            except Unreachable as error:
                self._tell_failure(address, str(error))
                return False
            except TriohaError as error:
                self._tell_failure(address, str(error), refused=True)
                return True
        transport = await self._connect(address)
        if transport is not None and (self._suspended or self._is_outdated(term)):
            transport.close()
            return False
        return transport is not None and await self._serve_link(transport, address, term)

    def _is_outdated(self, term: Term | None) -> bool:
        """Was a newer term promised or heard of since the handshake?"""
        return self._handshake is not None and not self._handshake.may_follow(term)

    async def _connect(self, address: str) -> Transport | None:
        self._state = SlaveState.CONNECTING
        self._attempts += 1
        reason = f"cannot connect to {address} within {CONNECT_PATIENCE_S:g} s"
        with trio.move_on_after(CONNECT_PATIENCE_S):
            try:
                return await self._connect_to(*parse_address(address))
            except (OSError, TriohaError) as error:
                reason = f"cannot connect to {address}: {error}"
        self._tell_failure(address, reason)
        return None

    async def _serve_link(self, transport: Transport, address: str, term: Term | None) -> bool:
        """Follow over this connection; True if trying again soon would be no use."""
        link = HaClientLink(
            self._context,
            transport,
            term=term,
            home_id=self._handshake.home_id if self._handshake is not None else 0,
        )
        self._link = link
        try:
            await follow_master(link)
        finally:
            transport.close()
            self._link = None
            if link.last_read_ms is not None:
                self._last_read_ms = link.last_read_ms
            self._fail(link.reason or "this node stops following")
            self._events.event(
                "ha_refused" if link.refused else "ha_disconnected",
                peer=address,
                reason=self._last_error,
            )
        return link.refused or link.store_failed

    def _tell_failure(self, address: str, reason: str, *, refused: bool = False) -> None:
        """Note that an attempt failed before there was a link."""
        if reason != self._last_error:  # a master may be away for hours: one line is enough
            self._events.event(
                "ha_refused" if refused else "ha_disconnected", peer=address, reason=reason
            )
            self._on_failed()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._last_error = reason
        self._last_error_ms = self._clock.now_ms()

    def _age_s(self, at_ms: int | None) -> float | None:
        return None if at_ms is None else (self._clock.now_ms() - at_ms) / 1000
