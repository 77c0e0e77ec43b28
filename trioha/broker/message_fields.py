"""Fields of a message's properties for consume queues and the index (CommitLog.java, dispatch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from trioha.store.interface import PutMessage
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY, encode_properties
from trioha.wire.record import Record

_hash_of: Final = lru_cache(maxsize=4096)(string_hash)
_I32_MAX: Final = 0x7FFFFFFF
_KEPT_TAGS_CHARS: Final = 256
"""Longest tags whose hash is kept: thousands of longer ones would take a lot of memory."""


def tags_code(properties: Mapping[str, str]) -> int:
    """Java's hash of the whole TAGS string, 0 without one: what consumers filter by."""
    tags = properties.get(TAGS)
    if tags is None:
        return 0
    return _hash_of(tags) if len(tags) <= _KEPT_TAGS_CHARS else string_hash(tags)


def index_keys(properties: Mapping[str, str]) -> Sequence[bytes]:
    """Return the keys of the index: the client's unique id, then each key of the message."""
    unique_id = properties.get(UNIQ_KEY)
    keys = properties.get(KEYS)
    if keys is None:
        return () if unique_id is None else (unique_id.encode("utf-8", "replace"),)
    found = [key.encode("utf-8", "replace") for key in keys.split(KEY_SEPARATOR) if key]
    if unique_id is not None:
        found.insert(0, unique_id.encode("utf-8", "replace"))
    return found


def copied_message(
    record: Record,
    topic: str,
    queue_id: int,
    properties: Mapping[str, str],
    *,
    encoded: bytes | None = None,
    code: int | None = None,
    attempts_more: int = 0,
) -> PutMessage:
    """Return a copy of a stored message for another queue.

    `encoded` and `code` are given where they are not simply those of `properties`.
    """
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        body=record.body,
        properties=encode_properties(properties) if encoded is None else encoded,
        tags_code=tags_code(properties) if code is None else code,
        keys=index_keys(properties),
        reconsume_times=min(record.reconsume_times + attempts_more, _I32_MAX),
    )


def is_true(value: str | None) -> bool:
    """Boolean.parseBoolean: anything but "true", in whatever case, is false."""
    return value == "true" or (value is not None and value.lower() == "true")
