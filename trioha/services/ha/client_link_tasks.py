"""The tasks of a slave's connection to its master: one reads, one reports when nothing arrives.

What they share, and what is called for each read, is in `client_link`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trioha.errors import RemoteProtocolError, StoreError
from trioha.services.ha.client_link import HaClientLink
from trioha.services.loop.clock import sleep_until_ms


async def follow_master(link: HaClientLink) -> None:
    """Follow the master.

    Errors: none that a peer, a network or a full disk can cause; `reason` tells those.
    """
    try:
        async with trio.open_nursery() as nursery:
            link.scope = nursery.cancel_scope
            nursery.cancel_scope.deadline = trio.current_time() + link.housekeeping_s
            nursery.start_soon(_run, link, _read, name=f"ha.read[{link.peer}]")
            nursery.start_soon(_run, link, _report_on_time, name=f"ha.report[{link.peer}]")
    finally:
        # The journal would lack the bytes that came since the last sample.
        link.tell_progress(link.clock.now_ms())
    if nursery.cancel_scope.cancelled_caught and not link.reason:
        link.reason = f"the master said nothing for {link.housekeeping_s:g} s"


async def _run(link: HaClientLink, half: Callable[[HaClientLink], Awaitable[str]]) -> None:
    """Run one half; when it ends, the link ends."""
    try:
        reason = await half(link)
    except RemoteProtocolError as error:
        link.refused = True
        reason = str(error)
    except StoreError as error:
        # No ack any more: the master has to lose this slave rather than wait for it (fault C8).
        link.store_failed = True
        reason = f"our own log takes no more: {error}"
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        reason = link.broken_off(str(error) or "connection lost")
    link.reason = link.reason or reason
    if link.scope is not None:
        link.scope.cancel()


async def _read(link: HaClientLink) -> str:
    while await link.transport.receive_each(link.take) and not link.ended:
        await _send_rest(link)
    if not link.heard:
        link.refused = True
        return (
            f"the master hung up on our report of offset {link.connection.max_phy_offset}: "
            "perhaps its log ends before, or begins behind it; compare with `trioha log diff`; "
            "its journal, or a Java master's store.log, says why"
        )
    return link.broken_off("the master closed the link")


async def _send_rest(link: HaClientLink) -> None:
    """Send what the kernel did not take of a report, and what has become due meanwhile."""
    is_behind = bool(link.rest)
    while is_behind:
        await link.transport.send_all(link.rest)
        link.rest = []
        is_behind = not link.report(link.clock.now_ms())


async def _report_on_time(link: HaClientLink) -> str:
    while True:
        now_ms = link.clock.now_ms()
        if not link.report(now_ms):
            await _send_rest(link)
        link.notice_silence(now_ms)
        await sleep_until_ms(max(link.connection.next_deadline_ms, now_ms + 1))
