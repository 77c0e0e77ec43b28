"""Prepares a node's log and queues for a term, after the links of the old role have ended."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.errors import CommitLogCorrupted, DiskFull
from trioha.ha.role_effects import BeginTerm, CutHalfRecord, Dispatch, FlushLog
from trioha.remoting.outboxes import Outboxes
from trioha.services.node.log_flush import LogFlush
from trioha.store.message_store import FileMessageStore

PreparingEffect = Dispatch | CutHalfRecord | FlushLog | BeginTerm
_SLICE_BYTES = 262_144


class TermPreparation:
    """The effects that a promotion carries out between two roles, in the order of `add`."""

    def __init__(
        self,
        store: FileMessageStore,
        flush: LogFlush,
        outboxes: Outboxes,
        on_dispatched: Callable[[], None],
    ) -> None:
        self._store = store
        self._flush = flush
        self._outboxes = outboxes
        self._on_dispatched = on_dispatched
        self._effects: list[PreparingEffect] = []

    def add(self, effect: PreparingEffect) -> None:
        self._effects.append(effect)

    async def run(self, begin: Callable[[str], None]) -> None:
        """Carry out what was added; `begin` gets "", or why the log cannot be made ready."""
        added, self._effects = self._effects, []
        reason = ""
        for effect in added:
            if isinstance(effect, BeginTerm):
                with self._outboxes.batch():
                    begin(reason)
            elif not reason:
                reason = await self._prepare(effect)

    async def _prepare(self, effect: PreparingEffect) -> str:
        store = self._store
        try:
            if isinstance(effect, Dispatch):
                while store.dispatch(_SLICE_BYTES):
                    await trio.lowlevel.checkpoint()
            elif isinstance(effect, CutHalfRecord):
                if store.dispatched_offset < store.max_phy_offset:
                    store.truncate_log(store.dispatched_offset)
                self._on_dispatched()
            else:
                await self._flush.flush_log()
        except DiskFull as error:
            return f"no room to bring the queues up to the log: {error}"
        except CommitLogCorrupted as error:
            return str(error)
        return ""
