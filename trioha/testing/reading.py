"""Reads topics and the progress of groups for a test."""

from __future__ import annotations

from collections.abc import Mapping

from trioha.client import Admin, ClusterConfig, NoRoute, PullStatus, ReceivedMessage, open_admin
from trioha.client.pull_consumer import open_pull_consumer
from trioha.errors import CommandError, TriohaError, Unreachable
from trioha.wire.names import is_retry_topic, retry_topic

_READER = "test-reader"


async def read_topic(namesrv: str, topic: str, config: ClusterConfig) -> list[ReceivedMessage]:
    """Return every message of a topic, queue by queue; none if there is no such topic."""
    messages: list[ReceivedMessage] = []
    async with open_pull_consumer(namesrv, group=_READER, cluster_config=config) as reader:
        try:
            queues = await reader.queues(topic)
        except NoRoute:
            return []
        for queue in queues:
            offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while offset < end:
                result = await reader.pull(queue, offset)
                messages += result.messages
                if result.status is not PullStatus.FOUND and result.next_offset <= offset:
                    break
                offset = result.next_offset
    return messages


async def lags(admin: Admin, group: str, topic: str) -> Mapping[str, int]:
    """Return how many messages a group has yet to consume, by queue; empty if it has them all."""
    behind = {}
    for one in (topic, retry_topic(group)):
        try:
            rows = await admin.consumer_progress(group, one)
            ends = await admin.offsets(one)
        except (NoRoute, CommandError):
            if one == topic:
                return {topic: -1}
            continue
        except Unreachable as error:
            return {str(error): -1}
        known = {row.queue: row.lag for row in rows}
        for queue, (begin, end) in ends.items():
            lag = known.get(queue, end - begin)
            if lag:
                behind[str(queue)] = lag
    return behind


async def handed_back(namesrv: str, config: ClusterConfig) -> dict[str, list[ReceivedMessage]]:
    """Return the messages of all retry topics by id; none if the cluster does not answer."""
    found: dict[str, list[ReceivedMessage]] = {}
    try:
        async with open_admin(namesrv, cluster_config=config) as admin:
            topics = [one for one in await admin.topics() if is_retry_topic(one)]
        for topic in topics:
            for message in await read_topic(namesrv, topic, config):
                found.setdefault(message.msg_id, []).append(message)
    except TriohaError:
        return found
    return found
