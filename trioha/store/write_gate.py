"""May anything be written now, and if not, why (RunningFlags, isOSPageCacheBusy's better half)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trioha.errors import DiskFull, StoreError
from trioha.journal import EventSink
from trioha.store.retention import DiskUsage
from trioha.store.store_config import StoreConfig

_RETRY_MS: Final = 1000
"""A full disk is asked again so often; the asking itself can take the disk milliseconds."""


class WriteGate:
    """`refusal` is what a refused put is told, or None.

    Lack of space ends by itself: the next look at the disk, or a put a second later, finds out. A
    failed disk and a closed store are final.
    """

    def __init__(self, config: StoreConfig, events: EventSink, probe: Callable[[], None]) -> None:
        self.refusal: str | None = None
        self._config = config
        self._events = events
        self._probe = probe
        self._final = False
        self._retry_at_ms: int | None = None
        """Set while a put had no space: when one may try again."""

    def failed(self, error: StoreError, wall_ms: int) -> None:
        """An append failed with `error`."""
        if isinstance(error, DiskFull):
            self._retry_at_ms = wall_ms + _RETRY_MS
        self._refuse(str(error))

    def has_resumed(self, wall_ms: int) -> bool:
        """Has space returned since a put met a full disk?"""
        if self._final or self._retry_at_ms is None or wall_ms < self._retry_at_ms:
            return False
        try:
            self._probe()
        except StoreError:
            self._retry_at_ms = wall_ms + _RETRY_MS
            return False
        self._resume()
        return True

    def judge(self, disk: DiskUsage, wall_ms: int) -> None:
        """The disk has been measured."""
        if self._final:
            return
        warning_ratio = self._config.disk_warning_ratio
        if disk.ratio >= warning_ratio:
            self._retry_at_ms = None
            self._refuse(
                f"the disk is {disk.ratio:.0%} full, over diskSpaceWarningLevelRatio "
                f"{warning_ratio:.0%}"
            )
        elif self.refusal is not None:
            self._retry_at_ms = wall_ms
            self.has_resumed(wall_ms)

    def shut(self, reason: str) -> None:
        """Nothing is written any more. Thread-safe."""
        self._final = True
        self.refusal = reason

    def _refuse(self, reason: str) -> None:
        if self._final:
            return
        if self.refusal is None:
            self._events.event("write_refused", reason=reason)
        self.refusal = reason

    def _resume(self) -> None:
        self.refusal = None
        self._retry_at_ms = None
        self._events.event("write_resumed", reason="space has returned")
