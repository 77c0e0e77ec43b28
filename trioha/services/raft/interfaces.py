"""The seams of a member of a Raft group: its log, its broker, its configuration."""

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
from trioha.journal import EventSink
from trioha.remoting.outboxes import Outboxes
from trioha.security.node_signer import Sign, unsigned
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect, connect
from trioha.wire.keyring import Keyring, keyring_of


@attrs.frozen
class MemberContext:
    """Parts of the node that all parts of a member use."""

    outboxes: Outboxes
    clock: Clock
    events: EventSink
    connect_to: Connect = connect
    sign: Sign = unsigned


class MemberLog(Ledger, Protocol):
    """The broker's commitlog, written as the core asks (`broker/raft/log.py`).

    Errors: StoreError from everything that writes; it ends the node. DiskFull from `append_control`
    does not end it: nothing was written, and the leader steps down.
    """

    @property
    def end_offset(self) -> int: ...

    def recover(
        self, initial_configuration: Configuration
    ) -> tuple[TermTable, ConfigurationTable, int, int]:
        """Return terms, configurations, begin and end of the durable log; repeatable."""

    def append_control(self, control: Control, addresses: Mapping[str, str], wall_ms: int) -> int:
        """Append a control record; return its end offset."""

    def write(self, operation: LogWrite) -> None: ...
    def truncate(self, operation: LogTruncate) -> object: ...
    def reset(self, operation: LogReset) -> None: ...
    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes can be written, and reserve the room for them."""

    def addresses(self) -> Mapping[str, str]:
        """Return member id → host:port, as control records tell."""


class StateMachine(Protocol):
    """The broker above a member: what the group commits changes its tables and answers its clients.

    All calls are within a batch of the outboxes. If the broker appends and calls `log_grown` there,
    that counts when the pass has ended.
    """

    def on_soft_state(self, soft: SoftState) -> None:
        """Role, term or leader has changed. After a step-down nothing may be appended."""

    def on_commit(self, committed_offset: int) -> None:
        """Everything below the offset is committed. Comes after `on_soft_state` of the pass."""

    def on_log_written(self, end_offset: int) -> None:
        """Our log has the leader's bytes up to here; called once per pass."""

    def on_log_cut(self, end_offset: int) -> None:
        """Our log was cut, durably, and ends here; or it was emptied and begins here."""

    def on_settled(self) -> None:
        """A pass has ended: `may_append` and all else may have changed. HOT."""


class Flusher(Protocol):
    """The task that fsyncs the log and then calls `RaftMember.flushed`."""

    is_quiet: bool
    """The end of the fsync that runs is told by `collect_nowait` alone."""

    def grown_nowait(self, *, urgent: bool, quiet: bool = False) -> None: ...
    def collect_nowait(self) -> None: ...
    def awaited_nowait(self) -> None:
        """`RaftNode.awaits_flush` has become True."""


@attrs.frozen(kw_only=True)
class MemberSetup:
    """The part of the configuration that describes a member and its group."""

    door: GroupDoor
    founders: Mapping[str, str]
    """dLegerPeers: id → host:port."""
    address: str
    """Our own address for peers, host:port."""
    settings: RaftSettings
    secret: Keyring = attrs.field(factory=Keyring, converter=keyring_of)
