"""Journals written by hand, on disk as nodes write them, and an engine over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trioha.analysis.engine import Window
from trioha.analysis.inputs import open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.journal import EVENTS
from trioha.journal.file import JournalFile

BEGIN_MS = 1_763_640_000_000


class Diary:
    """One store's journal. Times are seconds after `BEGIN_MS`."""

    def __init__(self, root: Path, node: str) -> None:
        self.directory = root / "journal"
        self.now_s = 0.0
        self._node = node
        self._file: JournalFile | None = None

    def start(
        self,
        at_s: float,
        role: str,
        node: str = "",
        *,
        ha_listen: str = "127.0.0.1:10912",
        ready_after_s: float = 1.0,
    ) -> None:
        """The node begins, perhaps under another name, and serves a second later."""
        self._node = node or self._node
        self._reopen()
        self.tell(at_s, "node_started", node=self._node, version="0", pid=1)
        if role:
            self.tell(
                at_s,
                "role",
                role=role,
                broker_id=int(self._node.rpartition(":")[2]),
                heartbeat_interval_ms=5000,
                heartbeat_limit_ms=20_000,
            )
        ready = {"listen": "127.0.0.1:10911", "ha_listen": ha_listen, "vip_listen": ""}
        self.tell(at_s + ready_after_s, "node_ready", **ready, elapsed_ms=1000)

    def stop(self, at_s: float, reason: str = "stopped in order") -> None:
        self.tell(at_s - 0.5, "node_stopping", reason="asked to")
        self.tell(at_s, "node_stopped", reason=reason)

    def tell(self, at_s: float, name: str, **fields: object) -> None:
        """One event; its name and fields must be documented ones, or those of a later version."""
        assert name not in EVENTS or set(fields) <= set(EVENTS[name].fields), (name, fields)
        if self._file is None:
            self._reopen()
        assert self._file is not None
        self.now_s = at_s
        self._file.event(name, **fields)
        self._file.flush_nowait()

    def progress(self, at_s: float, peer: str, ack: int, end: int) -> None:
        fields = {"ack_offset": ack, "max_phy_offset": end, "gap_bytes": end - ack}
        self.tell(at_s, "ha_progress", peer=peer, **fields)

    def alive(self, at_s: float, role: str, end: int = 0, refused: int = 0) -> None:
        self.tell(
            at_s,
            "broker_progress",
            role=role,
            max_phy_offset=end,
            put_total=0,
            get_total=0,
            refused_total=refused,
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _reopen(self) -> None:
        self.close()
        self._file = JournalFile(
            self.directory, self._node, lambda: at(self.now_s), bytes_max=1 << 20
        )


def at(seconds: float) -> int:
    return BEGIN_MS + round(seconds * 1000)


@contextmanager
def engine_over(
    *diaries: Diary, stores: tuple[Path, ...] = (), window: Window | None = None
) -> Iterator[LocalEngine]:
    """The local engine over what was written so far."""
    for diary in diaries:
        diary.close()
    journals = [str(diary.directory) for diary in diaries]
    inputs = open_inputs([str(store) for store in stores], journals, window)
    with LocalEngine(inputs) as engine:
        yield engine
