"""Pulls: requests 11 and 361 (PullMessageProcessor.java).

Theory of operation. The checks run in RocketMQ's order, since clients act on the code they get:
broker readable, group known (it is created on first use) and allowed, topic known and readable,
queue there, subscription known. The store's finding then becomes one of four codes:

====================  ====  =========================================================
finding               code  nextBeginOffset
====================  ====  =========================================================
FOUND                   0   behind the last entry looked at
NO_MESSAGE_IN_QUEUE    19   0; code 21 if the client asked for another offset
OFFSET_OVERFLOW_ONE    19   the same: it has everything
OFFSET_FOUND_NULL      19   the next consume queue file
NO_MATCHED_MESSAGE     20   behind the last entry looked at: a selective consumer gets on
MESSAGE_WAS_REMOVING   20   behind the last entry looked at
NOT_IN_MEMORY          19   the same: it was not read from disk in time
OFFSET_TOO_SMALL       21   the minimum
OFFSET_OVERFLOW_BADLY  21   the maximum
====================  ====  =========================================================

A store that is asked to read no disk says NOT_IN_MEMORY for messages that have left the page cache:
such a pull waits in `cold` until a thread has read them (`trioha.broker.cold_reads`).

On 21 a client drops the queue and jumps, so a slave, which may merely lag, says 20 with the
client's own offset and the group's preferred broker instead, unless `offsetCheckInSlave` is set.
In a DLEDGER group every follower does so, even with `offsetCheckInSlave`. The leader corrects an
offset only when it is certain that no other member leads (`confirm`): a leader that was deposed
without its knowledge may lag too.

A pull with code 19 is parked when the client allows it, once: the second look, after a message or
at the deadline, gives the answer. The group's offset that comes with a pull is committed at the
first look, parked or not, and only by a master; clients do not send it to slaves either.

A C++ client whose cache of a queue passes 1000 messages does not pull from that queue for a whole
second, in which it runs dry. Its pull shows the size of the cache: the distance from the offset it
commits to the one it asks for. So from 512 messages on the broker delays its pulls, the longer the
more it has cached (`_pace_ms`): a slow client does not notice, a quick one never comes to its
limit. Measured, a client drains a backlog 1.6 times as fast.

`suggestWhichBrokerId` sends a group that reads further behind than memory reaches (the store's 40 %
rule) to `whichBrokerWhenConsumeSlowly` and others to `brokerId`, if `slaveReadEnable`; else to 0. A
master also sends a group away whose pulls wait for its disk. The slave may have the same messages
in memory still. So it keeps the group until that reads what every node counts as being in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from trioha.broker.clients import ConsumerManager
from trioha.broker.cold_reads import LOOKS_MAX, ColdPull, ColdReads
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pull_check import PullCheck
from trioha.broker.pull_hold import ParkedPull, PullHold
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import GetResult, GetStatus, MessageFilter, MessageStore, RecordFilter
from trioha.wire.codes import (
    FRAME_BYTES_MAX,
    LanguageCode,
    PullSysFlag,
    RequestCode,
    ResponseCode,
)
from trioha.wire.remoting_command import RemotingCommand

SUSPEND_MS_MAX: Final = 120_000
"""Equal to the idle time after which a connection closes; clients ask for 15 or 20 s."""
BODY_BYTES_MAX = FRAME_BYTES_MAX - 65_536
"""Bytes that fit a frame beside its header, if the transfer limits are set that high."""

_KEPT_FIELDS: Final = frozenset(
    {
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
    }
)
"""Fields with which a parked pull is run again."""
_KEPT_WITH_SUBSCRIPTION: Final = _KEPT_FIELDS | {"subscription", "expressionType"}

_RECORD_HEAD: Final = struct.Struct(">i16xq")  # total size, then the queue offset at byte 20
_FILTER_FACTOR: Final = 12
"""A filter takes up to so many times the memory of its expression: tags of one letter."""
_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET
_SUSPEND: Final = PullSysFlag.SUSPEND
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION
DISK_PATIENCE_MS: Final = 3000
"""Wait for the disk of a pull without a timeout of its own: RocketMQ's coldHoldTimeoutMills."""
_PACED_FROM: Final = 512
_PACED_TO: Final = 1024
_NEVER: Final = 1 << 62
_CPP: Final = LanguageCode.CPP
_FOUND: Final = GetStatus.FOUND
_NOT_IN_MEMORY: Final = GetStatus.NOT_IN_MEMORY
_SLAVE: Final = BrokerRole.SLAVE

_CODES: Final = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NOT_IN_MEMORY: ResponseCode.PULL_NOT_FOUND,
}
# Findings in which nothing was scanned: here a slave does not correct the client's offset.
_CORRECTIONS: Final = {
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
}


Confirm = Callable[[Callable[[bool], None]], None]
"""Finds out whether this broker is the master, and calls back with the answer."""


def certain(then: Callable[[bool], None]) -> None:
    """Confirm at once: no other broker can be master."""
    then(True)


class PullProcessor:
    """Answers pulls, or parks them in `hold`, or in `cold` if they have to wait for the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetTable,
        hold: PullHold,
        cold: ColdReads | None = None,
        confirm: Confirm = certain,
    ) -> None:
        """`confirm` calls back with True once it is certain that this broker is the master."""
        self.role = config.broker_role
        self.hold = hold
        self.cold = ColdReads(config) if cold is None else cold
        self.must_confirm = False
        """True if another broker may be master without this one's knowledge."""
        self._confirm = confirm
        self.pulled_bytes: dict[str, int] = {}
        """Bytes sent to groups since the start, by ``topic@group``."""
        self._store = store
        self._offsets = offsets
        self._check = PullCheck(config, topics, groups, consumers)

    @property
    def config(self) -> BrokerConfig:
        """The present configuration: an administrator may change brokerPermission, for instance."""
        return self._check.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._check.config = config

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer with messages or the reason why there are none; None while it is parked. HOT."""
        return self._pull(channel, request, instant, True)

    def answer_due(self, instant: Instant) -> None:
        """Look again for every parked pull that a message or its deadline made due.

        To be called after each dispatch that left `hold.has_due`, and at its `next_deadline_ms`.
        """
        self.hold.expire(instant.now_ms)
        for parked in self.hold.take_due():
            self._pull_again(parked.channel, parked.request, instant, None)

    def _pull_again(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        may_correct: bool | None,
        waited: ColdPull | None = None,
    ) -> None:
        try:
            response = self._pull(channel, request, instant, False, may_correct, waited)
        except CommandError as error:
            response = request.response(error.code, error.remark)
        except RemoteProtocolError as error:
            response = request.response(ResponseCode.SYSTEM_ERROR, str(error))
        if response is not None:
            channel.send_nowait(response)

    def _pull(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        is_first: bool,
        may_correct: bool | None = None,
        waited: ColdPull | None = None,
    ) -> RemotingCommand | None:
        """`may_correct`: is it certain that this broker is the master? None: not asked yet.

        `waited` is the wait for the disk that this pull has behind it.
        """
        ext_int = request.ext_int
        group = request.ext_str("consumerGroup")
        topic = request.ext_str("topic")
        queue_id = ext_int("queueId")
        offset = ext_int("queueOffset")
        sys_flag = ext_int("sysFlag")
        settings = self._check.settings_of(group, topic, queue_id, instant.wall_ms)
        message_filter = self._check.filter_of(request, group, topic, settings, sys_flag)

        config = self._check.config
        is_slave = self.role is _SLAVE
        if is_first and sys_flag & _COMMIT_OFFSET:
            committed = ext_int("commitOffset")
            if not is_slave:
                self._offsets.commit(group, topic, queue_id, committed)
            if request.language == _CPP and sys_flag & _SUSPEND:
                pace_ms = _pace_ms(offset - committed)
                if pace_ms > 0 and self._hold_up(
                    channel, request, instant, topic, queue_id, offset, pace_ms
                ):
                    return None
        result = self._store.get_message(
            topic,
            queue_id,
            offset,
            max(1, ext_int("maxMsgNums")),
            message_filter,
            config.cold_data_flow_control_enable and (waited is None or waited.looks < LOOKS_MAX),
        )
        if (
            result.status is _NOT_IN_MEMORY
            and (waited is None or waited.is_read)
            and self._wait_for_disk(
                channel, request, instant, group, topic, queue_id, result, waited
            )
        ):
            return None
        if not config.slave_read_enable:
            suggested = 0
        elif result.suggest_pulling_from_slave or (
            result.is_old
            if is_slave
            else self.cold.has_read(group, topic, queue_id, instant.now_ms)
        ):
            suggested = settings.which_broker_when_consume_slowly
        else:
            suggested = settings.broker_id
        next_offset = result.next_begin_offset
        status = result.status
        if status is _FOUND:
            if result.size > BODY_BYTES_MAX:
                next_offset = cut_to_frame(result)
            key = f"{topic}@{group}"
            self.pulled_bytes[key] = self.pulled_bytes.get(key, 0) + result.size
            return request.response(
                0,
                "FOUND",
                {
                    "suggestWhichBrokerId": str(suggested),
                    "nextBeginOffset": str(next_offset),
                    "minOffset": str(result.min_offset),
                    "maxOffset": str(result.max_offset),
                },
                result.buffers,
            )

        code = _CODES[status]
        if status is GetStatus.NO_MESSAGE_IN_QUEUE and offset != 0:
            code = ResponseCode.PULL_OFFSET_MOVED
        if self.must_confirm:
            if status in _CORRECTIONS and next_offset != offset and not is_slave:
                if may_correct is None:
                    _detach(request, sys_flag)
                    self._confirm(lambda sure: self._pull_again(channel, request, instant, sure))
                    return None
                is_slave = not may_correct
        elif config.offset_check_in_slave:
            is_slave = False
        if is_slave:
            if status in _CORRECTIONS:
                next_offset = offset
            if code is ResponseCode.PULL_OFFSET_MOVED:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
                suggested = settings.broker_id
        if (
            code is ResponseCode.PULL_NOT_FOUND
            and status is not _NOT_IN_MEMORY
            and is_first
            and sys_flag & _SUSPEND
            and self._park(channel, request, instant, topic, queue_id, offset, message_filter)
        ):
            return None
        return request.response(
            code,
            status.name,
            {
                "suggestWhichBrokerId": str(suggested),
                "nextBeginOffset": str(next_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
            },
        )

    def _hold_up(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        topic: str,
        queue_id: int,
        offset: int,
        pace_ms: int,
    ) -> bool:
        """Park a pull that found messages, if its client has plenty in its cache."""
        if request.is_oneway or offset >= self._store.max_offset_in_queue(topic, queue_id):
            return False
        size = _detach(request, request.ext_int("sysFlag"))
        deadline_ms = instant.now_ms + pace_ms
        # No message makes it due sooner: there are some already.
        return self.hold.hold(
            ParkedPull(channel, request, topic, queue_id, _NEVER, None, deadline_ms, size)
        )

    def _wait_for_disk(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        group: str,
        topic: str,
        queue_id: int,
        result: GetResult,
        waited: ColdPull | None,
    ) -> bool:
        if request.is_oneway:
            return False
        sys_flag = request.ext_int("sysFlag")
        if waited is not None:
            deadline_ms = waited.deadline_ms
        elif sys_flag & _SUSPEND:
            patience_ms = max(request.ext_int("suspendTimeoutMillis", 0), DISK_PATIENCE_MS)
            deadline_ms = instant.now_ms + min(patience_ms, SUSPEND_MS_MAX)
        else:
            deadline_ms = instant.now_ms + DISK_PATIENCE_MS
        size = _detach(request, sys_flag)
        looks = 1 if waited is None else waited.looks + 1
        return self.cold.hold(
            ColdPull(
                channel,
                request,
                group,
                topic,
                queue_id,
                result,
                deadline_ms,
                size,
                looks,
                self._pull_read,
            )
        )

    def _pull_read(self, pull: ColdPull, instant: Instant) -> None:
        self._pull_again(pull.channel, pull.request, instant, None, pull)

    def _park(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        topic: str,
        queue_id: int,
        offset: int,
        message_filter: MessageFilter | None,
    ) -> bool:
        if request.is_oneway:
            return False
        config = self._check.config
        patience_ms = config.short_polling_time_mills
        if config.long_polling_enable:
            patience_ms = min(max(request.ext_int("suspendTimeoutMillis", 0), 0), SUSPEND_MS_MAX)
        size = _detach(request, request.ext_int("sysFlag"))
        return self.hold.hold(
            ParkedPull(
                channel,
                request,
                topic,
                queue_id,
                offset,
                # Any message wakes a pull whose filter needs the message's record.
                None if isinstance(message_filter, RecordFilter) else message_filter,
                instant.now_ms + patience_ms,
                size,
            )
        )


def _detach(request: RemotingCommand, sys_flag: int) -> int:
    """Make a pull ready to wait; return the bytes that it takes, with a filter of its own."""
    if sys_flag & _SUBSCRIPTION:
        return _FILTER_FACTOR * request.detach(_KEPT_WITH_SUBSCRIPTION)
    return request.detach(_KEPT_FIELDS)


def _pace_ms(cached: int) -> int:
    """Return the delay of an answer to a C++ client that has `cached` messages of the queue."""
    return min(cached - _PACED_FROM, _PACED_TO - _PACED_FROM) // 16


def cut_to_frame(result: GetResult) -> int:
    """Drop from `result` what does not fit a frame; return the first dropped record's offset.

    Errors: CommandError(SYSTEM_ERROR) when not even the first record fits.
    """
    size = 0
    kept: list[memoryview] = []
    for view in result.buffers:
        position = 0
        while position < len(view):
            record_size, queue_offset = _RECORD_HEAD.unpack_from(view, position)
            if size + record_size > BODY_BYTES_MAX:
                if not size:
                    raise CommandError(
                        ResponseCode.SYSTEM_ERROR,
                        f"the record at offset {queue_offset} has {record_size} bytes, "
                        f"more than a frame can carry",
                    )
                if position:
                    kept.append(view[:position])
                result.buffers = kept
                return int(queue_offset)
            size += record_size
            position += record_size
        kept.append(view)
    return result.next_begin_offset
