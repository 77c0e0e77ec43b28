"""The open transactions of a master: half messages, commits, rollbacks.

Theory of operation. All state is in the log (`records`) and in two offsets of the group
CID_RMQ_SYS_TRANS: the progress in the half queue and in the op queue. `load` reads from there what
is open, when this broker becomes master. From then on this broker appends every record of the two
queues itself, so the table is always exact: a request to end a transaction that is not in it is
rejected, and nothing is committed twice.

The committed message is appended first, then the op message, in one pass with nothing between them.
A crash or a switch can separate the two, and then the committed message is among the last of its
queue. `load` looks there, and counts such a transaction as finished.

If the store does not take the op message of a commit, the pipeline appends it before any other
message (`PutPipeline.owed`), so the commit stays among the last. Op messages of records that were
copied are *owed* here: they are written before another transaction ends.
"""

from __future__ import annotations

from typing import Final

from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.topics import TopicTable
from trioha.broker.transactions.pending import (
    HalfCopy,
    PendingTransactions,
)
from trioha.broker.transactions.progress import TransactionProgress
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.records import (
    committed_message,
    copy_of,
    copy_of_sent,
    destination_of,
    finished_offsets,
    is_anonymous_copy,
    op_message,
    origin_of,
    producer_group,
)
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Instant
from trioha.store.interface import PutMessage, PutResult
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import (
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from trioha.wire.properties import UNIQ_KEY
from trioha.wire.record import Record
from trioha.wire.refusals import system_error

PENDING_MAX: Final = 50_000
"""Open transactions of one broker; more half messages are rejected. A broker that takes over reads
all of them first, 15 µs each, and the leader of a DLEDGER group must be done before its followers
miss it."""


class Transactions:
    """The open transactions of one broker, and what ends them."""

    def __init__(
        self,
        config: BrokerConfig,
        queues: TransactionQueues,
        progress: TransactionProgress,
        pipeline: PutPipeline,
        topics: TopicTable,
        store_host: bytes,
    ) -> None:
        self.config = config
        self.pending = PendingTransactions()
        self.progress = progress
        self.pending_max = PENDING_MAX
        self.committed_count = self.rolled_back_count = 0
        self._queues = queues
        self._pipeline = pipeline
        self._topics = topics
        self._store_host = store_host
        # Queue offset in the half queue, and whether a later copy carries the transaction on.
        self._owed: list[tuple[int, bool]] = []

    @property
    def reserved_ms(self) -> int:
        """Time after which the log may delete a half message."""
        return self.config.file_reserved_time * 3_600_000

    @property
    def owes(self) -> bool:
        """Op messages are still to be written."""
        return bool(self._owed)

    # Taking over.

    def forget(self) -> None:
        """Forget the table: another broker is master."""
        self.pending = PendingTransactions()
        self._owed.clear()
        self._pipeline.owed = None
        self.progress.forget()

    def load(self) -> None:
        """Read what is open. The queues must be up to the log; blocks for up to half a second."""
        self.forget()
        if self._pipeline.role is BrokerRole.SLAVE:
            return
        (begin, end), op_span = self._queues.spans()
        self.pending.end = begin
        finished: set[int] = set()
        copied: set[int] = set()
        for record in self._queues.records(TRANS_OP_HALF_TOPIC, *op_span):
            done = finished_offsets(record)
            (copied if done.is_copied else finished).update(done.offsets)
        seen: dict[tuple[str | None, str, int], int] = {}
        commits: dict[tuple[str, int], frozenset[int]] = {}
        for record in self._queues.records(TRANS_HALF_TOPIC, begin, end, finished | copied):
            if origin_of(record) in finished:
                # Java's broker finishes a copy by the offset of the half message.
                self._owed.append((record.queue_offset, False))
                continue
            # Its copies do not name their half message. After a crash both records may be
            # behind the progress.
            key = record.properties.get(UNIQ_KEY), producer_group(record), record.born_timestamp
            if is_anonymous_copy(record) and key in seen:
                older = self.pending.get(seen[key])
                if older is None:
                    # A copy of a half message that is committed.
                    self._owed.append((record.queue_offset, False))
                    continue
                self.pending.finish(older.origin)
                self._owed.append((older.queue_offset, True))
            copy = self.take_in(record)
            seen[key] = copy.origin
            if copy.phy_offset in self._commits_at(record, commits):
                self.pending.finish(copy.origin)
                self._owed.append((copy.queue_offset, False))
        self.pending.end = end

    def _commits_at(
        self, record: Record, known: dict[tuple[str, int], frozenset[int]]
    ) -> frozenset[int]:
        """Return offsets of half messages whose commits are the last in the queue of this one.

        A master may have stored the commit and not the op message.
        """
        try:
            destination = destination_of(record)
        except ValueError:
            return frozenset()
        if destination not in known:
            known[destination] = frozenset(self._queues.commits_at_end(*destination))
        return known[destination]

    def take_in(self, record: Record) -> HalfCopy:
        """Note a record that was appended to the half queue."""
        config = self.config
        copy = copy_of(
            record,
            config.transaction_time_out,
            config.transaction_check_interval,
            self.reserved_ms,
        )
        older = self.pending.add(copy)
        if older is not None:
            self._owed.append((older.queue_offset, True))
        return copy

    # Half messages.

    def admit(self, wall_ms: int) -> None:
        """Prepare for a half message: check the limit, and create the topics of the two queues.

        Errors: CommandError when this broker holds too many transactions or topics.
        """
        if len(self.pending) >= self.pending_max:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST] {len(self.pending)} transactions are open on this broker; "
                "`trioha transactions list` shows whose",
            )
        for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
            self._topics.create_internal(topic, 1, Perm.READ | Perm.WRITE, wall_ms)

    def prepared(self, message: PutMessage, result: PutResult) -> None:
        """Note that a half message was appended."""
        timeout_ms = self.config.transaction_time_out
        self.pending.add(copy_of_sent(message, result, timeout_ms, self.reserved_ms))

    # Ends.

    def find(self, queue_offset: int, phy_offset: int, group: str) -> tuple[HalfCopy, Record]:
        """Return the open transaction of a half message, or of a copy of it, at these offsets.

        Errors: CommandError when there is none, or when it is another group's.
        """
        # Only a queue entry is proof that a record begins there: bodies can hold anything.
        record = self._queues.record_of(TRANS_HALF_TOPIC, 0, queue_offset)
        if record is None or record.phy_offset != phy_offset:
            raise system_error(
                f"Find prepared transaction message failed: none has queue offset {queue_offset} "
                f"and log offset {phy_offset}"
            )
        if producer_group(record) != group:
            raise system_error(
                f"The producer group wrong: the transaction is not one of {group!r:.80}"
            )
        copy = self.pending.get(origin_of(record))
        newest: Record | None = record
        if copy is not None and copy.phy_offset != phy_offset:
            newest = self._queues.record_at(copy.phy_offset)
        if copy is None or newest is None:
            raise system_error(
                f"the transaction at queue offset {queue_offset} is finished: committed, rolled "
                "back, or discarded after transactionCheckMax checks"
            )
        return copy, newest

    def commit(self, copy: HalfCopy, record: Record, wait: bool, instant: Instant) -> PutOutcome:
        """Append the message for consumers, and the op message.

        Errors: CommandError when the half message does not say where it belongs.
        """
        refusal = self.pay(instant)
        if refusal is not None:
            return refusal
        try:
            message = committed_message(record)
        except ValueError as error:
            raise system_error(f"the half message cannot be committed: {error}") from None
        outcome = self._pipeline.put(message, wait=wait, instant=instant)
        if outcome.is_stored:
            self.committed_count += 1
            self.finish(copy, instant)
        return outcome

    def roll_back(self, copy: HalfCopy, wait: bool, instant: Instant) -> PutOutcome:
        """Append the op message alone: consumers never see the message."""
        refusal = self.pay(instant)
        if refusal is not None:
            return refusal
        message = op_message(copy.queue_offset, False, self._store_host, instant.wall_ms)
        outcome = self._pipeline.put(message, wait=wait, instant=instant)
        if outcome.is_stored:
            self.rolled_back_count += 1
            self.pending.finish(copy.origin)
            self.progress.changed(instant.wall_ms)
        return outcome

    def finish(self, copy: HalfCopy, instant: Instant) -> None:
        """Note the end of a transaction, and write it into the op queue."""
        self.pending.finish(copy.origin)
        message = op_message(copy.queue_offset, False, self._store_host, instant.wall_ms)
        if not self._pipeline.put(message, wait=False, instant=instant).is_stored:
            self._pipeline.owed = message
        self.progress.changed(instant.wall_ms)

    def pay(self, instant: Instant) -> PutOutcome | None:
        """Append the op messages that are owed; return the outcome of the one that was rejected."""
        while self._owed:
            queue_offset, is_copied = self._owed[0]
            message = op_message(queue_offset, is_copied, self._store_host, instant.wall_ms)
            outcome = self._pipeline.put(message, wait=False, instant=instant)
            if not outcome.is_stored:
                return outcome
            self._owed.pop(0)
            self.progress.changed(instant.wall_ms)
        return None

    def forgive(self) -> None:
        """Write no op message for the copy that was replaced last."""
        self._owed.pop()
