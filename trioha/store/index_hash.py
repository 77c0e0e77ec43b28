"""Hashes of many index keys at a time (IndexFile.indexKeyHashMethod).

A client's unique id, 32 characters from a host on IPv4 and 56 on IPv6, ends in a counter of four
hex digits; what stands before it stays the same for a millisecond. So the hash of `topic#` and all
but the counter is remembered, and only the rest is counted. Any other key goes the long way.
Everything remembered may be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from librt.strings import read_i32_be

from trioha.store.index_file import Keyed
from trioha.wire.java_hash import (
    UNIQUE_ID_CHARS_V4,
    UNIQUE_ID_CHARS_V6,
    index_key_hash,
    string_hash,
)

_MASK: Final = 0xFFFFFFFF
_UNIQUE_ID_V4: Final = UNIQUE_ID_CHARS_V4
_UNIQUE_ID_V6: Final = UNIQUE_ID_CHARS_V6
_COUNTER_BYTES: Final = 4
_HEADS_MAX: Final = 512
_TOPICS_MAX: Final = 64
_NOT_ASCII: Final = -0x7F7F7F80  # the highest bit of each of four bytes
_POWER_2: Final = 31**2
_POWER_3: Final = 31**3
_POWER_4: Final = 31**4


class IndexHasher:
    def __init__(self) -> None:
        self._heads: dict[str, dict[bytes, int]] = {}
        """Hash of each head, by topic and head, moved up to make room for the counter."""

    def hashes(self, keyed: Sequence[Keyed]) -> list[int]:
        """Return the hash of ``topic#key`` for each row."""
        found: list[int] = []
        last_topic = ""
        heads: dict[bytes, int] = {}
        for _, _, topic, key in keyed:
            size = len(key)
            if size in (_UNIQUE_ID_V4, _UNIQUE_ID_V6):
                if topic != last_topic:
                    last_topic = topic
                    heads = self._heads_of(topic)
                tail: int = read_i32_be(key, size - _COUNTER_BYTES)
                if not tail & _NOT_ASCII:
                    head = key[: size - _COUNTER_BYTES]
                    state = heads.get(head)
                    if state is None:
                        state = _learn(heads, topic, head)
                    value = (
                        state
                        + (tail >> 24) * _POWER_3
                        + (tail >> 16 & 0x7F) * _POWER_2
                        + (tail >> 8 & 0x7F) * 31
                        + (tail & 0x7F)
                    ) & _MASK
                    if value > 0x7FFFFFFF:
                        # Math.abs, and Integer.MIN_VALUE counts as 0.
                        value = (0x100000000 - value) & 0x7FFFFFFF
                    found.append(value)
                    continue
            found.append(index_key_hash(topic, key.decode("utf-8", "replace")))
        return found

    def _heads_of(self, topic: str) -> dict[bytes, int]:
        heads = self._heads.get(topic)
        if heads is None:
            if len(self._heads) >= _TOPICS_MAX:
                self._heads.clear()
            heads = self._heads[topic] = {}
        return heads


def _learn(heads: dict[bytes, int], topic: str, head: bytes) -> int:
    # A head that is not ASCII is counted in chars, as Java does; the tail's place is the same.
    state = string_hash(f"{topic}#{head.decode('utf-8', 'replace')}") * _POWER_4
    if len(heads) >= _HEADS_MAX:
        heads.clear()
    heads[head] = state
    return state
