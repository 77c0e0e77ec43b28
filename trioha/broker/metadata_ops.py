"""Changes of a broker's tables as values, and as the bytes that go to disk and to slaves.

A body is ``[version, op, op, …]`` in msgpack, an op a list that begins with its kind. Every op has
the new value, never a difference: applied twice, or after a later op that was applied already, it
leaves the same tables as long as everything behind it is applied too. That is why a log of them may
be replayed from any point before the end of what the tables hold.

A body is read whole and checked before anything of it is applied. The sender is a broker that
checked the same, so whatever does not fit is refused as damage, not skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgpack

from trioha.errors import RemoteProtocolError
from trioha.wire.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from trioha.wire.remoting_command import Buffer

VERSION = 1
QUEUE_ID_MAX = 65_535
ACCESS_CHARS_MAX = 8 << 20
"""Limit of a file of accounts that is replicated: 10,000 users with ten policies each are 6 MB."""
OFFSET_MAX = (1 << 63) - 1
_NUMBER_MIN = -(1 << 63)

Offsets = Mapping[str, Mapping[int, int]]
"""``topic@group`` -> queue id -> offset."""

is_progress_key = re.compile(r"[%|a-zA-Z0-9_-]+@[%|a-zA-Z0-9_-]+").fullmatch


@attrs.frozen
class TopicPut:
    """A topic was created or changed."""

    topic: TopicConfig
    version: DataVersion


@attrs.frozen
class TopicGone:
    """A topic was deleted."""

    name: str
    version: DataVersion


@attrs.frozen
class QueuesGone:
    """The queues of a topic were deleted, and all progress in them; also of one that is unknown."""

    topic: str


@attrs.frozen
class GroupPut:
    group: SubscriptionGroupConfig
    version: DataVersion


@attrs.frozen
class GroupGone:
    name: str
    version: DataVersion


@attrs.frozen
class OffsetsSet:
    """Groups' progress, in as many queues as a batch of requests has moved."""

    offsets: Offsets


@attrs.frozen
class LocalOffsetsSet:
    """An `OffsetsSet` that was committed to a slave. Only in that slave's own log."""

    offsets: Offsets


@attrs.frozen
class ProgressGone:
    """All progress of a group was deleted."""

    group: str


@attrs.frozen
class DelaySet:
    """Delivered offset of each level; the delivered messages lie below `log_end`."""

    offsets: Mapping[int, int]
    log_end: int


@attrs.frozen
class Snapshot:
    """All tables, whole, with which a link begins."""

    topic_version: DataVersion
    topics: Mapping[str, TopicConfig]
    group_version: DataVersion
    groups: Mapping[str, SubscriptionGroupConfig]
    offsets: Offsets
    delay: DelaySet


@attrs.frozen
class QueueEnds:
    """End of every queue. Only beside a `Snapshot` in a Raft group's log:
    a member that copies the log learns of a queue without records from nothing else."""

    ends: Mapping[str, Mapping[int, int]]
    gone: Mapping[str, int]
    """Topic -> offset of the record that deleted it last, if the log still holds that record; what
    its queues list before that is gone."""


@attrs.frozen
class AccessPut:
    """The text of the file of accounts, whole: `trioha.broker.access_text`."""

    kind: str
    text: str = attrs.field(repr=False)


MetadataOp = (
    TopicPut
    | TopicGone
    | QueuesGone
    | GroupPut
    | GroupGone
    | OffsetsSet
    | LocalOffsetsSet
    | ProgressGone
    | DelaySet
    | Snapshot
    | QueueEnds
    | AccessPut
)


def is_harmless(name: str) -> bool:
    """Can a name from a peer become a directory here, and no other than its own?

    The peer has checked all other rules for names; topics named like cluster and broker come from
    its configuration.
    """
    return name not in ("", ".", "..") and not any(char in name for char in "/\\\0")


# To make a new packer costs as much as to encode a body.
_pack: Callable[[object], bytes] = msgpack.Packer().pack


OnOp = Callable[[MetadataOp], None]
"""Gets each change that a table makes by itself, in the pass that makes it."""


def ignore_op(op: MetadataOp) -> None:
    """Write a change nowhere."""


def encode_ops(ops: list[MetadataOp]) -> bytes:
    """The body of one batch of changes."""
    return _pack([VERSION, *map(_encode, ops)])


def encode_offsets(offsets: Offsets) -> bytes:
    """Encode one `OffsetsSet`, as `encode_ops` would: most bodies are one. HOT."""
    return _pack([VERSION, [_OFFSETS, offsets]])


def decode_ops(body: Buffer) -> list[MetadataOp]:
    """The changes of one batch.

    Errors: RemoteProtocolError when anything in it is not as `encode_ops` writes it.
    """
    try:
        version, *ops = msgpack.unpackb(body, strict_map_key=False)
        if version != VERSION:
            raise ValueError(f"version {version!r:.20} is not {VERSION}")
        return [_DECODERS[op[0]](*op[1:]) for op in ops]
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:
        raise RemoteProtocolError(
            f"{len(body)} bytes of metadata cannot be understood ({error!r:.120})"
        ) from error


_TOPIC, _TOPIC_GONE, _QUEUES_GONE, _GROUP, _GROUP_GONE = 1, 2, 3, 4, 5
_OFFSETS, _LOCAL_OFFSETS, _PROGRESS_GONE, _DELAY, _SNAPSHOT = 6, 7, 8, 9, 10
_QUEUE_ENDS, _ACCESS = 11, 12


def _encode(op: MetadataOp) -> list[object]:
    match op:
        case TopicPut(topic, version):
            return [_TOPIC, _topic_fields(topic), _pair(version)]
        case TopicGone(name, version):
            return [_TOPIC_GONE, name, _pair(version)]
        case QueuesGone(name):
            return [_QUEUES_GONE, name]
        case GroupPut(group, version):
            return [_GROUP, _group_fields(group), _pair(version)]
        case GroupGone(name, version):
            return [_GROUP_GONE, name, _pair(version)]
        case OffsetsSet(offsets):
            return [_OFFSETS, offsets]
        case LocalOffsetsSet(offsets):
            return [_LOCAL_OFFSETS, offsets]
        case ProgressGone(name):
            return [_PROGRESS_GONE, name]
        case DelaySet(offsets, log_end):
            return [_DELAY, offsets, log_end]
        case Snapshot(topic_version, topics, group_version, groups, offsets, delay):
            return [
                _SNAPSHOT,
                _pair(topic_version),
                [_topic_fields(topic) for topic in topics.values()],
                _pair(group_version),
                [_group_fields(group) for group in groups.values()],
                offsets,
                [delay.offsets, delay.log_end],
            ]
        case QueueEnds(ends, gone):
            return [_QUEUE_ENDS, ends, gone]
        case AccessPut(kind, text):
            return [_ACCESS, kind, text]


def _group_fields(group: SubscriptionGroupConfig) -> tuple[object, ...]:
    """Return fields that members of older versions can read, unless the group needs newer ones."""
    fields = attrs.astuple(group)
    return fields if group.consume_message_orderly else fields[:-1]


def _pair(version: DataVersion) -> tuple[int, int]:
    return version.timestamp, version.counter


def _topic_put(fields: Any, version: Any) -> TopicPut:
    return TopicPut(_topic(fields), _version(version))


def _topic_gone(name: Any, version: Any) -> TopicGone:
    return TopicGone(_name(name), _version(version))


def _queues_gone(name: Any) -> QueuesGone:
    return QueuesGone(_name(name))


def _group_put(fields: Any, version: Any) -> GroupPut:
    return GroupPut(_group(fields), _version(version))


def _group_gone(name: Any, version: Any) -> GroupGone:
    return GroupGone(_name(name), _version(version))


def _offsets_set(offsets: Any) -> OffsetsSet:
    return OffsetsSet(_offsets(offsets))


def _local_offsets_set(offsets: Any) -> LocalOffsetsSet:
    return LocalOffsetsSet(_offsets(offsets))


def _progress_gone(name: Any) -> ProgressGone:
    return ProgressGone(_name(name))


def _delay_set(offsets: Any, log_end: Any) -> DelaySet:
    return DelaySet(
        {_int(level): _int(offset) for level, offset in offsets.items()},
        _int(log_end),
    )


def _snapshot(
    topic_version: Any, topics: Any, group_version: Any, groups: Any, offsets: Any, delay: Any
) -> Snapshot:
    # Another program may have written the file: an odd name must not keep the others away.
    all_topics = [_topic(fields) for fields in topics if is_harmless(_text(fields[0]))]
    if not all_topics:
        # Every broker has system topics, so an empty table cannot be right.
        raise ValueError("no topics")
    all_groups = [_group(fields) for fields in groups if is_harmless(_text(fields[0]))]
    return Snapshot(
        _version(topic_version),
        {topic.topic_name: topic for topic in all_topics},
        _version(group_version),
        {group.group_name: group for group in all_groups},
        _offsets(offsets),
        _delay_set(*delay),
    )


def _queue_ends(ends: Any, gone: Any) -> QueueEnds:
    return QueueEnds(
        {
            _name(topic): {_int(queue_id): _int(end) for queue_id, end in queues.items()}
            for topic, queues in ends.items()
        },
        {_name(topic): _int(phy_offset) for topic, phy_offset in gone.items()},
    )


def _access_put(kind: Any, text: Any) -> AccessPut:
    if len(_text(text)) > ACCESS_CHARS_MAX:
        raise ValueError(f"{len(text)} characters of accounts")
    return AccessPut(_text(kind), text)


def _topic_fields(topic: TopicConfig) -> tuple[object, ...]:
    """Return the fields of a topic; without attributes in the form that older nodes know."""
    fields = attrs.astuple(topic, recurse=False)
    return fields if topic.attributes else fields[:-1]


def _topic(fields: Any) -> TopicConfig:
    name, reads, writes, perm, filter_type, sys_flag, order, *rest = fields
    (attributes,) = rest or ((),)
    return TopicConfig(
        _name(name),
        _number(reads),
        _number(writes),
        _number(perm),
        _text(filter_type),
        _number(sys_flag),
        _bool(order),
        tuple((_text(key), _text(value)) for key, value in attributes),
    )


def _group(fields: Any) -> SubscriptionGroupConfig:
    name, enable, from_min, broadcast, retry_nums, retry_times, broker_id, slowly, *flags = fields
    notify, orderly = flags if len(flags) == 2 else (*flags, False)
    return SubscriptionGroupConfig(
        _name(name),
        _bool(enable),
        _bool(from_min),
        _bool(broadcast),
        _number(retry_nums),
        _number(retry_times),
        _number(broker_id),
        _number(slowly),
        _bool(notify),
        _bool(orderly),
    )


def _version(pair: Any) -> DataVersion:
    timestamp, counter = pair
    return DataVersion(_number(timestamp), _number(counter))


def _offsets(table: Any) -> dict[str, dict[int, int]]:
    return {
        _progress_key(key): {
            _int(queue_id, QUEUE_ID_MAX): _int(offset) for queue_id, offset in queues.items()
        }
        for key, queues in table.items()
    }


def _progress_key(value: Any) -> str:
    if not is_progress_key(value):
        raise ValueError(f"{value!r:.80} is no topic@group")
    return str(value)


def _name(value: Any) -> str:
    text = _text(value)
    if not is_harmless(text):
        raise ValueError(f"{text!r:.80} is no name")
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _number(value: Any) -> int:
    """Take any value: the reader of a setting checks it."""
    return _int(value, OFFSET_MAX, _NUMBER_MIN)


def _int(value: Any, most: int = OFFSET_MAX, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.80} is no number from {least} to {most}")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.80} is not true or false")
    return value


_DECODERS: Mapping[int, Callable[..., MetadataOp]] = {
    _TOPIC: _topic_put,
    _TOPIC_GONE: _topic_gone,
    _QUEUES_GONE: _queues_gone,
    _GROUP: _group_put,
    _GROUP_GONE: _group_gone,
    _OFFSETS: _offsets_set,
    _LOCAL_OFFSETS: _local_offsets_set,
    _PROGRESS_GONE: _progress_gone,
    _DELAY: _delay_set,
    _SNAPSHOT: _snapshot,
    _QUEUE_ENDS: _queue_ends,
    _ACCESS: _access_put,
}
