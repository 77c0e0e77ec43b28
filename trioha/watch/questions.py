"""The questions of the watch, and the conversion of each answer to plain values.

Plain values are those that msgpack can carry, so an answer goes into a recording as it is. Answers
are kept close to the node's; `watch.snapshot` interprets them, so a newer version can read more
from an old recording. Only queue tables are made smaller, into rows of numbers: RocketMQ's JSON
repeats 60 bytes of names for each queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from trioha.errors import CommandError
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, decode_kv_table
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import integer, list_of, object_of, text
from trioha.wire.maps import decode_map
from trioha.wire.queue_tables import read_group_tables, read_topic_table
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import NOT_A_NAME_SERVER, ClusterInfo

Plain = object
"""A plain value: None, bool, int, float, str, bytes, or a list or dict of them."""

CLUSTER = "cluster"
"""Question to a name server: its registered brokers."""
STATUS = "status"
"""Question to a trioha node: its whole status."""
RUNTIME = "runtime"
"""Question to any broker: RocketMQ's table of texts."""
TOPICS = "topics"
GROUPS = "groups"
PROGRESS = "progress"
"""Question to a broker: each group's offset in each queue."""
TOPIC_STATS = "topic_stats/"
"""Question to a broker, followed by a topic: first and last offset of each of its queues."""
MEMBERS = "members/"
"""Question to a broker, followed by a group: its connected members."""
CLIENT = "client/"
"""Question to a broker, followed by ``group/client id``: that client's queues."""


@attrs.frozen
class Question:
    """One request to one node; `key` names the answer's place in the raw answers."""

    address: str
    key: str
    period_ms: int
    """Milliseconds from one asking to the next: an answer much older than that is stale."""

    def command(self) -> RemotingCommand:
        """Return a new command each time: connections write their opaque into it."""
        kind, _, rest = self.key.partition("/")
        return _COMMANDS[kind](rest)

    def read(self, response: RemotingCommand) -> Plain:
        """Return the answer as plain values.

        Errors: CommandError if the node answers with an error code; RemoteProtocolError if the
        answer cannot be read.
        """
        if self.key == CLUSTER and response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise CommandError(response.code, NOT_A_NAME_SERVER)
        if response.code != ResponseCode.SUCCESS:
            raise CommandError(response.code, response.remark or "rejected without a reason")
        kind = self.key.partition("/")[0]
        return _READERS[kind](response.body_bytes())


def _simple(code: RequestCode) -> Callable[[str], RemotingCommand]:
    return lambda _: RemotingCommand(code)


def _progress(_: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False, "ranges": True})


def _topic_stats(topic: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})


def _members(group: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})


def _client(names: str) -> RemotingCommand:
    group, _, client_id = names.partition("/")
    return RemotingCommand(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": group, "clientId": client_id, "jstackEnable": False},
    )


def _read_cluster(body: bytes) -> Plain:
    """Return ``{broker name: {"cluster": …, "addresses": [[id, address], …]}}``."""
    info = ClusterInfo.decode(body)
    return {
        name: {
            "cluster": broker.cluster,
            "addresses": [[number, address] for number, address in broker.broker_addrs.items()],
        }
        for name, broker in info.broker_addr_table.items()
    }


def _read_runtime(body: bytes) -> Plain:
    return decode_kv_table(body)


def _read_topics(body: bytes) -> Plain:
    table = object_of(fastjson.loads(body), "topics").get("topicConfigTable")
    return {name: dict(object_of(one, name)) for name, one in object_of(table, "topics").items()}


def _read_groups(body: bytes) -> Plain:
    table = object_of(fastjson.loads(body), "groups").get("subscriptionGroupTable")
    return {name: dict(object_of(one, name)) for name, one in object_of(table, "groups").items()}


def _read_progress(body: bytes) -> Plain:
    """Return ``{group: {topic: [[queue id, broker offset, consumer offset, consumed ms, min offset
    or None, next ms or None], …]}}``.
    """
    groups: dict[str, dict[str, list[list[int | None]]]] = {}
    if (tables := read_group_tables(body)) is not None:
        for group, rows in tables:
            topics = groups.setdefault(group, {})
            for place, told in rows:
                topics.setdefault(place.topic, []).append(
                    [
                        place.queue_id,
                        told.broker_offset,
                        told.consumer_offset,
                        told.last_timestamp,
                        told.min_offset,
                        told.next_timestamp,
                    ]
                )
        return groups
    fields = object_of(fastjson.loads(body), "consume stats")
    for entry in list_of(fields.get("consumeStatsList"), "consumeStatsList"):
        for group, parts in object_of(entry, "group").items():
            topics = groups.setdefault(group, {})
            for part in list_of(parts, group):
                for queue, offsets in _pairs(object_of(part, group).get("offsetTable")):
                    one = object_of(offsets, group)
                    row: list[int | None] = [
                        queue.queue_id,
                        integer(one, "brokerOffset"),
                        integer(one, "consumerOffset"),
                        integer(one, "lastTimestamp"),
                        integer(one, "minOffset") if "minOffset" in one else None,
                        integer(one, "nextTimestamp") if "nextTimestamp" in one else None,
                    ]
                    topics.setdefault(queue.topic, []).append(row)
    return groups


def _read_topic_stats(body: bytes) -> Plain:
    """Return ``[[queue id, min offset, max offset, last update ms], …]``."""
    if (rows := read_topic_table(body)) is not None:
        return [
            [place.queue_id, one.min_offset, one.max_offset, one.last_update_timestamp]
            for place, one in rows
        ]
    table = object_of(fastjson.loads(body), "topic stats").get("offsetTable")
    return [
        [
            queue.queue_id,
            integer(one, "minOffset"),
            integer(one, "maxOffset"),
            integer(one, "lastUpdateTimestamp"),
        ]
        for queue, one in ((queue, object_of(value, "queue")) for queue, value in _pairs(table))
    ]


def _read_members(body: bytes) -> Plain:
    fields = object_of(fastjson.loads(body), "connections")
    return {
        "consume_type": text(fields, "consumeType"),
        "message_model": text(fields, "messageModel"),
        "from_where": text(fields, "consumeFromWhere"),
        "subscriptions": {
            topic: text(object_of(one, topic), "subString")
            for topic, one in object_of(fields.get("subscriptionTable"), "subscriptions").items()
        },
        "clients": [
            {
                "client_id": text(one, "clientId"),
                "address": text(one, "clientAddr"),
                "language": text(one, "language"),
                "version": integer(one, "version"),
            }
            for one in (
                object_of(value, "connection")
                for value in list_of(fields.get("connectionSet"), "connectionSet")
            )
        ],
    }


def _read_client(body: bytes) -> Plain:
    """Return the client's queues as ``{"queues": [[topic, broker, queue id], …]}``."""
    table = object_of(fastjson.loads(body), "running info").get("mqTable")
    return {
        "queues": [[queue.topic, queue.broker_name, queue.queue_id] for queue, _ in _pairs(table)]
    }


def _pairs(table: object) -> list[tuple[MessageQueue, object]]:
    if not isinstance(table, fastjson.ObjectKeyMap):
        return []  # an empty table reads as a plain object
    return [(MessageQueue.from_dict(key), value) for key, value in table.items()]


_COMMANDS: dict[str, Callable[[str], RemotingCommand]] = {
    "cluster": _simple(RequestCode.GET_BROKER_CLUSTER_INFO),
    "status": _simple(RequestCode.TRIOHA_NODE_STATUS),
    "runtime": _simple(RequestCode.GET_BROKER_RUNTIME_INFO),
    "topics": _simple(RequestCode.GET_ALL_TOPIC_CONFIG),
    "groups": _simple(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    "progress": _progress,
    "topic_stats": _topic_stats,
    "members": _members,
    "client": _client,
}
_READERS: dict[str, Callable[[bytes], Plain]] = {
    "cluster": _read_cluster,
    "status": partial(decode_map, what="the status"),
    "runtime": _read_runtime,
    "topics": _read_topics,
    "groups": _read_groups,
    "progress": _read_progress,
    "topic_stats": _read_topic_stats,
    "members": _read_members,
    "client": _read_client,
}
