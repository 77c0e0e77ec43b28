"""Opens a DLEDGER member's store: log, `raft.base` and the vote record beside them."""

from __future__ import annotations

import attrs

from trioha.broker.raft.base import RaftBase, decode_base
from trioha.broker.raft.log import RaftLog
from trioha.dledger.message_codec import LOG_BYTES_MAX
from trioha.errors import ConfigError
from trioha.journal import EventSink
from trioha.store.interface import MissingBytes
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.store.store_mode import BASE_STEM, VOTE_STEM
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire.record import BLANK_SIZE, PROPERTIES_BYTES_MAX

APPEND_BYTES_MAX = LOG_BYTES_MAX - BLANK_SIZE
"""Largest size of one put: the put and the blank before it go to a follower in one message."""
_RECORD_BYTES_MORE = 4096 + PROPERTIES_BYTES_MAX
"""Upper bound of the bytes that a record adds to its body."""


def raft_store_config(config: StoreConfig) -> StoreConfig:
    """Return the configuration of the same store as a member's.

    Errors: ConfigError if maxMessageSize is more than members can send each other.
    """
    body_bytes_max = APPEND_BYTES_MAX - _RECORD_BYTES_MORE
    if config.body_bytes_max > body_bytes_max:
        raise ConfigError(
            f"maxMessageSize={config.body_bytes_max} is more than the {body_bytes_max} bytes that "
            "a DLEDGER group copies in one piece; lower it"
        )
    return attrs.evolve(config, is_dledger=True, append_bytes_max=APPEND_BYTES_MAX)


def vote_file(config: StoreConfig) -> TwoSlotFile:
    """Open the file of the vote record (`dledger.vote_record`). Errors: StoreError."""
    return TwoSlotFile(config.root / VOTE_STEM, cure=f"run `trioha raft repair {config.root}`")


def base_file(config: StoreConfig) -> TwoSlotFile:
    """Open the file of the `RaftBase`. Errors: StoreError."""
    return TwoSlotFile(config.root / BASE_STEM, cure=f"run `trioha raft repair {config.root}`")


def open_raft_log(
    config: StoreConfig,
    events: EventSink,
    *,
    wall_ms: int,
    missing_bytes: MissingBytes | None = None,
) -> RaftLog:
    """Open the store of a member; may take seconds. The caller closes `RaftLog.store`.

    Errors: those of `FileMessageStore.open`; ConfigError; StoreError also if it is no member's.
    """
    config = raft_store_config(config)
    file = base_file(config)
    base = RaftBase() if file.payload is None else decode_base(file.payload)
    # Finish an emptying that a crash interrupted: the rest of that log is not the group's.
    begin_at = base.from_offset if base.is_emptying else None
    store = FileMessageStore.open(
        config, events, wall_ms=wall_ms, missing_bytes=missing_bytes, begin_at=begin_at
    )
    return RaftLog(store, file)
