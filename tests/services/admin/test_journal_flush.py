"""The journal's buffer is written a fifth of a second after its first event, and not before."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from trioha.journal.file import FLUSH_INTERVAL_S, JournalFile, read_journal
from trioha.services.admin.journal_flush import serve_journal


async def test_events_are_written_together_within_the_interval(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    journal = JournalFile(tmp_path, "n", lambda: 0, bytes_max=1 << 20)
    journal.event("node_started")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_journal, journal)
        await trio.testing.wait_all_tasks_blocked()
        assert len(list(read_journal(tmp_path))) == 1  # what came before it was served
        for _ in range(3):
            journal.event("write_resumed")
        await trio.sleep(FLUSH_INTERVAL_S / 2)
        assert len(list(read_journal(tmp_path))) == 1
        await trio.sleep(FLUSH_INTERVAL_S)
        assert len(list(read_journal(tmp_path))) == 4
        # And again, after a long silence.
        await trio.sleep(3600)
        journal.event("write_resumed")
        await trio.sleep(2 * FLUSH_INTERVAL_S)
        assert len(list(read_journal(tmp_path))) == 5
        nursery.cancel_scope.cancel()
    journal.close()


async def test_events_of_other_threads_wake_it_too(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, "n", lambda: 0, bytes_max=1 << 20)
    written = trio.Event()
    flush = journal.flush_nowait

    def flush_and_tell() -> None:
        flush()
        if list(read_journal(tmp_path)):
            written.set()

    journal.flush_nowait = flush_and_tell  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_journal, journal)
        await trio.to_thread.run_sync(lambda: journal.event("flush_stalled", elapsed_ms=1))
        with trio.fail_after(60):
            await written.wait()
        nursery.cancel_scope.cancel()
    journal.close()
