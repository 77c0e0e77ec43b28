"""The path of a message from its handler until it is safe (CommitLog.asyncPutMessage, HAService).

What a PUT_OK promises:

=========================  ===================================  ================================
mode                       the message survives                 waits for
=========================  ===================================  ================================
ASYNC_MASTER, async flush  the broker process dying             append
ASYNC_MASTER, sync flush   power loss of this machine           fsync (group commit)
SYNC_MASTER, async flush   loss of the master machine           append + ack of a slave
SYNC_MASTER, sync flush    both of the two above                fsync + ack of a slave
any, property WAIT=false   the broker process dying             append
DLEDGER group, always      loss of a minority of the machines   fsync on a majority (the commit)
=========================  ===================================  ================================

Theory of operation. The append itself stores a message or rejects it. A stored message is never
reported as rejected. FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE and FLUSH_SLAVE_TIMEOUT all say:
stored here, but the promise above was not kept in time. When both waits fail, the producer
receives the slave's status, as in RocketMQ.

In a DLEDGER group no such answer is possible: a message that no majority holds yet may be cut off
the log again. If the send is not confirmed in time, or this broker ceases to lead, the producer
receives SYSTEM_ERROR and "outcome unknown", as from DLedgerCommitLog (a Java client tries again);
and WAIT=false does not count, since "stored" would promise nothing at all.

A waiting send is filed by the offset it needs and the deadline it has; it is never woken to look
again. `on_flushed` and `release_acknowledged` are called once per batch and release every waiting
send below an offset.

An acknowledgement takes one path, early or late: link, `Replicas`, `BrokerCore.on_acked`, here,
answer. One that comes after a send's deadline finds no waiting send: the producer was answered
FLUSH_SLAVE_TIMEOUT by then, and the message stays stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from trioha.broker.wait_histogram import PutTimes, WaitHistogram
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.ha.group_commit import GroupCommit
from trioha.remoting.channel import Channel, Instant
from trioha.store.interface import MessageStore
from trioha.store.put_values import PutBatch, PutMessage, PutResult, PutStatus
from trioha.wire.codes import ResponseCode
from trioha.wire.names import FOLLOWER_REMARK, OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand

WAITERS_MAX = 65_536
"""Puts that wait at a time: two seconds' worth at the rate we aim for, some 40 MB of memory."""

# Looking a member up in its enum costs more than the comparison it is for.
_SLAVE: Final = BrokerRole.SLAVE
_SYNC_MASTER: Final = BrokerRole.SYNC_MASTER
_PUT_OK: Final = PutStatus.PUT_OK
_SUCCESS: Final = ResponseCode.SUCCESS
_SLAVE_NOT_AVAILABLE: Final = ResponseCode.SLAVE_NOT_AVAILABLE
_FLUSH_DISK_TIMEOUT: Final = ResponseCode.FLUSH_DISK_TIMEOUT
_FLUSH_SLAVE_TIMEOUT: Final = ResponseCode.FLUSH_SLAVE_TIMEOUT
_SYSTEM_ERROR: Final = ResponseCode.SYSTEM_ERROR
_CODES: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.NOT_WRITABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
UNCONFIRMED: Final = (
    f"{OUTCOME_UNKNOWN}: no majority of the group confirmed it within slaveTimeout, or before this "
    "broker ceased to lead; it may have happened or not"
)
_REMARKS: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but not on disk within syncFlushTimeout",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, but no slave is near enough to wait for",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, but no slave acknowledged within slaveTimeout",
    ResponseCode.SYSTEM_ERROR: UNCONFIRMED,
}


SLAVE_REMARK: Final = "this broker is a slave: send to its master"


class ReplicaView(Protocol):
    """The state of the slaves that a put depends on."""

    @property
    def push2slave_max_offset(self) -> int:
        """Offset below which every byte is on a slave."""

    @property
    def by_quorum(self) -> bool:
        """A DLEDGER group: nothing is stored until a majority has it."""

    def slave_available(self, need_offset: int) -> bool:
        """Return whether a slave follows, less than haSlaveFallbehindMax behind `need_offset`."""


class PutOutcome:
    """Outcome of a put. `result` is None when the message never reached the store."""

    __slots__ = ("code", "remark", "result", "wait_flush", "wait_slave")

    def __init__(
        self,
        code: ResponseCode,
        result: PutResult | None = None,
        remark: str | None = None,
        wait_flush: bool = False,
        wait_slave: bool = False,
    ) -> None:
        self.code = code
        self.result = result
        self.remark = remark
        self.wait_flush = wait_flush
        self.wait_slave = wait_slave

    @property
    def is_stored(self) -> bool:
        return self.result is not None

    @property
    def must_wait(self) -> bool:
        return self.wait_flush or self.wait_slave


class PutPipeline:
    """Appends messages and holds the sends that wait for disk or slave."""

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        replicas: ReplicaView,
        *,
        waiters_max: int = WAITERS_MAX,
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._by_quorum = replicas.by_quorum
        self._late = _SYSTEM_ERROR if self._by_quorum else _FLUSH_SLAVE_TIMEOUT
        # A commit is an fsync on a majority, so no put waits for this machine's own fsync.
        self._sync_flush = (
            config.flush_disk_type is FlushDiskType.SYNC_FLUSH and not self._by_quorum
        )
        self._sync_flush_timeout_ms = config.sync_flush_timeout
        self._slave_timeout_ms = config.slave_timeout
        self._waiters_max = waiters_max
        self._flush: GroupCommit[_Waiter] = GroupCommit()
        self._transfer: GroupCommit[_Waiter] = GroupCommit()
        self.role = config.broker_role
        self.owed: PutMessage | None = None
        """The op message of a commit that is stored: nothing else may be stored before it."""
        self.roles_taken = 0
        """Count of roles and pauses: after each the log may have been cut, or handed over."""
        self.slave_remark = FOLLOWER_REMARK if self._by_quorum else SLAVE_REMARK
        """Remark for a producer that sent to the wrong member."""
        # Counted since the start.
        self.put_bytes: dict[str, int] = {}
        """Bytes of log, by topic."""
        self.slave_waits = WaitHistogram()
        """Waits that an acknowledgement ended."""
        self._other_waits = WaitHistogram()
        """Times of the puts that the disk or a deadline answered."""
        self._later_in_batch = 0
        """Messages behind the first one of their batch: a batch is one put."""
        self._untimed = 0
        """Puts that a lost slave or the end of a role answered."""
        self.refused_count = 0
        self.slave_timeout_count = 0
        self.slave_unavailable_count = 0

    @property
    def has_flush_waiters(self) -> bool:
        """A send waits for the disk, so the next flush is urgent."""
        return len(self._flush) > 0

    @property
    def has_slave_waiters(self) -> bool:
        """A send waits for a slave, so the newest bytes of the log must leave at once."""
        return len(self._transfer) > 0

    @property
    def waiter_count(self) -> int:
        return len(self._flush) + len(self._transfer)

    @property
    def _slave_awaited_since_ms(self) -> int | None:
        """Time from which on the oldest waiting send has waited for a slave, or None."""
        deadline_ms = self._transfer.next_deadline_ms
        return None if deadline_ms is None else deadline_ms - self._slave_timeout_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to do, or None."""
        flush_ms = self._flush.next_deadline_ms
        transfer_ms = self._transfer.next_deadline_ms
        if flush_ms is None or transfer_ms is None:
            return transfer_ms if flush_ms is None else flush_ms
        return min(flush_ms, transfer_ms)

    def put(self, message: PutMessage, *, wait: bool, instant: Instant) -> PutOutcome:
        """Append one message. `wait` is what its WAIT property asks for."""
        must_wait = (wait or self._by_quorum) and (self._sync_flush or self.role is _SYNC_MASTER)
        if self.role is _SLAVE or (must_wait and self.waiter_count >= self._waiters_max):
            return self._refusal()
        if self.owed is not None and (refusal := self._pay(self.owed, instant)) is not None:
            return refusal
        result = self._store.put_message(message, instant.wall_ms)
        put_bytes = self.put_bytes
        put_bytes[message.topic] = put_bytes.get(message.topic, 0) + result.size
        if must_wait or result.status is not _PUT_OK:
            return self._outcome_of(result, must_wait, 1)
        return PutOutcome(_SUCCESS, result)

    def put_batch(self, batch: PutBatch, *, wait: bool, instant: Instant) -> PutOutcome:
        """Append messages of one queue next to each other: all or none."""
        must_wait = (wait or self._by_quorum) and (self._sync_flush or self.role is _SYNC_MASTER)
        if self.role is _SLAVE or (must_wait and self.waiter_count >= self._waiters_max):
            return self._refusal()
        if self.owed is not None and (refusal := self._pay(self.owed, instant)) is not None:
            return refusal
        result = self._store.put_batch(batch, instant.wall_ms)
        self.put_bytes[batch.topic] = self.put_bytes.get(batch.topic, 0) + result.size
        count = len(batch.entries)
        if result.status is _PUT_OK:
            self._later_in_batch += count - 1
        return self._outcome_of(result, must_wait, count)

    def _pay(self, owed: PutMessage, instant: Instant) -> PutOutcome | None:
        """Append the message that is owed; return the outcome if the store rejects it."""
        self.owed = None
        outcome = self.put(owed, wait=False, instant=instant)
        if outcome.is_stored:
            return None
        self.owed = owed
        return outcome

    def _outcome_of(self, result: PutResult, must_wait: bool, count: int) -> PutOutcome:
        if result.status is not _PUT_OK:
            self.refused_count += count
            return PutOutcome(_CODES[result.status], None, result.reason)
        outcome = PutOutcome(_SUCCESS, result)
        if must_wait:
            outcome.wait_flush = self._sync_flush
            if self.role is _SYNC_MASTER:
                if self._replicas.slave_available(result.phy_offset + result.size):
                    outcome.wait_slave = True
                else:
                    # Answered at once, or after the fsync if the put waits for that too: the client
                    # may then rely on this machine's disk at least.
                    self.slave_unavailable_count += count
                    outcome.code = _SLAVE_NOT_AVAILABLE
        return outcome

    def when_safe(
        self, outcome: PutOutcome, instant: Instant, channel: Channel, response: RemotingCommand
    ) -> None:
        """Send `response` with the final code, once: now, when all is safe, or at a deadline."""
        result = outcome.result
        assert result is not None, outcome.code
        need = result.phy_offset + result.size
        waiter = _Waiter(channel, response, outcome.code)
        if outcome.wait_flush and self._store.flushed_offset < need:
            waiter.pending += 1
            self._flush.add(need, instant.now_ms + self._sync_flush_timeout_ms, waiter)
        if outcome.wait_slave and self._replicas.push2slave_max_offset < need:
            waiter.pending += 1
            self._transfer.add(need, instant.now_ms + self._slave_timeout_ms, waiter)
        if not waiter.pending:
            waiter.answer()

    def on_flushed(self, offset: int, now_ms: int) -> None:
        """Note that everything below `offset` is on disk."""
        deadline_ms = self._flush.next_deadline_ms
        released = self._flush.advance(offset)
        for waiter in released:
            waiter.release()
        if deadline_ms is not None:
            took_ms = now_ms - deadline_ms + self._sync_flush_timeout_ms
            self._count_answered(released, took_ms)

    def release_acknowledged(self, now_ms: int) -> None:
        """Answer every waiting send that the acknowledgements so far allow. HOT."""
        since_ms = self._slave_awaited_since_ms
        released = self._transfer.advance(self._replicas.push2slave_max_offset)
        if not released:
            return
        if since_ms is not None:
            self.slave_waits.add(len(released), now_ms - since_ms)
        for waiter in released:
            waiter.release()
        if self._sync_flush and since_ms is not None:
            # Those that wait for the disk still are counted when it has answered them.
            self._other_waits.add(_answered(released) - len(released), now_ms - since_ms)

    def on_slave_lost(self) -> None:
        """Answer all waiting sends if no other slave can confirm them: one has gone or stalled."""
        if len(self._transfer) and not self._replicas.slave_available(self._transfer.first_offset):
            drained = self._transfer.drain()
            for waiter in drained:
                self.slave_unavailable_count += 1
                waiter.fail(ResponseCode.SLAVE_NOT_AVAILABLE)
            self._untimed += _answered(drained)

    def expire(self, now_ms: int) -> None:
        """Answer every waiting send whose timeout has expired."""
        expired = self._flush.expire(now_ms)
        for waiter in expired:
            waiter.fail(ResponseCode.FLUSH_DISK_TIMEOUT)
        self._count_answered(expired, self._sync_flush_timeout_ms)
        expired = self._transfer.expire(now_ms)
        for waiter in expired:
            self.slave_timeout_count += 1
            waiter.fail(self._late)
        self._count_answered(expired, self._slave_timeout_ms)

    def give_up(self) -> None:
        """Answer every waiting send as if its timeout had expired: the role or the node ends."""
        of_disk, of_slave = self._flush.drain(), self._transfer.drain()
        for waiter in of_disk:
            waiter.fail(ResponseCode.FLUSH_DISK_TIMEOUT)
        for waiter in of_slave:
            self.slave_timeout_count += 1
            waiter.fail(self._late)
        self._untimed += len({*of_disk, *of_slave})

    def put_times(self, put_total: int) -> PutTimes:
        """Return how long the puts took, of `put_total` messages that the store has taken.

        Only waits are timed: a put without one was answered at once.
        """
        counts = [
            waits + others
            for waits, others in zip(self.slave_waits.counts, self._other_waits.counts, strict=True)
        ]
        waiting = len({*self._flush, *self._transfer})
        puts = put_total - self._later_in_batch - self._untimed - waiting
        counts[0] += puts - sum(counts)
        return PutTimes(counts, max(self.slave_waits.longest_ms, self._other_waits.longest_ms))

    def _count_answered(self, waiters: list[_Waiter], took_ms: int) -> None:
        """Count those that no acknowledgement answered, but the disk or a deadline."""
        if count := _answered(waiters):
            self._other_waits.add(count, took_ms)

    def _refusal(self) -> PutOutcome:
        """Return the outcome of a refused put: nothing is stored yet, so either code is true."""
        self.refused_count += 1
        if self.role is _SLAVE:
            return PutOutcome(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                None,
                self.slave_remark,
            )
        return PutOutcome(
            ResponseCode.SYSTEM_BUSY,
            None,
            f"[REJECTREQUEST] {self.waiter_count} messages already wait for disk or slave",
        )


def _answered(waiters: Iterable[_Waiter]) -> int:
    """Count those that wait for nothing else."""
    return sum(1 for waiter in waiters if not waiter.pending)


def remark_of(code: ResponseCode) -> str | None:
    """Return why a stored message is not answered with SUCCESS, in words."""
    return _REMARKS.get(code)


class _Waiter:
    """One put; filed under the disk, the slave, or both."""

    __slots__ = ("channel", "code", "pending", "response")

    def __init__(self, channel: Channel, response: RemotingCommand, code: ResponseCode) -> None:
        self.channel = channel
        self.response = response
        self.code = code
        self.pending = 0

    def release(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.answer()

    def fail(self, code: ResponseCode) -> None:
        # The slave's status overrides the disk's, whichever came first.
        if code is not _FLUSH_DISK_TIMEOUT or self.code is _SUCCESS:
            self.code = code
        self.release()

    def answer(self) -> None:
        response, code = self.response, self.code
        if code is not _SUCCESS:
            response.code = code
            response.remark = remark_of(code)
        self.channel.send_nowait(response)
