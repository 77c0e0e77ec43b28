"""The work that a member asks its shell to do, in the order in which it must be done.

The shell takes a `Ready`, does its fields from top to bottom, and calls `advance`. It sends no
message before the hard state and the cuts above it are durable: that order is Raft's durability
contract (Raft figure 2: "updated on stable storage before responding to RPCs").
"""

from __future__ import annotations

import enum

from trioha.dledger.membership import Configuration
from trioha.dledger.messages import RaftMessage
from trioha.dledger.term_table import TermTable
from trioha.dledger.value import value
from trioha.wire.remoting_command import Buffer


class Role(enum.Enum):
    FOLLOWER = "FOLLOWER"
    PRE_CANDIDATE = "PRE_CANDIDATE"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


@value
class HardState:
    """State that a member must not forget; saved and fsynced before the rest of a `Ready`."""

    term: int = 0
    voted_for: str = ""
    """Candidate that got this member's vote in `term`; empty for none."""
    impaired: bool = False
    """The member may have forgotten a vote (its disk was replaced or damaged): it never votes nor
    stands again. The cure is to replace it by a member with another id (see membership)."""
    committed_offset: int = 0
    """Lower bound of the commit: saved with the rest, never for its own sake."""


class LogWrite:
    """Append the leader's bytes. The fsync may come later; call `flushed` after it."""

    def __init__(self, phy_offset: int, term: int, body: Buffer) -> None:
        self.phy_offset = phy_offset
        self.term = term
        self.body = body

    def __repr__(self) -> str:
        return f"LogWrite(phy_offset={self.phy_offset}, term={self.term})"


@value
class LogTruncate:
    """Cut the log, durably, before the next operation. Otherwise old bytes could come back after a
    crash and be taken for newer ones."""

    phy_offset: int


@value
class LogReset:
    """Empty the log, durably, and begin anew at this offset.

    Save `terms` and `configuration` too: only the deleted bytes told of them.
    """

    begin_offset: int
    terms: TermTable
    configuration: tuple[int, Configuration]


LogOperation = LogWrite | LogTruncate | LogReset


@value
class Control:
    """A control record that the leader's shell appends; it calls `control_appended` then.

    Without a configuration it is the NOOP that opens a term.
    """

    term: int
    leader_id: str
    configuration: Configuration | None = None


@value
class ReadReady:
    """A read may be served once all up to `committed_offset` is applied; -1: it is rejected."""

    token: int
    committed_offset: int


@value
class SoftState:
    """A change of role or leader, for the broker and for people."""

    role: Role
    term: int
    leader_id: str
    reason: str


class Ready:
    """One round of work, to be done from top to bottom."""

    def __init__(
        self,
        hard_state: HardState | None,
        log: tuple[LogOperation, ...],
        controls: tuple[Control, ...],
        messages: tuple[RaftMessage, ...],
        committed_offset: int,
        reads: tuple[ReadReady, ...],
        soft_states: tuple[SoftState, ...],
    ) -> None:
        self.hard_state = hard_state
        """Save and fsync it. If that fails, call `storage_failed` and do nothing below."""
        self.log = log
        self.controls = controls
        """Append each to the log, then call `control_appended`."""
        self.messages = messages
        """Send them. A full outbox may drop them: the core repeats its messages."""
        self.committed_offset = committed_offset
        """Apply up to here."""
        self.reads = reads
        self.soft_states = soft_states
