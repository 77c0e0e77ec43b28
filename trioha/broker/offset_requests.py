"""Requests 14 and 15: consumers ask where to go on, and say how far they are."""

from __future__ import annotations

from typing import Final

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import BROKER_GROUPS
from trioha.wire.refusals import no_permission
from trioha.wire.remoting_command import RemotingCommand

ONLY_FORWARD_FIELD = "onlyForward"
"""Our own field of request 15, from a slave: a smaller offset changes nothing.
RocketMQ ignores the field."""
FORWARDED_FIELD: Final = "forwarded"
"""Our own field of request 15: another node has passed a client's commit on. It may be an old one,
so a smaller offset is refused with an error."""


@attrs.define(eq=False)
class OffsetProcessor:
    """Requests 14 and 15: consumers ask where to go on, and say how far they are."""

    _offsets: ConsumerOffsetTable
    _store: MessageStore
    _topics: TopicTable

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
        }

    def query(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """The committed offset. A group that has none gets 0 in a queue that still begins at 0 and
        whose first message memory still holds; elsewhere 22, and its own policy decides."""
        topic = request.ext_str("topic")
        queue_id = request.ext_int("queueId")
        offset = self._offsets.query(request.ext_str("consumerGroup"), topic, queue_id)
        if offset < 0:
            if not request.ext_bool("setZeroIfNotFound", True) or not self._starts_fresh(
                topic, queue_id
            ):
                raise CommandError(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
                )
            offset = 0
        return request.response(ext_fields={"offset": str(offset)})

    def update(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Take a group's progress, by the two fields above.

        Errors: CommandError(SERVICE_NOT_AVAILABLE) if a forwarded commit would set the group back.
        It may have waited at the other node while the same consumer committed more here.
        """
        topic = request.ext_str("topic")
        if self._topics.get(topic) is None:
            # 5.x does so, too: consumers of a deleted topic would keep its offsets alive.
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic:.127}] not exist")
        group = request.ext_str("consumerGroup")
        if group in BROKER_GROUPS:
            # It would make this broker forget open transactions, timer messages, or what is popped.
            raise no_permission(f"the offsets of {group} are the broker's own")
        queue_id = request.ext_int("queueId")
        offset = request.ext_int("commitOffset")
        if request.ext_bool(ONLY_FORWARD_FIELD):
            self._offsets.advance(group, topic, queue_id, offset)
        elif request.ext_bool(FORWARDED_FIELD) and offset < (
            reached := self._offsets.query(group, topic, queue_id)
        ):
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the group is at offset {reached} already, and this commit came late, through"
                " another node; to set a group back, ask the master itself",
            )
        else:
            self._offsets.commit(group, topic, queue_id, offset)
        return request.response()

    def _starts_fresh(self, topic: str, queue_id: int) -> bool:
        if self._store.min_offset_in_queue(topic, queue_id) > 0:
            return False
        entry = self._store.consume_queue_entry(topic, queue_id, 0)
        return entry is None or self._store.is_in_memory_window(entry[0])
