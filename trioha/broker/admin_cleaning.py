"""Cleaning on demand: requests 306, 316 and 329 (AdminBrokerProcessor.java).

306, expired consume queues: there is never anything to do. A queue's files are deleted with the log
segments that they point into. The last file stays, since it keeps the queue's next offset. RocketMQ
deletes it too: then the queue's next message gets offset 0, and consumers are far beyond.

329, expired segments: RocketMQ looks for them in its next twenty rounds, at any hour. This broker
deletes them from its next look at the disk on, until none is left.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.broker.admin_topics import SLAVE_REMARK
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.wire.codes import RequestCode
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand


@attrs.define(eq=False)
class CleaningAdminProcessor:
    """Deletes files and topics that are not needed any more, when an operator asks for it."""

    _store: MessageStore
    _topics: TopicTable
    _offsets: ConsumerOffsetTable
    _is_slave: Callable[[], bool]
    _delete_queues: Callable[[str], None]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_log,
        }

    def clean_expired_queues(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Do nothing: retention has done it already (see the module)."""
        return request.response()

    def clean_unused_topics(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Delete the queues of deleted topics, and the progress in them.

        Errors: CommandError(SYSTEM_ERROR) on a slave: its log may be ahead of its topic table.
        """
        if self._is_slave():
            raise system_error(SLAVE_REMARK)
        for topic in {topic for topic, _ in self._store.queues()}:
            if self._topics.get(topic) is None and not self._topics.is_system(topic):
                self._offsets.delete_topic(topic)
                self._delete_queues(topic)
        return request.response()

    def delete_expired_log(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Delete expired segments without waiting for deleteWhen."""
        self._store.delete_expired_soon()
        return request.response()
