"""Watches a slave catch up with its master's log."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from trioha.client.admin import Admin

_LOOK_EVERY_S = 0.01
_TELL_EVERY_S = 1.0


@attrs.frozen(kw_only=True)
class CatchUpReport:
    """Result of an empty slave's catch-up to its master's end."""

    log_bytes: int
    to_first_byte_s: float
    """Seconds from the slave's ready line to the first byte seen in its log."""
    transfer_s: float
    """Seconds from that first byte to the master's end."""
    mb_per_s: float
    """Rate over the transfer; 1 MB is a million bytes."""


async def watch_catch_up(
    admin: Admin,
    slave: str,
    master_end: int,
    ready_s: float,
    progress: Callable[[float, int], None],
) -> CatchUpReport:
    """Watch until the slave's log ends where the master's does. The caller owns patience.

    `ready_s` is when the slave said it was ready, on Trio's clock. Not ideal: the slave is asked
    every 10 ms; a Java slave has nothing better to offer.
    Errors: Unreachable, CommandError.
    """
    first_s = 0.0
    begin = 0
    told_s = ready_s
    while True:
        end = await admin.log_end(slave)
        now_s = trio.current_time()
        if end and not first_s:
            first_s, begin = now_s, end
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            progress(now_s - ready_s, end)
        if end >= master_end:
            break
        await trio.sleep(_LOOK_EVERY_S)
    # The whole log in one look: the time since the look before is all that is known.
    transfer_s = now_s - first_s or _LOOK_EVERY_S
    moved = (end - begin) or end
    return CatchUpReport(
        log_bytes=end,
        to_first_byte_s=round(first_s - ready_s, 3),
        transfer_s=round(transfer_s, 3),
        mb_per_s=round(moved / transfer_s / 1e6, 1),
    )
