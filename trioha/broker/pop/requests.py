"""Requests 200050, 200052, 200054 and 200055: pop, peek, notification, polling information.

As PopMessageProcessor.java, with these differences: messages of the retry topic keep its name (as
with popResponseReturnActualRetryTopic; clients look at the handle), and what Java's broker would
do with a wrong invisible time or a handle that it does not know is told to the client instead.

One pop of five looks into the retry topic first, the others look there last, as in RocketMQ: so a
full retry topic does not keep new messages away, and new messages do not keep it away.

A pop whose first messages are on disk only waits in `cold` until a thread has read them. Of several
queues it gives what is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from trioha.broker.cold_reads import LOOKS_MAX, ColdPull, ColdReads
from trioha.broker.filter import header_filter
from trioha.broker.parking import ParkedRequest
from trioha.broker.pop.answer import NEVER, PopAnswer
from trioha.broker.pop.handles import (
    ORDER_REVIVE_QUEUE,
    order_count_info,
    pop_retry_topics,
    queue_count_info,
)
from trioha.broker.pop.hold import ParkedPop, PopHold
from trioha.broker.pop.in_flight import MESSAGES_MAX
from trioha.broker.pop.order import OrderBatch
from trioha.broker.pop.queue_reader import FoundMessages, QueueReader
from trioha.broker.pop.resources import PopResources, check_invisible, invalid
from trioha.broker.pop.service import PopService
from trioha.broker.pull import DISK_PATIENCE_MS, SUSPEND_MS_MAX, Confirm, certain
from trioha.broker.put_message import PutPipeline
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageFilter, RecordFilter
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

ATTEMPT_ID_CHARS_MAX: Final = 128
_LATE_MS: Final = 500
_BODY_BYTES: Final = 1 << 20
"""A pop that has found so many bytes takes from no further queue."""
_MIN_MODE: Final = 0
_FILTER_FACTOR: Final = 12
"""A filter takes up to so many times the memory of its expression: tags of one letter."""
_KEPT_FIELDS: Final = frozenset(
    {
        "consumerGroup",
        "topic",
        "queueId",
        "maxMsgNums",
        "invisibleTime",
        "pollTime",
        "bornTime",
        "initMode",
        "expType",
        "exp",
        "order",
        "attemptId",
    }
)


@attrs.frozen
class _Pop:
    """The fields of a request, checked."""

    topic: TopicConfig
    group: str
    queue_id: int
    count_max: int
    invisible_ms: int
    init_mode: int
    is_ordered: bool
    attempt_id: str
    message_filter: MessageFilter | None


class PopProcessor:
    """Answers pops, or parks them in `hold`, or in `cold` if they have to wait for the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        resources: PopResources,
        pipeline: PutPipeline,
        reader: QueueReader,
        service: PopService,
        hold: PopHold,
        cold: ColdReads,
        confirm: Confirm = certain,
    ) -> None:
        """`confirm` calls back with True once it is certain that no other broker is master."""
        self.config = config
        self.hold = hold
        self.cold = cold
        self.must_confirm = False
        """True if another broker may be master without this one's knowledge."""
        self._confirm = confirm
        self._resources = resources
        self._pipeline = pipeline
        self._reader = reader
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer with messages, or park. Errors: CommandError, RemoteProtocolError."""
        self._check_master()
        return self._pop(channel, request, instant, None)

    def notification(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Tell whether there is a message, or park until there is one."""
        self._check_master()
        return self._notify(channel, request, instant, None)

    def answer_due(self, instant: Instant) -> None:
        """Look again for every parked request that a message or its time made due."""
        self.hold.expire(instant.now_ms)
        for parked in self.hold.take_due():
            run = self._notify if parked.is_notification else self._pop
            _run_again(partial(run, until_ms=parked.until_ms), parked, instant)

    def peek(self, channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        """Show what a pop would take; nothing changes.

        Errors: CommandError, RemoteProtocolError.
        """
        self._check_master()
        topic, group, queue_id = self._resources.of(request, instant)
        count_max = _count_max(request)
        answer = PopAnswer(pop_time=instant.wall_ms)
        for name, number in self._resources.queues(topic, group, queue_id, is_ordered=False):
            answer.rest += self._reader.rest(name, group, number, _MIN_MODE)
            if answer.count < count_max and answer.size < _BODY_BYTES:
                answer.add(self._reader.peek(name, group, number, count_max - answer.count))
        code = 0 if answer.count else ResponseCode.PULL_NOT_FOUND
        return request.response(
            code,
            "FOUND" if answer.count else "NO_MESSAGE_IN_QUEUE",
            answer.fields(0, 0),
            answer.buffers,
        )

    def polling_info(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Tell how many pops of a group wait for a queue."""
        topic, group, queue_id = self._resources.of(request, instant)
        count = self.hold.count(group, topic.topic_name, queue_id)
        return request.response(0, None, {"pollingNum": str(count)})

    # One pop.

    def _pop(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        until_ms: int | None,
        waited: ColdPull | None = None,
    ) -> RemotingCommand | None:
        """`until_ms`: deadline of a request that was parked; None if it has just come.

        `waited` is the wait for the disk that this pop has behind it.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            return self._nothing(request, PopAnswer(), ResponseCode.POLLING_TIMEOUT)
        if until_ms is None and _is_late(request, instant):
            return self._nothing(request, PopAnswer(), ResponseCode.POLLING_TIMEOUT)
        pop = self._read(request, instant)
        if self._service.in_flight.is_full and not pop.is_ordered:
            return request.response(
                ResponseCode.POLLING_FULL,
                f"{len(self._service.in_flight)} pops wait for acknowledgements on this broker, "
                "its limit: acknowledge messages, or pop more of them at a time",
                PopAnswer().fields(pop.invisible_ms, 0),
            )
        answer = PopAnswer(pop_time=instant.wall_ms)
        take = self._take_ordered if pop.is_ordered else self._take
        in_memory_only = self.config.cold_data_flow_control_enable and (
            waited is None or waited.looks < LOOKS_MAX
        )
        queues = self._resources.queues(
            pop.topic, pop.group, pop.queue_id, is_ordered=pop.is_ordered
        )
        for name, queue_id in queues:
            if answer.count >= pop.count_max or answer.size >= _BODY_BYTES:
                if not pop.is_ordered:
                    answer.rest += self._reader.rest(name, pop.group, queue_id, pop.init_mode)
            else:
                try:
                    found = take(pop, name, queue_id, answer, in_memory_only, instant)
                except CommandError:
                    if not answer.count:
                        raise
                    break  # messages taken so far are invisible already: the client gets them
                if found is not None and found.on_disk is not None and not answer.count:
                    if self._wait_for_disk(channel, request, instant, found, until_ms, waited):
                        return None
                    is_late = waited is not None and not waited.is_read
                    code = ResponseCode.POLLING_TIMEOUT if is_late else ResponseCode.POLLING_FULL
                    return self._nothing(request, answer, code)
        if answer.count:
            revive = ORDER_REVIVE_QUEUE if pop.is_ordered else 0
            fields = answer.fields(pop.invisible_ms, revive)
            response = request.response(0, "FOUND", fields, answer.buffers)
            return self._when_certain(channel, request, response, answer.size)
        return self._park(channel, request, instant, pop, answer, until_ms)

    def _wait_for_disk(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        found: FoundMessages,
        until_ms: int | None,
        waited: ColdPull | None,
    ) -> bool:
        if request.is_oneway or (waited is not None and not waited.is_read):
            return False
        if until_ms is None:
            until_ms = _until_ms(request, instant)
        deadline_ms = max(until_ms, instant.now_ms + DISK_PATIENCE_MS)

        def again(cold: ColdPull, instant: Instant) -> None:
            _run_again(partial(self._pop, until_ms=until_ms, waited=cold), cold, instant)

        key, result = found.key, found.on_disk
        assert result is not None, key
        return self.cold.hold(
            ColdPull(
                channel,
                request,
                key.group,
                key.topic,
                key.queue_id,
                result,
                deadline_ms if waited is None else waited.deadline_ms,
                request.detach(_KEPT_FIELDS),
                1 if waited is None else waited.looks + 1,
                again,
            )
        )

    def _when_certain(
        self, channel: Channel, request: RemotingCommand, response: RemotingCommand, size: int
    ) -> RemotingCommand | None:
        """Send the messages once no other broker can have had them acknowledged.

        A master that was replaced without its knowledge keeps them to itself.
        """
        if not self.must_confirm:
            return response
        if not self.hold.reserve(size):
            return self._nothing(request, PopAnswer(), ResponseCode.POLLING_FULL)
        known: list[RemotingCommand] = []
        is_late = False

        def answer(sure: bool) -> None:
            self.hold.release(size)
            nothing = self._nothing(request, PopAnswer(), ResponseCode.POLLING_TIMEOUT)
            final = response if sure else nothing
            if is_late:
                channel.send_nowait(final)
            else:
                known.append(final)

        self._confirm(answer)
        if known:
            return known[0]
        is_late = True
        request.detach(_KEPT_FIELDS)
        # A waiting answer must not keep a deleted segment of the log open.
        response.body = response.body_bytes()
        return None

    def _take(
        self,
        pop: _Pop,
        topic: str,
        queue_id: int,
        answer: PopAnswer,
        in_memory_only: bool,
        instant: Instant,
    ) -> FoundMessages:
        """Pop from one queue."""
        found = self._reader.read(
            topic,
            pop.group,
            queue_id,
            pop.count_max - answer.count,
            pop.init_mode,
            pop.message_filter,
            in_memory_only,
            instant,
        )
        answer.rest += found.rest
        if found.offsets:
            if not self._service.take(
                found.key, found.offsets, found.next_offset, pop.invisible_ms, instant
            ):
                # The same messages in the same millisecond: an operator has moved the group back.
                answer.wake_ms = instant.wall_ms + 1
                return found
            answer.add(found)
        elif found.is_unfinished:
            answer.wake_ms = instant.wall_ms
        return found

    def _take_ordered(
        self,
        pop: _Pop,
        topic: str,
        queue_id: int,
        answer: PopAnswer,
        in_memory_only: bool,
        instant: Instant,
    ) -> FoundMessages | None:
        """Pop from one ordered queue, unless its batch blocks it."""
        key = self._reader.key(topic, pop.group, queue_id)
        batch = self._service.order_of(key)
        if batch is not None:
            free_ms = batch.blocked_until_ms(instant.wall_ms, pop.attempt_id)
            if free_ms is not None:
                answer.wake_ms = min(answer.wake_ms, free_ms)
                return None
        found = self._reader.read_ordered(
            key, pop.count_max - answer.count, pop.init_mode, pop.message_filter, in_memory_only
        )
        answer.rest += found.rest
        if found.offsets:
            taken = OrderBatch(
                key, pop.attempt_id, answer.pop_time, pop.invisible_ms, found.offsets
            )
            taken.follow(batch)
            self._service.keep_order(taken, False, instant)
            answer.add(found)
            counts = taken.counts
            answer.order_counts += [
                order_count_info(topic, queue_id, offset, times)
                for offset, times in counts.items()
                if times
            ]
            answer.order_counts.append(queue_count_info(topic, queue_id, min(counts.values())))
        elif found.is_unfinished:
            answer.wake_ms = instant.wall_ms
        return found

    def _park(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        pop: _Pop,
        answer: PopAnswer,
        until_ms: int | None,
    ) -> RemotingCommand | None:
        message_filter = pop.message_filter
        return self._hold(
            channel,
            request,
            instant,
            until_ms,
            pop.topic.topic_name,
            pop.group,
            pop.queue_id,
            # Any message wakes a pop whose filter needs the message's record.
            None if isinstance(message_filter, RecordFilter) else message_filter,
            max(instant.now_ms + 1, instant.now_ms + answer.wake_ms - instant.wall_ms),
            lambda code: self._nothing(request, answer, code),
        )

    def _hold(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        until_ms: int | None,
        topic: str,
        group: str,
        queue_id: int,
        tag_filter: Callable[[int], bool] | None,
        wake_ms: int,
        nothing: Callable[[int], RemotingCommand],
        *,
        is_notification: bool = False,
    ) -> RemotingCommand | None:
        if until_ms is None:
            until_ms = _until_ms(request, instant)
        if until_ms <= instant.now_ms or request.is_oneway:
            return nothing(ResponseCode.POLLING_TIMEOUT)
        size = request.detach(_KEPT_FIELDS)
        if tag_filter is not None or request.ext_str("exp", ""):
            size *= _FILTER_FACTOR
        parked = ParkedPop(
            channel,
            request,
            group,
            topic,
            pop_retry_topics(topic, group),
            queue_id,
            tag_filter,
            wake_ms,
            until_ms,
            size,
            is_notification,
        )
        return None if self.hold.hold(parked) else nothing(ResponseCode.POLLING_FULL)

    def _nothing(self, request: RemotingCommand, answer: PopAnswer, code: int) -> RemotingCommand:
        invisible_ms = request.ext_int("invisibleTime", 0)
        return request.response(code, "NO_MESSAGE_IN_QUEUE", answer.fields(invisible_ms, 0))

    # One notification.

    def _notify(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        until_ms: int | None,
    ) -> RemotingCommand | None:
        def answer(has_message: bool, is_full: bool = False) -> RemotingCommand:
            fields = {"hasMsg": _word(has_message), "pollingFull": _word(is_full)}
            return request.response(0, None, dict(fields))

        if self._pipeline.role is BrokerRole.SLAVE:
            return answer(False)
        topic, group, queue_id = self._resources.of(request, instant)
        is_ordered = request.ext_bool("order")
        attempt_id = request.ext_str("attemptId", "")[:ATTEMPT_ID_CHARS_MAX]
        free_ms = NEVER
        for name, number in self._resources.queues(topic, group, queue_id, is_ordered=is_ordered):
            if is_ordered:
                batch = self._service.order_of(self._reader.key(name, group, number))
                blocked_ms = (
                    None if batch is None else batch.blocked_until_ms(instant.wall_ms, attempt_id)
                )
                if blocked_ms is not None:
                    free_ms = min(free_ms, blocked_ms)
                    continue
            if self._reader.rest(name, group, number, _MIN_MODE):
                return answer(True)
        return self._hold(
            channel,
            request,
            instant,
            until_ms,
            topic.topic_name,
            group,
            queue_id,
            None,
            max(instant.now_ms + 1, instant.now_ms + free_ms - instant.wall_ms),
            lambda code: answer(False, code == ResponseCode.POLLING_FULL),
            is_notification=True,
        )

    # Checks.

    def _check_master(self) -> None:
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)

    def _read(self, request: RemotingCommand, instant: Instant) -> _Pop:
        topic, group, queue_id = self._resources.of(request, instant)
        invisible_ms = request.ext_int("invisibleTime")
        if invisible_ms <= 0:
            raise invalid(f"invisibleTime is {invisible_ms} ms, and must be more than 0")
        check_invisible(invisible_ms)
        attempt_id = request.ext_str("attemptId", "")
        if len(attempt_id) > ATTEMPT_ID_CHARS_MAX:
            raise invalid(
                f"attemptId has {len(attempt_id)} characters, at most {ATTEMPT_ID_CHARS_MAX} do"
            )
        expression = request.ext_str("exp", "")
        message_filter = None
        if expression:
            message_filter = header_filter(
                expression,
                request.ext_str("expType", ""),
                has_sql92=self.config.enable_property_filter,
            )
        return _Pop(
            topic,
            group,
            queue_id,
            _count_max(request),
            invisible_ms,
            request.ext_int("initMode", _MIN_MODE),
            request.ext_bool("order"),
            attempt_id,
            message_filter,
        )


def _count_max(request: RemotingCommand) -> int:
    count_max = request.ext_int("maxMsgNums")
    if not 0 < count_max <= MESSAGES_MAX:
        raise invalid(f"maxMsgNums is {count_max}, and must be from 1 to {MESSAGES_MAX}")
    return count_max


def _is_late(request: RemotingCommand, instant: Instant) -> bool:
    """Return whether the client has given the request up by now."""
    born_ms = request.ext_int("bornTime", 0)
    if born_ms <= 0:
        return False
    return instant.wall_ms - born_ms - request.ext_int("pollTime", 0) > _LATE_MS


def _until_ms(request: RemotingCommand, instant: Instant) -> int:
    """Return when a request that has just come is to be answered at the latest."""
    return instant.now_ms + min(max(request.ext_int("pollTime", 0), 0), SUSPEND_MS_MAX)


def _run_again(
    run: Callable[[Channel, RemotingCommand, Instant], RemotingCommand | None],
    parked: ParkedRequest,
    instant: Instant,
) -> None:
    """Handle a request once more, and send the answer if there is one."""
    request = parked.request
    try:
        response = run(parked.channel, request, instant)
    except CommandError as error:
        response = request.response(error.code, error.remark)
    except RemoteProtocolError as error:
        response = request.response(ResponseCode.SYSTEM_ERROR, str(error))
    if response is not None:
        parked.channel.send_nowait(response)


def _word(value: bool) -> str:
    return "true" if value else "false"
