"""Holds the answer to a change of metadata until the change is as safe as the mode promises.

The answer to an offset commit, a topic or group change, a deletion, waits as a put's does: for the
fsync with sync flush, in SYNC_MASTER for a slave's acknowledgement. One-way commits and those that
ride on pulls have no answer, so nothing waits for them; they travel all the same.

When an answer begins to wait, the change is made here and cannot be rejected any more. For a put,
three codes that stock producers know say so. For requests of this kind stock clients know only
SUCCESS and failure, and after a failure mqadmin would report that the topic was not created. So the
answer is always SUCCESS. If the promise was not kept in time the remark says which, and
`unsafe_count` counts it.

The answer to the question how far a group is waits in the same way, for the changes before it: a
failover would take back what it tells, and a one-way commit may have just arrived. It gets no
remark, for nothing was promised.

No answer waits for a slave that only polls, as RocketMQ's does: nothing tells when it has polled.
A slave answers commits of consumers at once, before it tells the master of them.

In a DLEDGER group a change that no majority holds yet may be undone, so it cannot be called a
success: the answer is SYSTEM_ERROR with "outcome unknown", and the client asks again.

Accounts are changed by a thread, behind their request. If this broker pauses for a switch, or takes
another role, before such a change is made, the broker that is master next may be without it, and
its text then takes the place of ours: the answer is SYSTEM_ERROR with "outcome unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trioha.broker.metadata import Metadata
from trioha.broker.put_message import UNCONFIRMED, PutPipeline
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.ha.group_commit import GroupCommit
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import ResponseCode
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand

WAITERS_MAX = 65_536

NOT_ON_DISK: Final = "done, but not on disk within syncFlushTimeout"
NO_SLAVE: Final = "done, but no slave is near enough to wait for"
NOT_ON_SLAVE: Final = "done, but no slave acknowledged within slaveTimeout"
TOO_MANY: Final = "done, but too many wait for disk or slave already"
OVERTAKEN: Final = (
    f"{OUTCOME_UNKNOWN}: this broker paused for a switch, or took another role, before the change "
    "was made; ask the master what it has"
)

LateAnswer = Callable[[RemotingCommand, Instant], RemotingCommand | None]
"""Takes the response to a change that was made behind its request; returns what to send now."""


class MetadataReplicas(Protocol):
    """The state of the slaves that a change depends on: `trioha.ha.replicas.Replicas`."""

    @property
    def by_quorum(self) -> bool:
        """A DLEDGER group: nothing is done until a majority has it."""

    @property
    def push2slave_max_metadata(self) -> int:
        """Position up to which a slave holds every change; -1 for none."""

    @property
    def metadata_available(self) -> bool:
        """True if a slave that gets changes follows and is not far behind."""


class MetadataWaits:
    """Answers that wait for disk or slave, by position."""

    def __init__(
        self,
        metadata: Metadata,
        pipeline: PutPipeline,
        replicas: MetadataReplicas,
        config: BrokerConfig,
        events: EventSink,
    ) -> None:
        self.unsafe_count = 0
        """Answers since the start that kept less than the mode promises."""
        self._metadata = metadata
        self._pipeline = pipeline
        self._replicas = replicas
        self._events = events
        self._by_quorum = replicas.by_quorum
        self._not_on_slave = UNCONFIRMED if self._by_quorum else NOT_ON_SLAVE
        self._sync_flush = (
            config.flush_disk_type is FlushDiskType.SYNC_FLUSH and not self._by_quorum
        )
        self._sync_flush_timeout_ms = config.sync_flush_timeout
        self._slave_timeout_ms = config.slave_timeout
        self._flush: GroupCommit[_Waiter] = GroupCommit()
        self._transfer: GroupCommit[_Waiter] = GroupCommit()
        self._told = ""

    @property
    def has_flush_waiters(self) -> bool:
        return len(self._flush) > 0

    @property
    def has_slave_waiters(self) -> bool:
        """True if an answer waits for a slave, so that the changes must leave at once."""
        return len(self._transfer) > 0

    @property
    def waiter_count(self) -> int:
        return len(self._flush) + len(self._transfer)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to do, or None."""
        flush_ms, transfer_ms = self._flush.next_deadline_ms, self._transfer.next_deadline_ms
        if flush_ms is None or transfer_ms is None:
            return transfer_ms if flush_ms is None else flush_ms
        return min(flush_ms, transfer_ms)

    def guard(self, handler: Handler) -> Handler:
        """Return `handler` with its answer held until its change is safe."""

        def handle(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            response = handler(channel, request, instant)
            if response is None or request.is_oneway:
                return response
            return self.when_safe(channel, response, instant)

        return handle

    def later(self, channel: Channel, request: RemotingCommand, *, shared: bool) -> LateAnswer:
        """Return the function that answers a change which is queued now and made later.

        `shared`: the other brokers of the set or group get the change too.
        """
        roles_taken = self._pipeline.roles_taken

        def answer(response: RemotingCommand, instant: Instant) -> RemotingCommand | None:
            if request.is_oneway:
                return None
            if not shared or response.code != ResponseCode.SUCCESS:
                return response
            if self._pipeline.roles_taken != roles_taken:
                response.code, response.remark = ResponseCode.SYSTEM_ERROR, OVERTAKEN
                return response
            return self.when_safe(channel, response, instant)

        return answer

    def on_synced(self, position: int) -> None:
        """Note that every change up to `position` is on disk."""
        self._metadata.synced_position = position
        for waiter in self._flush.advance(position):
            self._release(waiter)

    def release_acknowledged(self) -> None:
        """Send every answer that the acknowledgements so far allow. HOT."""
        if len(self._transfer):
            for waiter in self._transfer.advance(self._replicas.push2slave_max_metadata):
                self._release(waiter)

    def on_slave_lost(self) -> None:
        """Answer all that wait if no other slave can confirm them: one has gone or stalled."""
        if len(self._transfer) and not self._replicas.metadata_available:
            for waiter in self._transfer.drain():
                self._release(waiter, NO_SLAVE)

    def expire(self, now_ms: int) -> None:
        """Answer every request whose timeout has expired."""
        for waiter in self._flush.expire(now_ms):
            self._release(waiter, NOT_ON_DISK)
        for waiter in self._transfer.expire(now_ms):
            self._release(waiter, self._not_on_slave)

    def give_up(self) -> None:
        """Answer every request as if its timeout had expired: the role or the node ends."""
        for waiter in self._flush.drain():
            self._release(waiter, NOT_ON_DISK)
        for waiter in self._transfer.drain():
            self._release(waiter, self._not_on_slave)

    def when_safe(
        self,
        channel: Channel,
        response: RemotingCommand,
        instant: Instant,
        *,
        is_change: bool = True,
    ) -> RemotingCommand | None:
        """Return the response if all changes so far are safe; else it is sent when they are.

        `is_change`: false for a question, whose answer waits for the changes before it.
        """
        role = self._pipeline.role
        is_sync = self._by_quorum or role is BrokerRole.SYNC_MASTER
        # A leader that hands over takes no puts, as if it were a slave; its changes wait.
        is_slave = role is BrokerRole.SLAVE and not self._by_quorum
        if is_slave or not (is_sync or self._sync_flush):
            return response
        need = self._metadata.position_of_changes
        waiter = _Waiter(channel, response, is_change)
        if self.waiter_count >= WAITERS_MAX:
            waiter.remark = UNCONFIRMED if self._by_quorum else TOO_MANY
        else:
            if self._sync_flush and self._metadata.synced_position < need:
                waiter.pending += 1
                self._flush.add(need, instant.now_ms + self._sync_flush_timeout_ms, waiter)
            if is_sync and self._replicas.push2slave_max_metadata < need:
                if self._replicas.metadata_available:
                    waiter.pending += 1
                    self._transfer.add(need, instant.now_ms + self._slave_timeout_ms, waiter)
                else:
                    waiter.remark = NO_SLAVE
        if waiter.pending:
            return None
        return self._answer(waiter)

    def _release(self, waiter: _Waiter, remark: str = "") -> None:
        # The slave's status overrides the disk's, as for puts.
        if remark and (remark is not NOT_ON_DISK or not waiter.remark):
            waiter.remark = remark
        waiter.pending -= 1
        if not waiter.pending:
            waiter.channel.send_nowait(self._answer(waiter))

    def _answer(self, waiter: _Waiter) -> RemotingCommand:
        remark = waiter.remark
        if not waiter.is_change:
            return waiter.response
        if remark:
            waiter.response.remark = remark
            if self._by_quorum:
                waiter.response.code = ResponseCode.SYSTEM_ERROR
            self.unsafe_count += 1
        if remark != self._told:
            # Once when it begins and once when it is over: the counter has the rest.
            self._told = remark
            self._events.event("metadata_safe", safe=not remark, reason=remark)
        return waiter.response


class _Waiter:
    """One answer; filed under the disk, the slave, or both."""

    __slots__ = ("channel", "is_change", "pending", "remark", "response")

    def __init__(self, channel: Channel, response: RemotingCommand, is_change: bool) -> None:
        self.channel = channel
        self.response = response
        self.is_change = is_change
        self.pending = 0
        self.remark = ""
