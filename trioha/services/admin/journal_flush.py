"""Writes the journal's buffer out within a fifth of a second of its first event."""

from __future__ import annotations

import trio

from trioha.journal.file import FLUSH_INTERVAL_S, JournalFile


async def serve_journal(journal: JournalFile) -> None:
    """Flush whenever there is something, until cancelled. Sleeps while nothing happens."""
    token = trio.lowlevel.current_trio_token()
    dirty = trio.Event()
    # Recovery and flush report from their threads, where an Event may not be set.
    with journal.when_dirty(lambda: token.run_sync_soon(lambda: dirty.set(), idempotent=False)):
        journal.flush_nowait()  # what was recorded before we came
        while True:
            await dirty.wait()
            dirty = trio.Event()
            await trio.sleep(FLUSH_INTERVAL_S)
            journal.flush_nowait()
            for tell_nowait in tuple(journal.followers):
                tell_nowait()
