"""Questions about queues and messages: 12, 29 to 33 and 321 (QueryMessageProcessor, Admin…).

All of them read; masters and slaves answer alike from what they hold.
"""

from __future__ import annotations

import attrs

from trioha.broker.clients import ConsumerManager
from trioha.broker.filter import header_filter
from trioha.config import BrokerConfig
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore, RecordFilter
from trioha.wire import fastjson
from trioha.wire.codes import FRAME_BYTES_MAX, RequestCode, ResponseCode
from trioha.wire.names import METADATA_TOPIC
from trioha.wire.record import dispatch_fields
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

BODY_BYTES_MAX = FRAME_BYTES_MAX - 65_536
QUEUE_ENTRIES_MAX = 4_096
"""Entries of one QUERY_CONSUME_QUEUE; tools ask for ten."""
_UNIQUE_KEY_FIELD = "_UNIQUE_KEY_QUERY"


@attrs.define(eq=False)
class QueryProcessor:
    """Offsets by time, ends of queues, messages by id and key."""

    config: BrokerConfig
    _store: MessageStore
    _consumers: ConsumerManager

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    def query_message(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Records by key or unique id, newest first; 22 if the index has none."""
        config = self.config
        count_max = request.ext_int("maxNum")
        if request.ext_bool(_UNIQUE_KEY_FIELD):
            count_max = config.default_query_max_num
        views, updated_ms, updated_offset = self._store.query_message(
            request.ext_str("topic"),
            request.ext_str("key"),
            max(0, min(count_max, config.max_msgs_num_batch)),
            request.ext_int("beginTimestamp"),
            request.ext_int("endTimestamp"),
        )
        ext_fields = {
            "indexLastUpdateTimestamp": str(updated_ms),
            "indexLastUpdatePhyoffset": str(updated_offset),
        }
        size = 0
        fitting = []
        for view in views:
            size += len(view)
            if size > BODY_BYTES_MAX:
                break
            fitting.append(view)
        if not fitting:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                {**ext_fields},
            )
        return request.response(0, None, {**ext_fields}, fitting)

    def search_offset(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        offset = self._store.offset_by_time(
            request.ext_str("topic"), request.ext_int("queueId"), request.ext_int("timestamp")
        )
        return request.response(ext_fields={"offset": str(offset)})

    def max_offset(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        offset = self._store.max_offset_in_queue(
            request.ext_str("topic"), request.ext_int("queueId")
        )
        return request.response(ext_fields={"offset": str(offset)})

    def min_offset(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        offset = self._store.min_offset_in_queue(
            request.ext_str("topic"), request.ext_int("queueId")
        )
        return request.response(ext_fields={"offset": str(offset)})

    def earliest_store_time(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer the store time of the first message that the queue holds; -1 if there is none."""
        topic, queue_id = request.ext_str("topic"), request.ext_int("queueId")
        first = self._store.min_offset_in_queue(topic, queue_id)
        timestamp = self._store.store_time(topic, queue_id, first)
        return request.response(ext_fields={"timestamp": str(timestamp)})

    def view_message(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer the record at a physical offset, which a message id names."""
        phy_offset = request.ext_int("offset")
        view = self._store.look_message(phy_offset)
        # The tables of a DLEDGER group hold its accounts.
        if view is None or dispatch_fields(view, 0).topic == METADATA_TOPIC:
            raise system_error(f"can not find message by the offset, {phy_offset}")
        return request.response(body=[view])

    def query_consume_queue(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer entries of a consume queue; for a group, also whether it would get each."""
        topic, queue_id = request.ext_str("topic"), request.ext_int("queueId")
        count = min(request.ext_int("count"), QUEUE_ENTRIES_MAX)
        minimum = self._store.min_offset_in_queue(topic, queue_id)
        maximum = self._store.max_offset_in_queue(topic, queue_id)
        body: dict[str, object] = {"maxQueueIndex": maximum, "minQueueIndex": minimum}
        tag_filter = None
        members = self._consumers.find(request.ext_str("consumerGroup", ""))
        subscription = None if members is None else members.subscriptions.get(topic)
        if subscription is not None:
            body["subscriptionData"] = subscription.to_dict()
            found = header_filter(
                subscription.sub_string,
                subscription.expression_type,
                has_sql92=self.config.enable_property_filter,
            )
            # A filter of records cannot judge an entry alone: the answer is yes, as with RocketMQ.
            tag_filter = None if isinstance(found, RecordFilter) else found
        if maximum == 0:
            raise system_error(f"{queue_id}@{topic} is not exist in this broker")
        entries: list[dict[str, object]] = []
        first = max(minimum, request.ext_int("index"))
        for index in range(first, min(maximum, first + count)):
            entry = self._store.consume_queue_entry(topic, queue_id, index)
            if entry is None:
                break
            phy_offset, size, tags_code = entry
            entries.append(
                {
                    "eval": tag_filter is None or tag_filter(tags_code),
                    "physicOffset": phy_offset,
                    "physicSize": size,
                    "tagsCode": tags_code,
                }
            )
        body["queueData"] = entries
        return request.response(body=fastjson.dumps(body))
