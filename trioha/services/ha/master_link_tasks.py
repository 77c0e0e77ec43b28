"""The tasks of one slave's connection on its master: one reads, one writes.

What they share, and what is called for each message, is in `master_link`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trioha.errors import OffsetOutOfRange, RemoteProtocolError
from trioha.services.ha.master_link import HaMasterLink
from trioha.services.loop.clock import wake_time_s

PROOF_PATIENCE_S = 5.0  # an honest slave answers the challenge at once
_LAST_WORDS_PATIENCE_S = 1.0


async def serve_link(link: HaMasterLink, opening: bytes) -> None:
    """Serve the slave; `opening` is what the master says first, if anything.

    Errors: none that a peer or a network can cause; `reason` tells those.
    """
    async with trio.open_nursery() as nursery:
        link.scope = nursery.cancel_scope
        now_s = trio.current_time()
        patience_s = PROOF_PATIENCE_S if opening else link.owner.housekeeping_s
        nursery.cancel_scope.deadline = now_s + min(patience_s, link.owner.housekeeping_s)
        nursery.start_soon(_run, link, _read, link, name=f"ha.read[{link.peer}]")
        nursery.start_soon(_run, link, _write, link, opening, name=f"ha.write[{link.peer}]")
    if nursery.cancel_scope.cancelled_caught and not link.reason:
        link.reason = _silence(link)


async def _run(link: HaMasterLink, half: Callable[..., Awaitable[str]], *args: object) -> None:
    """Run one half; when it ends, the link ends."""
    try:
        reason = await half(*args)
    except RemoteProtocolError as error:
        link.refused = True
        reason = str(error)
    except OffsetOutOfRange as error:
        link.refused = True
        reason = f"{error}: retention has overtaken the slave; empty its store to copy anew"
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        reason = str(error) or "connection lost"
    link.end_nowait(reason)


async def _read(link: HaMasterLink) -> str:
    try:
        await link.transport.receive_each(link.take)
    except RemoteProtocolError:
        if link.connection.last_words:
            # The write task has not begun. The slave's own journal then has both numbers.
            with trio.move_on_after(_LAST_WORDS_PATIENCE_S):
                await link.transport.send_all([link.connection.last_words])
        raise
    return "the slave closed the link"


async def _write(link: HaMasterLink, opening: bytes) -> str:
    if opening:
        await link.transport.send_all([opening])
    await link.first_report.wait()
    connection, clock = link.connection, link.owner.clock
    while True:
        more = True
        while more:
            if not await _send_unsent(link):
                return f"it has read nothing for {link.owner.housekeeping_s:g} s"
            more = link.ship(clock.now_ms()) or bool(link.unsent)
            if more:
                await trio.lowlevel.checkpoint()
        assert connection.next_deadline_ms is not None, "a slave that reported has no heartbeat"
        if clock.now_ms() < connection.next_deadline_ms:
            # Nothing awaits between the last look at the log and here.
            link.wake = trio.Event()
            link.idle = True
            with trio.move_on_at(wake_time_s(connection.next_deadline_ms)):
                await link.wake.wait()
            link.idle = False
        if clock.now_ms() >= connection.next_deadline_ms and not link.unsent:
            link.unsent = link.transport.try_send([connection.send_heartbeat(clock.now_ms())])


async def _send_unsent(link: HaMasterLink) -> bool:
    """Wait until the kernel has taken all; False when it took nothing for too long."""
    while link.unsent:
        with trio.move_on_after(link.owner.housekeeping_s) as patience:
            link.unsent = await link.transport.send_some(link.unsent)
        if patience.cancelled_caught:
            link.unsent = []
            return False
    return True


def _silence(link: HaMasterLink) -> str:
    if not link.connection.authenticated:
        link.refused = True
        return (
            f"no answer to the challenge within {PROOF_PATIENCE_S:g} s; give the slave our "
            "haSecret, or name its network in haAllowedPeers"
        )
    return f"the slave said nothing for {link.owner.housekeeping_s:g} s"
