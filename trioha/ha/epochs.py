"""Terms of mastership, and the offset at which two logs of different terms part.

Theory of operation. Every term of mastership is an *epoch*: a record of its number, the offset at
which it began, and its master. A node's records, oldest first, are its *history*; a record covers
the log from its start to the next one's start, or to the log's end. Numbers only grow, starts never
fall. A term in which nothing was written keeps its record: without it, two histories that differ
would look alike (fault A9).

Bytes below a common offset are the same in both logs, since within one epoch only its master writes
and all other nodes copy. So two nodes agree up to the end of the newest record that both hold: the
smaller of its two ends. Two records are the same only if all their fields are equal, the nonce too:
two operators who promote two slaves under one number have made two epochs.

Logs from before there were epochs, and Java's, have no records: *classic*. Two nodes that
share no record agree at most up to the first start of either. Their numbers do not prove that they
agree so far, so a caller that uses such an answer compares bytes as well (`Meeting.is_classic`).

A slave takes over its master's whole history when it connects, also the records that begin beyond
its own end. If it is promoted before the bytes of these arrive, it drops their records.

Like KIP-101's leader epochs and the epoch file of RocketMQ 5 (EpochFileCache.java), less its flaws.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import attrs

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.wire.epoch_numbers import EPOCH_MAX as EPOCH_MAX

RECORDS_MAX = 4096
"""Most records of a history. After more switches the oldest ones are dropped."""
NONCE_BYTES = 8
_OFFSET_MAX = 2**63 - 1
# epoch, home id of the master, does it wait for a slave, start offset, when (wall clock, ms), nonce
_RECORD = struct.Struct(f">ii?qq{NONCE_BYTES}s")


@attrs.frozen
class EpochRecord:
    """One term of mastership."""

    epoch: int
    start_offset: int
    """The end of the log when the term began."""
    home_id: int
    """brokerId, as configured, of its master."""
    nonce: bytes
    """Random bytes, drawn once for this term."""
    sync: bool
    """Do puts wait for a slave?"""
    began_wall_ms: int = 0

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.epoch <= EPOCH_MAX or not 0 <= self.start_offset <= _OFFSET_MAX:
            raise RemoteProtocolError(
                f"epoch {self.epoch} at offset {self.start_offset} is out of range"
            )
        if self.home_id < 0 or len(self.nonce) != NONCE_BYTES:
            raise RemoteProtocolError(f"epoch {self.epoch} has no proper master")


@attrs.frozen
class Meeting:
    """The offset up to which two logs are equal, and its epoch."""

    common_offset: int
    epoch: int
    """Newest epoch that both logs hold; 0 if they share none."""

    @property
    def is_classic(self) -> bool:
        """The logs share no record: the caller has to compare bytes."""
        return self.epoch == 0


@attrs.frozen
class EpochHistory:
    """The records of one node, oldest first. A value: changes make a new one."""

    records: tuple[EpochRecord, ...] = ()

    def __attrs_post_init__(self) -> None:
        for older, newer in zip(self.records, self.records[1:], strict=False):
            if newer.epoch <= older.epoch or newer.start_offset < older.start_offset:
                raise RemoteProtocolError(
                    f"epoch {newer.epoch} at {newer.start_offset} cannot follow "
                    f"epoch {older.epoch} at {older.start_offset}"
                )

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def newest(self) -> EpochRecord | None:
        return self.records[-1] if self.records else None

    @property
    def epoch(self) -> int:
        """The newest epoch known here; 0 for a classic log."""
        return self.records[-1].epoch if self.records else 0

    @property
    def was_failed_over(self) -> bool:
        """Has mastership changed since there are epochs?"""
        return self.epoch > 1

    def epoch_at(self, log_end: int) -> int:
        """Return the newest epoch of a log that ends here; candidates are ranked by it."""
        return self.cut(log_end).epoch

    def begin(self, record: EpochRecord, log_end: int) -> EpochHistory:
        """Return the history with a new term at the end of the log.

        Errors: LocalProtocolError when the term is not newer, or does not begin there.
        """
        if record.epoch <= self.epoch:
            raise LocalProtocolError(f"epoch {record.epoch} is not newer than {self.epoch}")
        if record.start_offset != log_end:
            raise LocalProtocolError(
                f"epoch {record.epoch} begins at {record.start_offset}, the log ends at {log_end}"
            )
        return EpochHistory((*self.cut(log_end).records, record)[-RECORDS_MAX:])

    def cut(self, log_end: int) -> EpochHistory:
        """Return the history without the records that start behind this end of the log."""
        return EpochHistory(
            tuple(record for record in self.records if record.start_offset <= log_end)
        )

    def meet(self, our_end: int, theirs: EpochHistory, their_end: int) -> Meeting:
        """Return the offset up to which our log, of `our_end` bytes, and another are the same."""
        numbers = {record.epoch: index for index, record in enumerate(theirs.records)}
        for index in range(len(self.records) - 1, -1, -1):
            record = self.records[index]
            other = numbers.get(record.epoch)
            if other is None or theirs.records[other] != record:
                continue
            common = min(self._end(index, our_end), theirs._end(other, their_end))
            if common >= record.start_offset:
                return Meeting(common, record.epoch)
            # One of the two nodes has the record of this term, but no byte of it yet.
        firsts = [history.records[0] for history in (self, theirs) if history.records]
        if any(first.epoch > 1 for first in firsts):
            # One node has dropped its oldest records, so no common epoch is known.
            return Meeting(0, 0)
        return Meeting(min([our_end, their_end, *(first.start_offset for first in firsts)]), 0)

    def encode(self) -> bytes:
        """Return all records as bytes, 33 for each."""
        return b"".join(
            _RECORD.pack(
                record.epoch,
                record.home_id,
                record.sync,
                record.start_offset,
                record.began_wall_ms,
                record.nonce,
            )
            for record in self.records
        )

    @classmethod
    def decode(cls, data: bytes) -> EpochHistory:
        """Read a history. Errors: RemoteProtocolError if the bytes are none."""
        if len(data) % _RECORD.size or len(data) > RECORDS_MAX * _RECORD.size:
            raise RemoteProtocolError(f"{len(data)} bytes are no epoch history")
        return cls(tuple(_records(data)))

    def _end(self, index: int, log_end: int) -> int:
        """Offset at which the term of this record ends in the log."""
        following = self.records[index + 1 : index + 2]
        return min([log_end, *(record.start_offset for record in following)])


def _records(data: bytes) -> Iterable[EpochRecord]:
    for epoch, home_id, sync, start_offset, wall_ms, nonce in _RECORD.iter_unpack(data):
        yield EpochRecord(epoch, start_offset, home_id, nonce, sync, wall_ms)
