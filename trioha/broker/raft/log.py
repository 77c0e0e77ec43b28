"""The broker's commitlog as the log of a Raft group.

    log = open_raft_log(StoreConfig.of(config), events, wall_ms=...)   # broker.raft.store
    found = log.recover(Configuration.of(*founders))     # the core starts with this and the vote

Theory of operation. A Raft entry is a range of the log with a term
(docs/decisions/0014-raft-log-is-the-commitlog.md). The log tells its terms and members itself, in
control records (`broker.raft.controls`). `raft.base` (`broker.raft.base`) keeps what the log cannot
tell, and is durable before the log changes: before segments are deleted, before the log is emptied,
before a term's first byte is a blank.

Log operations come from a `Ready`, in its order. `truncate` and `reset` are durable when they
return; `write` is durable when the store has been flushed. One thread makes all calls.

Errors: StoreError and its kinds, always with file and cure. After one of them the member must stop:
call `RaftNode.storage_failed`. DiskFull alone leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import attrs

from trioha.broker.raft.base import RaftBase, decode_base, encode_base
from trioha.broker.raft.controls import (
    ControlRecord,
    ControlRecords,
    control_message,
    parse_control,
)
from trioha.broker.raft.foreign_bytes import ForeignBytes
from trioha.broker.raft.metadata_log import MetadataLog
from trioha.broker.raft.records import Assembly
from trioha.dledger.membership import Configuration, ConfigurationRows, ConfigurationTable
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite
from trioha.dledger.term_table import Row, TermTable
from trioha.errors import (
    CommitLogCorrupted,
    DiskFull,
    LocalProtocolError,
    RemoteProtocolError,
    StoreError,
)
from trioha.store.interface import PutStatus
from trioha.store.message_store import FileMessageStore
from trioha.store.record_sizes import whole_records
from trioha.store.segment_cleaner import Retention
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire.names import RAFT_TOPIC
from trioha.wire.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    PRELUDE,
    RecordError,
    record_size,
)
from trioha.wire.remoting_command import Buffer


class RecoveredLog(NamedTuple):
    """The core's start values from the log; its vote is beside it."""

    terms: TermTable
    configurations: ConfigurationTable
    begin_offset: int
    end_offset: int
    """End of the log; all of it is on disk."""


class RaftLog:
    """`dledger.ledger.Ledger`, and the log operations of a `Ready`."""

    def __init__(self, store: FileMessageStore, base_file: TwoSlotFile) -> None:
        self.store = store
        self._base_file = base_file
        self._base = RaftBase()
        self._controls = ControlRecords(store)
        self._terms = TermTable()
        self._initial = Configuration(())
        self._segment_bytes = store.config.segment_bytes
        self._foreign = ForeignBytes(self._segment_bytes, self._unfinished_body)

    # The core's start and its reads.

    @property
    def end_offset(self) -> int:
        """End of the log in bytes."""
        return self.store.max_phy_offset

    def recover(self, initial_configuration: Configuration) -> RecoveredLog:
        """Read the control records. Call it before anything else.

        `initial_configuration` is the group's first, as in dLegerPeers.
        Errors: CommitLogCorrupted if bytes or terms are missing.
        """
        store, root = self.store, self.store.config.root
        self._initial = initial_configuration
        payload = self._base_file.payload
        base = RaftBase() if payload is None else decode_base(payload)
        begin, end = store.min_phy_offset, store.max_phy_offset
        if not begin <= base.from_offset <= end:
            raise CommitLogCorrupted(
                f"the log in {root} goes from {begin} to {end}, but should hold "
                f"{base.from_offset}: put its files back, or run `trioha raft repair {root}`"
            )
        self._terms = self._read_terms(base, begin, end)
        blank_terms = self._unproved(base.blank_terms, end)
        self._base = attrs.evolve(base, blank_terms=blank_terms, is_emptying=False)
        if payload is None or self._base != base:
            self._base_file.save(encode_base(self._base))
        return RecoveredLog(self._terms, self._configurations(end).drop_before(begin), begin, end)

    def read(self, phy_offset: int, size_max: int) -> Buffer:
        """Return whole records and blanks of one segment: at most `size_max` bytes, at least one.

        Errors: OffsetOutOfRange; CommitLogCorrupted if there is no record at `phy_offset`.
        """
        store = self.store
        data = bytes(store.read_log(phy_offset, size_max))
        if phy_offset + len(data) == store.max_phy_offset:
            # No check is needed: the log ends behind a whole record, written a moment ago.
            return data
        whole = self._whole(phy_offset, data)
        if not whole:
            size = PRELUDE.unpack(store.read_log(phy_offset, BLANK_SIZE))[0]
            data = bytes(store.read_log(phy_offset, size))
            whole = self._whole(phy_offset, data)
            if not whole:
                raise self._damaged(f"the record at {phy_offset} claims a size of {size} bytes")
        return data if whole == len(data) else memoryview(data)[:whole]

    def is_boundary(self, phy_offset: int) -> bool:
        """Return whether a record begins at this offset of the log, or the log ends there."""
        return self.store.is_boundary(phy_offset)

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        """Return the configurations that a leader's bytes of `term` set at the end of the log.

        Bytes without an error count as appended. Errors: RemoteProtocolError if the log cannot
        take them.
        """
        terms = self._terms
        start = terms.rows[-1][1] if term == terms.last_term else phy_offset
        return self._foreign.configurations_in(body, phy_offset, term, start)

    def objection_to_begin(self, phy_offset: int) -> str:
        """Return why an empty log cannot begin at this offset; "" if it can."""
        if phy_offset % self._segment_bytes:
            return str(self._other_segments(f"the leader's log begins at {phy_offset}"))
        return ""

    def _unfinished_body(self) -> Assembly | None:
        """Return the parts at the log's end whose body is not complete; None if not yet known."""
        if self.store.dispatched_offset != self.store.max_phy_offset:
            return None
        log, assembly = MetadataLog(self.store.raft_queues()), Assembly()
        begin, end = log.bounds()
        index = end
        while index > begin:
            index -= 1
            if log.read(index)[1] == 0:  # the first part
                break
        for one in range(index, end):
            assembly.add(log.place(one)[0], *log.read(one))
        return assembly

    def _whole(self, phy_offset: int, data: bytes) -> int:
        try:
            return whole_records(data, phy_offset)
        except RecordError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, what: str) -> CommitLogCorrupted:
        config = self.store.config
        return CommitLogCorrupted(
            f"{config.commitlog_path} is damaged: {what}; run `trioha raft repair {config.root}`"
        )

    def addresses(self) -> dict[str, str]:
        """Return member id -> host:port of the newest record. Errors: CommitLogCorrupted."""
        controls = self._later_controls()
        return dict(controls[-1].addresses if controls else self._base.addresses)

    # The operations of a Ready.

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes can be written, and reserve the room for them.

        Errors: StoreError if the disk has failed.
        """
        if self.store.refusal is not None:
            return False
        try:
            self.store.reserve_ahead(size)
        except DiskFull:
            return False
        return True

    def write(self, operation: LogWrite) -> None:
        """Append a leader's bytes; `flush` of the store makes them durable.

        Errors: StoreError; DiskFull if nothing was written.
        """
        store, body = self.store, operation.body
        store.reserve_ahead(len(body))
        if operation.term != self._terms.last_term:
            is_proved = self._check_first_bytes(operation)
            self._prepare_term(operation.term, operation.phy_offset, is_proved=is_proved)
            self._terms = self._terms.begin(operation.term, operation.phy_offset)
        store.append_log(operation.phy_offset, body)

    def truncate(self, operation: LogTruncate) -> None:
        """Cut the log, durably. Errors: StoreError."""
        offset = operation.phy_offset
        self.store.truncate_log(offset, "the group has other bytes there")
        self._controls.forget()
        self._foreign.forget()
        self._terms = self._terms.cut(offset)
        kept = tuple(row for row in self._base.blank_terms if row[1] < offset)
        if kept != self._base.blank_terms:
            # Saved before the next byte is written, which may be of another term.
            self._save(attrs.evolve(self._base, blank_terms=kept))

    def reset(self, operation: LogReset) -> None:
        """Empty the log, durably, and begin where the leader's log begins.

        After a crash in the middle `open_raft_log` finishes it. Errors: StoreError.
        """
        begin = operation.begin_offset
        if begin % self._segment_bytes:
            raise self._other_segments(f"the leader's log begins at {begin}")
        base = RaftBase(
            from_offset=begin,
            terms=operation.terms,
            configurations=(operation.configuration,),
            addresses=self.addresses(),
            is_emptying=True,
        )
        self._save(base)
        self.store.restart_log(begin, "the leader has no byte of it any more")
        self._save(attrs.evolve(base, is_emptying=False))
        self._controls.forget()
        self._foreign.forget()
        self._terms = operation.terms

    def append_control(self, control: Control, addresses: Mapping[str, str], wall_ms: int) -> int:
        """Append a control record; return its end offset, for `control_appended`.

        Errors: StoreError; DiskFull if the store has no room: call `set_writable(False)`.
        """
        store, start = self.store, self.store.max_phy_offset
        message = control_message(control, start, self._segment_bytes, addresses, wall_ms)
        size = record_size(len(message.body), len(RAFT_TOPIC), len(message.properties))
        store.reserve_ahead(size + BLANK_SIZE)
        if control.configuration is None:
            rest = self._segment_bytes - start % self._segment_bytes
            self._prepare_term(control.term, start, is_proved=size + BLANK_SIZE <= rest)
        result = store.put_message(message, wall_ms)
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            raise LocalProtocolError(f"the store rejects a control record: {result.reason}")
        if result.status is not PutStatus.PUT_OK:
            raise DiskFull(result.reason)
        if control.configuration is None:
            self._terms = self._terms.begin(control.term, start)
        self._foreign.forget()  # as leader it appends without asking
        return result.end_offset

    # Retention.

    def check_disk(self, wall_ms: int, floor: int, on_trim: Callable[[int], None]) -> list[str]:
        """Look at the disk, and delete expired segments that end at or below `floor`.

        `floor` is at most the commit. `on_trim` gets the log's new beginning before they go.
        Returns the files that are gone. Errors: StoreError.
        """

        def before_delete(new_begin: int) -> None:
            self.keep_beginning(new_begin)
            on_trim(new_begin)

        return self.store.check_disk(wall_ms, Retention(floor, before_delete))

    def keep_beginning(self, new_begin: int) -> None:
        """Save, durably, what the segments before `new_begin` tell: they are deleted next.

        Errors: StoreError, DiskFull: nothing may be deleted then.
        """
        begin = self.store.min_phy_offset
        controls = [one for one in self._later_controls() if one.phy_offset < new_begin]
        configurations = self._configurations(new_begin).drop_before(begin)
        base = RaftBase(
            from_offset=max(new_begin, self._base.from_offset),
            # Terms of the segments to be deleted stay: after a crash the segments may still exist.
            terms=self._terms.cut(max(new_begin, self._base.from_offset)).drop_before(begin),
            configurations=configurations.rows,
            addresses=dict(controls[-1].addresses if controls else self._base.addresses),
            blank_terms=tuple(row for row in self._base.blank_terms if row[1] >= new_begin),
        )
        self._save(base)
        self._controls.forget()
        self._terms = self._terms.drop_before(new_begin)

    # Terms and members, as the log's control records tell.

    def _later_controls(self, base: RaftBase | None = None) -> list[ControlRecord]:
        """Return the control records that count in addition to the base.

        A group may have become a master-slave set, and that a group again: then all its old log is
        of one newer term. Control records in that part do not count.
        """
        base = base or self._base
        return [
            one
            for one in self._controls.all()
            if one.phy_offset >= base.from_offset
            and one.term >= base.terms.last_term
            and not any(
                start <= one.phy_offset and term > one.term for term, start in base.blank_terms
            )
        ]

    def _read_terms(self, base: RaftBase, begin: int, end: int) -> TermTable:
        root = self.store.config.root
        starts = dict(base.terms.rows)
        told = [
            (one.term, one.start_offset)
            for one in self._later_controls(base)
            if one.configuration is None
        ]
        told += [row for row in base.blank_terms if row[1] < end]
        for term, start in told:
            if starts.setdefault(term, start) != start:
                raise CommitLogCorrupted(
                    f"term {term} begins at {starts[term]} and at {start} in {root}: run `trioha "
                    f"raft repair {root}`"
                )
        try:
            terms = TermTable(tuple(sorted(starts.items())))
        except RemoteProtocolError as error:
            raise CommitLogCorrupted(
                f"the terms of the log in {root} contradict each other ({error}): run `trioha raft "
                f"repair {root}`"
            ) from None
        terms = terms.drop_before(begin)
        if end > begin and not terms.term_of(begin):
            raise CommitLogCorrupted(
                f"no control record tells the term of the bytes from {begin} on in {root}: run "
                f"`trioha raft repair {root}`"
            )
        return terms

    def _configurations(self, end: int) -> ConfigurationTable:
        """Return the configurations of the log up to `end`."""
        table = ConfigurationTable(self._base.configurations or ((0, self._initial),))
        for one in self._later_controls():
            if one.configuration is not None and one.end_offset <= end:
                table = table.add(one.end_offset, one.configuration)
        return table

    # Terms that begin.

    def _check_first_bytes(self, operation: LogWrite) -> bool:
        """Return whether a term's first bytes are its control record.

        Otherwise they are a blank before it, or of a log that was converted.
        Errors: StoreError if the leader's segments have another size.
        """
        body, offset = memoryview(operation.body), operation.phy_offset
        size, magic = PRELUDE.unpack_from(body)
        if magic == BLANK_MAGIC:
            if size != self._segment_bytes - offset % self._segment_bytes:
                raise self._other_segments(f"a segment of the leader's log ends at {offset + size}")
            return False
        record = parse_control(body)
        if record is not None and record.segment_bytes != self._segment_bytes:
            raise self._other_segments(
                f"the leader's log has segments of {record.segment_bytes} bytes"
            )
        return record is not None and record.configuration is None and record.term == operation.term

    def _prepare_term(self, term: int, start: int, *, is_proved: bool) -> None:
        """Save a term without a control record in its first bytes, before they are written.

        A term may begin with a blank; after a crash that may be on disk without the record behind
        it. A log that was a master-slave set's has no such record at all.
        """
        rows = self._unproved(self._base.blank_terms, self.store.flushed_offset)
        if not is_proved:
            rows = (*rows, (term, start))
        if rows != self._base.blank_terms:
            self._save(attrs.evolve(self._base, blank_terms=rows))

    def _other_segments(self, what: str) -> StoreError:
        return StoreError(
            f"{what}, but this log has segments of {self._segment_bytes} bytes: set "
            "mappedFileSizeCommitLog to the same number on all members of the group"
        )

    def _unproved(self, rows: tuple[Row, ...], end: int) -> tuple[Row, ...]:
        """Return the terms of which the log has bytes, but no control record below `end`."""
        if not rows:
            return rows
        proved = {
            one.term
            for one in self._controls.all()
            if one.configuration is None and one.end_offset <= end
        }
        log_end = self.store.max_phy_offset
        return tuple(row for row in rows if row[0] not in proved and row[1] < log_end)

    def _save(self, base: RaftBase) -> None:
        self._base_file.save(encode_base(base))
        self._base = base
