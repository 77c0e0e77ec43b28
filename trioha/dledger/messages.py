"""The messages between members: one class of values for each kind.

Every message has a source, a target and a term. `message_codec.py` checks cluster and group when it
decodes a message, so the core never gets a stranger's. "You" is the target, "we" the source.

The classes are written out. A message that is sent alone makes two of these objects on each member,
and what attrs would generate runs interpreted, in a build whose other code is compiled.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from trioha.dledger.membership import Configuration
from trioha.dledger.term_table import Row
from trioha.wire.remoting_command import Buffer


class PushType(enum.IntEnum):
    """Kind of push, with DLedger's names (PushEntryRequest.Type)."""

    COMPARE = 1
    TRUNCATE = 2
    APPEND = 3
    COMMIT = 4
    INSTALL_SNAPSHOT = 5


class PushStatus(enum.IntEnum):
    """A follower's answer to a push."""

    SUCCESS = 1
    GAP = 2
    """Our log ends before the bytes begin: a push was lost or overtaken."""
    INCONSISTENT_STATE = 3
    """Our log differs there: send a COMPARE again."""
    BELOW_BEGIN = 4
    """Answer to a COMPARE: our logs are the same only before your first byte; install."""


class RaftMessage:
    """A message. It is never changed once it is made."""

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """Names of what a message of this kind has behind source, target and term, in their order."""

    def __init__(self, source: str, target: str, term: int) -> None:
        self.source = source
        self.target = target
        self.term = term

    def values(self) -> tuple[object, ...]:
        """Return all of the message: source, target, term and `FIELDS`."""
        names = ("source", "target", "term", *self.FIELDS)
        return tuple([getattr(self, name) for name in names])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RaftMessage)
            and type(other) is type(self)
            and other.values() == self.values()
        )

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        names = ("source", "target", "term", *self.FIELDS)
        told = [
            f"{name}={value!r}"
            for name, value in zip(names, self.values(), strict=True)
            if name != "body"
        ]
        return f"{type(self).__name__}({', '.join(told)})"


class VoteRequest(RaftMessage):
    """Request of a vote; with `is_pre` a question about the next term that changes no member."""

    FIELDS: ClassVar[tuple[str, ...]] = ("is_pre", "by_transfer", "log_term", "log_end")

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        is_pre: bool,
        by_transfer: bool,
        log_term: int,
        log_end: int,
    ) -> None:
        super().__init__(source, target, term)
        self.is_pre = is_pre
        self.by_transfer = by_transfer
        """The leader asked for this election, so a member that hears a leader may vote too."""
        self.log_term = log_term
        self.log_end = log_end


class VoteResponse(RaftMessage):
    FIELDS: ClassVar[tuple[str, ...]] = ("is_pre", "granted", "reason")

    def __init__(
        self, source: str, target: str, term: int, is_pre: bool, granted: bool, reason: str = ""
    ) -> None:
        super().__init__(source, target, term)
        self.is_pre = is_pre
        self.granted = granted
        self.reason = reason
        """Reason of a denied vote, for people."""


class StaleTerm(RaftMessage):
    """Answer to a leader of an older term: there is a newer one."""


class Heartbeat(RaftMessage):
    FIELDS: ClassVar[tuple[str, ...]] = ("committed_offset", "read_round", "sent_ms")

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        committed_offset: int,
        read_round: int,
        sent_ms: int,
    ) -> None:
        super().__init__(source, target, term)
        self.committed_offset = committed_offset
        self.read_round = read_round
        self.sent_ms = sent_ms
        """The leader's clock. The answer repeats it: a lease counts from the heartbeat's sending.
        """


class HeartbeatResponse(RaftMessage):
    FIELDS: ClassVar[tuple[str, ...]] = ("read_round", "sent_ms", "matched_offset", "held_offset")

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        read_round: int,
        sent_ms: int,
        matched_offset: int,
        held_offset: int,
    ) -> None:
        super().__init__(source, target, term)
        self.read_round = read_round
        self.sent_ms = sent_ms
        self.matched_offset = matched_offset
        self.held_offset = held_offset


class Push(RaftMessage):
    FIELDS: ClassVar[tuple[str, ...]] = ("sequence",)

    def __init__(self, source: str, target: str, term: int, sequence: int) -> None:
        super().__init__(source, target, term)
        self.sequence = sequence
        """Number of the push, from one leader to one follower; the answer repeats it."""


class Compare(Push):
    """The leader's terms; the answer is the offset up to which both logs are the same."""

    FIELDS: ClassVar[tuple[str, ...]] = ("sequence", "begin_offset", "end_offset", "rows")

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        sequence: int,
        begin_offset: int,
        end_offset: int,
        rows: tuple[Row, ...],
    ) -> None:
        super().__init__(source, target, term, sequence)
        self.begin_offset = begin_offset
        self.end_offset = end_offset
        self.rows = rows


class Truncate(Push):
    """Cut the log at `phy_offset`, where the leader's byte is of `conflict_term`."""

    FIELDS: ClassVar[tuple[str, ...]] = ("sequence", "phy_offset", "prev_term", "conflict_term")

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        sequence: int,
        phy_offset: int,
        prev_term: int,
        conflict_term: int,
    ) -> None:
        super().__init__(source, target, term, sequence)
        self.phy_offset = phy_offset
        self.prev_term = prev_term
        self.conflict_term = conflict_term


class Append(Push):
    """Bytes of one term, from `prev_offset` on; without bytes it carries only the commit."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "sequence",
        "prev_offset",
        "prev_term",
        "entry_term",
        "committed_offset",
        "body",
    )

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        sequence: int,
        prev_offset: int,
        prev_term: int,
        entry_term: int,
        committed_offset: int,
        body: Buffer,
    ) -> None:
        super().__init__(source, target, term, sequence)
        self.prev_offset = prev_offset
        self.prev_term = prev_term
        self.entry_term = entry_term
        self.committed_offset = committed_offset
        self.body = body


class Install(Push):
    """Our log has no byte of yours any more: empty your log and begin at `begin_offset`."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "sequence",
        "begin_offset",
        "rows",
        "end_offset",
        "configuration",
    )

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        sequence: int,
        begin_offset: int,
        rows: tuple[Row, ...],
        end_offset: int,
        configuration: tuple[int, Configuration],
    ) -> None:
        super().__init__(source, target, term, sequence)
        self.begin_offset = begin_offset
        self.rows = rows
        """The leader's terms; of the terms before `begin_offset` only the last."""
        self.end_offset = end_offset
        self.configuration = configuration
        """The configuration that counted at `begin_offset`."""


class PushResponse(RaftMessage):
    FIELDS: ClassVar[tuple[str, ...]] = (
        "type",
        "sequence",
        "status",
        "matched_offset",
        "held_offset",
        "conflict",
    )

    def __init__(
        self,
        source: str,
        target: str,
        term: int,
        type: PushType,
        sequence: int,
        status: PushStatus,
        matched_offset: int,
        held_offset: int,
        conflict: bool = False,
    ) -> None:
        super().__init__(source, target, term)
        self.type = type
        self.sequence = sequence
        """Number of the answered push; 0 when the answer tells of an fsync."""
        self.status = status
        self.matched_offset = matched_offset
        """Our log is the leader's up to here."""
        self.held_offset = held_offset
        """Our disk has the log up to here, at most `matched_offset`."""
        self.conflict = conflict
        """Answer to a COMPARE: beyond `matched_offset` our bytes are of another term."""


class TimeoutNow(RaftMessage):
    """Stand for election at once: you hold the leader's whole log (thesis 3.10)."""
