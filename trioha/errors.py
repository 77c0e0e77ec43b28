"""Exceptions of trioha, sorted by the party that has to act."""

from __future__ import annotations


class TriohaError(Exception):
    """Anything that trioha raises on purpose. Its text is fit for a user: what, and the cure."""


class LocalProtocolError(TriohaError):
    """We used a machine wrongly: a bug of ours. It ends the node."""


class RemoteProtocolError(TriohaError):
    """A peer broke the protocol. Its connection closes; nothing else is disturbed."""


class CommandError(TriohaError):
    """A request is refused: becomes a response with this code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class ConfigError(TriohaError):
    """A setting is wrong; the text names the file, the line and the nearest right key."""


class StoreError(TriohaError):
    """The files on disk, or the disk itself, do not allow what was asked."""


class StoreLocked(StoreError):
    """Another process has this store open."""


class CommitLogCorrupted(StoreError):
    """Bytes before the durable end of the log are damaged."""


class DiskFull(StoreError):
    """No room for another record. Writes are refused until space returns; reads go on."""


class OffsetOutOfRange(StoreError):
    """The offset is below the first or beyond the last byte held."""


class Unreachable(TriohaError):
    """A node did not answer: refused, gone, or too slow."""


class OutcomeUnknown(TriohaError):
    """The answer did not come, or says so itself: it may or may not have happened."""
