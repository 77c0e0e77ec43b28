"""Bytes of a leader, looked at before a follower appends them.

Theory of operation. A follower's log is its leader's, byte by byte, and a follower that cannot read
its own log ends: it would be damaged. So it first looks whether the bytes are whole records that
belong where they go (`trioha.store.record_sizes`), and whether it could read the records that the
group itself writes, its control records and its tables.

Not ideal: a body of tables in several parts is looked at only when it is complete and committed,
and then a body that cannot be read ends the node. Without a secret a stranger can pose as leader.
"""

from __future__ import annotations

from trioha.broker.metadata_ops import decode_ops
from trioha.broker.raft.controls import parse_control
from trioha.broker.raft.records import read_part
from trioha.errors import CommitLogCorrupted, RemoteProtocolError
from trioha.store.record_sizes import misplaced_record
from trioha.wire.names import METADATA_TOPIC, RAFT_TOPIC
from trioha.wire.record import BLANK_MAGIC, PRELUDE, RecordError, dispatch_fields
from trioha.wire.remoting_command import Buffer

_OWN = b"TRIOHA_"
"""Begins the names of the topics whose records the group writes."""


def objection_to(
    body: Buffer, phy_offset: int, term: int, term_start: int, segment_bytes: int
) -> str:
    """Return why `body`, of `term`, cannot stand at `phy_offset` of a log; "" if it can. HOT.

    `term_start`: where the term begins in the log, these bytes included.
    """
    data = bytes(body)
    objection = misplaced_record(data, phy_offset, segment_bytes - phy_offset % segment_bytes)
    if objection or _OWN not in data:
        return objection
    try:
        _check_own(data, phy_offset, term, term_start, segment_bytes)
    except (RemoteProtocolError, CommitLogCorrupted) as error:
        return str(error)
    return ""


def _check_own(
    data: bytes, phy_offset: int, term: int, term_start: int, segment_bytes: int
) -> None:
    """Check the group's own records. Errors: RemoteProtocolError, CommitLogCorrupted."""
    position = 0
    while position < len(data):
        size, magic = PRELUDE.unpack_from(data, position)
        if magic != BLANK_MAGIC:
            topic = dispatch_fields(data, position).topic
            record = data[position : position + size]
            at = phy_offset + position
            if topic == RAFT_TOPIC:
                _check_control(record, at, term, term_start, segment_bytes)
            elif topic == METADATA_TOPIC:
                _, _, count, piece = read_part(record)
                if count == 1:
                    decode_ops(piece)
        position += size


def _check_control(record: bytes, at: int, term: int, term_start: int, segment_bytes: int) -> None:
    control = parse_control(record)
    if control is None or control.term < term:
        # A log that was a group's, then a master's, then a group's again has old ones.
        return
    if control.term > term:
        raise RecordError(f"the control record at {at} is of term {control.term}, not {term}")
    if control.segment_bytes != segment_bytes:
        raise RecordError(
            f"the leader's log has segments of {control.segment_bytes} bytes, but this log has "
            f"segments of {segment_bytes} bytes: set mappedFileSizeCommitLog to the same number on "
            "all members of the group"
        )
    if control.configuration is None and control.start_offset != term_start:
        raise RecordError(
            f"the control record at {at} says that term {term} begins at {control.start_offset}, "
            f"but it begins at {term_start}"
        )
    if control.configuration is not None and not control.configuration.voters:
        raise RecordError(f"the control record at {at} names no voters")
