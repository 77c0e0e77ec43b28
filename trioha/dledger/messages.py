"""What members say to each other: one frozen class each.

Every message has a source, a target and a term. Cluster and group are checked where bytes become
messages (`message_codec.py`), so a machine never sees a stranger's.
"""

from __future__ import annotations

import enum

import attrs

from trioha.dledger.membership import Configuration
from trioha.dledger.term_table import Row
from trioha.wire.remoting_command import Buffer


class PushType(enum.IntEnum):
    """DLedger's names of what a leader pushes."""

    COMPARE = 1
    TRUNCATE = 2
    APPEND = 3
    COMMIT = 4
    INSTALL_SNAPSHOT = 5


class PushStatus(enum.IntEnum):
    """A follower's answer to a push."""

    SUCCESS = 1
    GAP = 2
    """Our log ends before the bytes begin: one was lost or overtaken on the way."""
    INCONSISTENT_STATE = 3
    """Our log differs there: compare again."""
    BELOW_BEGIN = 4
    """To a COMPARE: what we share lies before your first byte: install."""


@attrs.frozen
class Message:
    source: str
    target: str
    term: int


@attrs.frozen
class VoteRequest(Message):
    """A pre-vote asks "would you?" for the next term and changes nothing anywhere."""

    is_pre: bool
    by_transfer: bool
    """The leader itself asked for it: who hears a leader may answer all the same."""
    log_term: int
    log_end: int


@attrs.frozen
class VoteResponse(Message):
    is_pre: bool
    granted: bool
    reason: str = ""
    """Why not, for people."""


@attrs.frozen
class StaleTerm(Message):
    """To a leader or candidate of an older term: there is a newer one."""


@attrs.frozen
class Heartbeat(Message):
    committed_offset: int
    read_round: int
    sent_ms: int
    """The leader's clock, echoed: a lease counts from when it asked, not from the answer."""


@attrs.frozen
class HeartbeatResponse(Message):
    read_round: int
    sent_ms: int
    matched_offset: int
    held_offset: int


@attrs.frozen
class Push(Message):
    sequence: int
    """Counts the pushes of one leader to one follower; answers name it."""


@attrs.frozen
class Compare(Push):
    """The leader's terms: the answer says up to where both logs are the same."""

    begin_offset: int
    end_offset: int
    rows: tuple[Row, ...]


@attrs.frozen
class Truncate(Push):
    """Cut at `phy_offset`, where the byte is of `conflict_term` in the leader's log."""

    phy_offset: int
    prev_term: int
    conflict_term: int


@attrs.frozen
class Append(Push):
    """Bytes of one term, from `prev_offset` on; without any it only tells the commit."""

    prev_offset: int
    prev_term: int
    entry_term: int
    committed_offset: int
    body: Buffer = attrs.field(repr=False)
    configurations: tuple[tuple[int, Configuration], ...] = ()
    """Those whose records end in the body."""


@attrs.frozen
class Install(Push):
    """What you have is gone here. Empty your log and begin at `begin_offset`, as we do."""

    begin_offset: int
    rows: tuple[Row, ...]
    """The leader's terms; of those before `begin_offset` only the last."""
    end_offset: int
    configuration: tuple[int, Configuration]
    """What counted at `begin_offset`."""


@attrs.frozen
class PushResponse(Message):
    type: PushType
    sequence: int
    """Of the push; 0 when an fsync is what there is to tell."""
    status: PushStatus
    matched_offset: int
    """Our log is the leader's up to here."""
    held_offset: int
    """And on our disk up to here, at most `matched_offset`."""
    conflict: bool = False
    """To a COMPARE: our log goes on beyond with bytes of another term."""


@attrs.frozen
class TimeoutNow(Message):
    """Stand for election at once: you hold all that the leader has."""
