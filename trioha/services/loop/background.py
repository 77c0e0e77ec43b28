"""A nursery for tasks behind a user's block, which leaves the block's own exception alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_background_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks the user of the block knows nothing of.

    Errors: what the block raises comes out as it is; `except ValueError` around it works. This
    holds too while a scope around the nursery is cancelled: the tasks then end with `Cancelled`,
    which Trio raises again at the next checkpoint. Only a background task's failure comes in a
    group, as from any nursery.
    """
    raised: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as error:
                raised = error
                raise
    except BaseExceptionGroup as group:
        _, rest = group.split(trio.Cancelled)
        if raised is None or (rest is not None and not _is_only(rest, raised)):
            raise
    if raised is not None:
        raise raised


def _is_only(group: BaseExceptionGroup, raised: BaseException) -> bool:
    _, expected = BaseExceptionGroup("", [raised]).split(trio.Cancelled)
    return expected is not None and _same(group, expected)


def _same(found: BaseException, raised: BaseException) -> bool:
    """Return whether `found` is `raised`; a group comes out of a nursery as another object."""
    if isinstance(found, BaseExceptionGroup) and isinstance(raised, BaseExceptionGroup):
        return len(found.exceptions) == len(raised.exceptions) and all(
            map(_same, found.exceptions, raised.exceptions)
        )
    return found is raised
