"""The messages between members: one class of values for each kind.

Every message has a source, a target and a term. `message_codec.py` checks cluster and group when it
decodes a message, so the core never gets a stranger's. "You" is the target, "we" the source.
"""

from __future__ import annotations

import enum

import attrs

from trioha.dledger.membership import Configuration
from trioha.dledger.term_table import Row
from trioha.dledger.value import value
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


@value
class RaftMessage:
    source: str
    target: str
    term: int


@value
class VoteRequest(RaftMessage):
    """Request of a vote; with `is_pre` a question about the next term that changes no member."""

    is_pre: bool
    by_transfer: bool
    """The leader asked for this election, so a member that hears a leader may vote too."""
    log_term: int
    log_end: int


@value
class VoteResponse(RaftMessage):
    is_pre: bool
    granted: bool
    reason: str = ""
    """Reason of a denied vote, for people."""


@value
class StaleTerm(RaftMessage):
    """Answer to a leader of an older term: there is a newer one."""


@value
class Heartbeat(RaftMessage):
    committed_offset: int
    read_round: int
    sent_ms: int
    """The leader's clock. The answer repeats it: a lease counts from the heartbeat's sending."""


@value
class HeartbeatResponse(RaftMessage):
    read_round: int
    sent_ms: int
    matched_offset: int
    held_offset: int


@value
class Push(RaftMessage):
    sequence: int
    """Number of the push, from one leader to one follower; the answer repeats it."""


@value
class Compare(Push):
    """The leader's terms; the answer is the offset up to which both logs are the same."""

    begin_offset: int
    end_offset: int
    rows: tuple[Row, ...]


@value
class Truncate(Push):
    """Cut the log at `phy_offset`, where the leader's byte is of `conflict_term`."""

    phy_offset: int
    prev_term: int
    conflict_term: int


@value
class Append(Push):
    """Bytes of one term, from `prev_offset` on; without bytes it carries only the commit."""

    prev_offset: int
    prev_term: int
    entry_term: int
    committed_offset: int
    body: Buffer = attrs.field(repr=False)


@value
class Install(Push):
    """Our log has no byte of yours any more: empty your log and begin at `begin_offset`."""

    begin_offset: int
    rows: tuple[Row, ...]
    """The leader's terms; of the terms before `begin_offset` only the last."""
    end_offset: int
    configuration: tuple[int, Configuration]
    """The configuration that counted at `begin_offset`."""


@value
class PushResponse(RaftMessage):
    type: PushType
    sequence: int
    """Number of the answered push; 0 when the answer tells of an fsync."""
    status: PushStatus
    matched_offset: int
    """Our log is the leader's up to here."""
    held_offset: int
    """Our disk has the log up to here, at most `matched_offset`."""
    conflict: bool = False
    """Answer to a COMPARE: beyond `matched_offset` our bytes are of another term."""


@value
class TimeoutNow(RaftMessage):
    """Stand for election at once: you hold the leader's whole log (thesis 3.10)."""
