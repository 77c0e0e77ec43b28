"""What a member of a Raft group needs around it: a log below, a broker above, a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from trioha.dledger.ledger import Ledger
from trioha.dledger.membership import Configuration, ConfigurationTable
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite, SoftState
from trioha.dledger.settings import RaftSettings
from trioha.dledger.term_table import TermTable


class MemberLog(Ledger, Protocol):
    """The broker's commitlog as the core wants it written (`broker/raft_log.py`).

    Errors: StoreError from everything that writes; it ends the node. DiskFull from
    `append_control` alone does not: nothing was written, and the leader steps down.
    """

    @property
    def end_offset(self) -> int: ...

    def recover(
        self, initial_configuration: Configuration
    ) -> tuple[TermTable, ConfigurationTable, int, int]:
        """Terms, configurations, begin and end of what is durable. Changes nothing."""

    def append_control(self, control: Control, addresses: Mapping[str, str], wall_ms: int) -> int:
        """Append a record of our own; where it ends."""

    def write(self, operation: LogWrite) -> None: ...
    def truncate(self, operation: LogTruncate) -> object: ...
    def reset(self, operation: LogReset) -> None: ...
    def has_room(self, size: int) -> bool:
        """Can so many bytes be written? What it finds is kept for them."""

    def addresses(self) -> Mapping[str, str]:
        """Of members, as control records tell: id → host:port."""


class StateMachine(Protocol):
    """The broker above a member: what the group commits changes its tables and answers its clients.

    Called within a batch of the outboxes. What it appends and tells by `log_grown` there counts
    when the pass is through.
    """

    def on_soft_state(self, soft: SoftState) -> None:
        """Role, term or leader has changed. From a step-down on nothing may be appended."""

    def on_commit(self, committed_offset: int) -> None:
        """Everything below is safe. After `on_soft_state` of the same pass."""

    def on_log_written(self, end_offset: int) -> None:
        """The leader's bytes are in our log up to here: once per pass."""

    def on_log_cut(self, end_offset: int) -> None:
        """Our log was cut, durably, and ends here; or it was emptied and begins here."""

    def on_settled(self) -> None:
        """A pass is through: `may_append` and all else may have changed. HOT."""


class Flusher(Protocol):
    """Who calls fsync, and then `DLedgerMember.flushed`."""

    def grown_nowait(self, *, urgent: bool) -> None: ...


@attrs.frozen(kw_only=True)
class MemberSetup:
    """What the configuration says of a member and its group."""

    door: GroupDoor
    founders: Mapping[str, str]
    """dLegerPeers: id → host:port."""
    address: str
    """Where the others reach us."""
    settings: RaftSettings
    secret: str = attrs.field(default="", repr=False)
