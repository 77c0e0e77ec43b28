"""Control records: a Raft leader's records about the log itself.

Theory of operation. A control record is a message of the topic ``TRIOHA_RAFT``, queue 0. One opens
a term (tag ``TERM``), or sets the members from its end on (tag ``MEMBERS``). Its body is a msgpack
array that every member finds again in its own log, by the consume queue of that topic:

    [version, segment bytes, term, leader, start_offset, voters | nil, learners, {id: host:port}]

`start_offset` is the end of the log before the record was appended. So a blank that the append left
at a segment's end belongs to the term too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgpack

from trioha.dledger.membership import Configuration
from trioha.dledger.ready import Control
from trioha.errors import CommitLogCorrupted, RemoteProtocolError
from trioha.store.interface import PutMessage
from trioha.store.message_store import FileMessageStore
from trioha.wire.java_hash import string_hash
from trioha.wire.names import RAFT_TOPIC
from trioha.wire.properties import encode_properties
from trioha.wire.record import RecordError, decode_record
from trioha.wire.remoting_command import Buffer

VERSION = 1
QUEUE_ID = 0
TERM_TAG, MEMBERS_TAG = "TERM", "MEMBERS"
_NO_HOST = bytes(8)


@attrs.frozen(kw_only=True)
class ControlRecord:
    """One control record and its place in the log."""

    phy_offset: int
    end_offset: int
    segment_bytes: int
    """Segment size of the leader's log. Blanks fill up segments, so all members need one size."""
    term: int
    leader_id: str
    start_offset: int
    configuration: Configuration | None
    """New configuration; None in the record that opens a term."""
    addresses: Mapping[str, str]


def control_message(
    control: Control,
    start_offset: int,
    segment_bytes: int,
    addresses: Mapping[str, str],
    wall_ms: int,
    store_host: bytes = _NO_HOST,
) -> PutMessage:
    """Return the message that carries a control record."""
    configuration = control.configuration
    tag = TERM_TAG if configuration is None else MEMBERS_TAG
    body: bytes = msgpack.packb(
        [
            VERSION,
            segment_bytes,
            control.term,
            control.leader_id,
            start_offset,
            None if configuration is None else list(configuration.voters),
            [] if configuration is None else list(configuration.learners),
            dict(addresses),
        ]
    )
    return PutMessage(
        topic=RAFT_TOPIC,
        queue_id=QUEUE_ID,
        flag=0,
        sys_flag=0,
        born_timestamp=wall_ms,
        born_host=store_host,
        store_host=store_host,
        body=body,
        properties=encode_properties({"TAGS": tag}),
        tags_code=string_hash(tag),
    )


def parse_control(record: Buffer) -> ControlRecord | None:
    """Read the control record at the beginning of `record`; None if it is another kind of record.

    Errors: CommitLogCorrupted if it cannot be read.
    """
    try:
        decoded = decode_record(record, 0)
    except RecordError as error:
        raise CommitLogCorrupted(f"a record of the log cannot be read: {error}") from None
    if decoded.topic != RAFT_TOPIC:
        return None
    try:
        fields: Any = msgpack.unpackb(decoded.body)
        version, segment_bytes, term, leader_id, start_offset, voters, learners, addresses = fields
        if version != VERSION:
            raise ValueError(f"version {version}, this is {VERSION}")
        configuration = None if voters is None else Configuration(tuple(voters), tuple(learners))
        return ControlRecord(
            phy_offset=decoded.phy_offset,
            end_offset=decoded.phy_offset + decoded.size,
            segment_bytes=int(segment_bytes),
            term=int(term),
            leader_id=str(leader_id),
            start_offset=int(start_offset),
            configuration=configuration,
            addresses={str(member): str(address) for member, address in addresses.items()},
        )
    except (
        ValueError,
        TypeError,
        AttributeError,
        msgpack.UnpackException,
        RemoteProtocolError,
    ) as error:
        raise CommitLogCorrupted(
            f"the control record at {decoded.phy_offset} cannot be read: {error}; run the version "
            "of trioha that the other members run, or `trioha raft repair`"
        ) from None


class ControlRecords:
    """Control records of a store's log, in its order, as far as it is dispatched; read once."""

    def __init__(self, store: FileMessageStore) -> None:
        self._store = store
        self._records: list[ControlRecord] = []
        self._next_index = 0

    def all(self) -> list[ControlRecord]:
        """Return all control records. Errors: CommitLogCorrupted if one cannot be read."""
        store = self._store
        end = store.appended_max_offset(RAFT_TOPIC, QUEUE_ID)
        begin = max(self._next_index, store.min_offset_in_queue(RAFT_TOPIC, QUEUE_ID))
        self._records += [self._read(index) for index in range(begin, end)]
        self._next_index = end
        return self._records

    def forget(self) -> None:
        """Drop the records: the log was cut, emptied or lost its beginning. `all` reads anew."""
        self._records.clear()
        self._next_index = 0

    def _read(self, index: int) -> ControlRecord:
        store = self._store
        entry = store.appended_entry(RAFT_TOPIC, QUEUE_ID, index)
        data = None if entry is None else store.appended_record(entry[0])
        record = None if data is None else parse_control(data)
        if record is None:
            raise CommitLogCorrupted(
                f"entry {index} of the consume queue of {RAFT_TOPIC} has no control record: run "
                f"`trioha raft repair {store.config.root}`"
            )
        return record
