"""Bytes of a leader, looked at before a follower appends them.

Theory of operation. A follower's log is its leader's, byte by byte, and a follower that cannot read
its own log ends: it would be damaged. So it first looks whether the bytes are whole records that
belong where they go (`trioha.store.record_sizes`), and whether it could read the records that the
group itself writes, its control records and its tables. The control records tell the members; the
leader does not tell them beside its bytes, for a member knows only the bytes after a restart. A
body of tables may come in several parts, in several messages: it is looked at with its last part,
before that part is appended. After a start or a cut the parts that the log holds already are read
once more.

The parts of an unfinished body stay in memory, so a body has a limit. An honest leader keeps it.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.broker.metadata_ops import decode_ops
from trioha.broker.raft.controls import QUEUE_ID as CONTROLS_QUEUE_ID
from trioha.broker.raft.controls import parse_control
from trioha.broker.raft.records import BODY_BYTES_MAX, QUEUE_ID, Assembly, read_part
from trioha.dledger.membership import Configuration, ConfigurationRows
from trioha.errors import CommitLogCorrupted, RemoteProtocolError
from trioha.store.record_sizes import misplaced_record
from trioha.wire.names import METADATA_TOPIC, RAFT_TOPIC, RAFT_TOPICS
from trioha.wire.record import BLANK_MAGIC, PRELUDE, RecordError, dispatch_fields
from trioha.wire.remoting_command import Buffer

_OWN_TOPICS = frozenset(topic.encode() for topic in RAFT_TOPICS)
"""Topics whose records the group writes."""
_LIMIT = f"at most {BODY_BYTES_MAX} are allowed"


class ForeignBytes:
    """The bytes that a leader sends to one log, each looked at once and in order."""

    def __init__(self, segment_bytes: int, unfinished: Callable[[], Assembly | None]) -> None:
        """`unfinished`: reads, from the log, the parts of a body that its end lacks the rest of;
        None while that is not possible."""
        self._segment_bytes = segment_bytes
        self._unfinished = unfinished
        self._assembly: Assembly | None = None

    def forget(self) -> None:
        """Note that the log was cut, emptied, or written by this member itself."""
        self._assembly = None

    def configurations_in(
        self, body: Buffer, phy_offset: int, term: int, term_start: int
    ) -> ConfigurationRows:
        """Return the configurations that `body`, of `term`, sets at `phy_offset` of a log. HOT.

        Bytes without an error count as appended. `term_start`: where the term begins in the log,
        these bytes included. Errors: RemoteProtocolError if `body` cannot stand there.
        """
        data, segment_bytes = bytes(body), self._segment_bytes
        topics: set[bytes] = set()
        segment_rest = segment_bytes - phy_offset % segment_bytes
        objection = misplaced_record(data, phy_offset, segment_rest, topics)
        if objection:
            raise RecordError(objection)
        if topics.isdisjoint(_OWN_TOPICS):
            return ()
        try:
            return self._check_own(data, phy_offset, term, term_start)
        except (RemoteProtocolError, CommitLogCorrupted) as error:
            self._assembly = None  # it may hold parts that are not appended
            raise RecordError(str(error)) from None

    def _check_own(
        self, data: bytes, phy_offset: int, term: int, term_start: int
    ) -> ConfigurationRows:
        """Check the group's own records; return the configurations that they set.

        Errors: RemoteProtocolError, CommitLogCorrupted.
        """
        found: list[tuple[int, Configuration]] = []
        position = 0
        while position < len(data):
            size, magic = PRELUDE.unpack_from(data, position)
            if magic != BLANK_MAGIC:
                fields = dispatch_fields(data, position)
                record = data[position : position + size]
                at = phy_offset + position
                if fields.topic == RAFT_TOPIC:
                    _check_queue(fields.queue_id, CONTROLS_QUEUE_ID, at)
                    configuration = _configuration_of(
                        record, at, term, term_start, self._segment_bytes
                    )
                    if configuration is not None:
                        found.append((at + size, configuration))
                elif fields.topic == METADATA_TOPIC:
                    _check_queue(fields.queue_id, QUEUE_ID, at)
                    self._check_part(record, at)
            position += size
        return tuple(found)

    def _check_part(self, record: bytes, at: int) -> None:
        kind, part, count, piece = read_part(record)
        if self._assembly is None:
            self._assembly = Assembly() if part == 0 else self._unfinished()
        if self._assembly is None:
            raise RecordError(f"the parts before {at} are not read yet; they are asked for again")
        size = len(piece) + (self._assembly.held_bytes if part else 0)
        if size > BODY_BYTES_MAX:
            raise RecordError(f"with the record at {at} its tables have {size} bytes: {_LIMIT}")
        body = self._assembly.add(at, kind, part, count, piece)
        if body is not None:
            decode_ops(body)


def _check_queue(queue_id: int, own: int, at: int) -> None:
    if queue_id != own:
        raise RecordError(f"the record at {at} is in queue {queue_id}, where the group has none")


def _configuration_of(
    record: bytes, at: int, term: int, term_start: int, segment_bytes: int
) -> Configuration | None:
    """Check a control record and return the configuration that it sets; None if it sets none."""
    control = parse_control(record)
    if control is None or control.term < term:
        # A log that was a group's, then a master's, then a group's again has old ones.
        return None
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
    return control.configuration
