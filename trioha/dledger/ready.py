"""What a member wants done, in the order in which it must be done.

The shell takes a `Ready`, does its fields from top to bottom, and says `advance`. Nothing is sent
before what stands above it is durable: that order is Raft's durability contract, written once.
"""

from __future__ import annotations

import enum

import attrs

from trioha.dledger.membership import Configuration
from trioha.dledger.messages import Message
from trioha.dledger.term_table import TermTable
from trioha.wire.remoting_command import Buffer


class Role(enum.Enum):
    FOLLOWER = "FOLLOWER"
    PRE_CANDIDATE = "PRE_CANDIDATE"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


@attrs.frozen
class HardState:
    """What a member must not forget. Both slots fsynced before anything below is done."""

    term: int = 0
    voted_for: str = ""
    """In `term`; empty for nobody."""
    impaired: bool = False
    """It may have forgotten a promise (wiped, damaged): it neither votes nor stands ever again.
    The cure is to replace it by a member of another id (see membership)."""
    committed_offset: int = 0
    """Told along with the rest, never saved for its own sake: a lower bound."""


@attrs.frozen
class LogWrite:
    """Append the leader's bytes. fsync may come later: say `flushed` then."""

    phy_offset: int
    term: int
    body: Buffer = attrs.field(repr=False)


@attrs.frozen
class LogTruncate:
    """Cut, durably, before the next operation: bytes that came back beneath newer ones would be
    taken for them."""

    phy_offset: int


@attrs.frozen
class LogReset:
    """Empty the log, durably, and begin anew at this offset.

    What the bytes before it would have told has to be saved too.
    """

    begin_offset: int
    terms: TermTable
    configuration: tuple[int, Configuration]


LogOperation = LogWrite | LogTruncate | LogReset


@attrs.frozen
class Control:
    """A record of our own that the leader's shell appends, then tells by `control_appended`.

    Without a configuration it is the NOOP that opens a term.
    """

    term: int
    leader_id: str
    configuration: Configuration | None = None


@attrs.frozen
class ReadReady:
    """A read may be served once everything up to `committed_offset` is applied; -1: refused."""

    token: int
    committed_offset: int


@attrs.frozen
class SoftState:
    """What changed for people and for the broker's role."""

    role: Role
    term: int
    leader_id: str
    reason: str


@attrs.frozen
class Ready:
    """Do these from top to bottom."""

    hard_state: HardState | None
    """Save and fsync. If that fails: `storage_failed`, and nothing below."""
    log: tuple[LogOperation, ...]
    controls: tuple[Control, ...]
    """Append each to the log, then `control_appended`."""
    messages: tuple[Message, ...]
    """Send. A full outbox drops: the machine asks again."""
    committed_offset: int
    """Apply up to here."""
    reads: tuple[ReadReady, ...]
    soft_states: tuple[SoftState, ...]
