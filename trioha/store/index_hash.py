"""Hashes of many index keys at a time (IndexFile.indexKeyHashMethod).

A client's unique id ends in a counter of four hex digits; what stands before it stays the same for
a millisecond. So the hash of `topic#` and the first 28 characters is remembered, and the rest is
two look-ups. Any other key goes the long way. Everything remembered may be forgotten at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trioha.store.index_file import Keyed
from trioha.wire.java_hash import index_key_hash, string_hash

_MASK: Final = 0xFFFFFFFF
_UNIQUE_ID_BYTES: Final = 32
_HEAD_BYTES: Final = 28
_HEADS_MAX = 512
_TOPICS_MAX = 64
_HEX_DIGITS = b"0123456789ABCDEF"
_POWER_2: Final = 31**2
_POWER_4: Final = 31**4
_PAIRS: Final = {bytes((high, low)): high * 31 + low for high in _HEX_DIGITS for low in _HEX_DIGITS}


class IndexHasher:
    def __init__(self) -> None:
        self._heads: dict[str, dict[bytes, int]] = {}
        """By topic and head: the head's hash, moved up to make room for the counter."""

    def hashes(self, keyed: Sequence[Keyed]) -> list[int]:
        """Of ``topic#key``, one for each row."""
        found: list[int] = []
        last_topic = ""
        heads: dict[bytes, int] = {}
        for _, _, topic, key in keyed:
            if len(key) == _UNIQUE_ID_BYTES:
                if topic != last_topic:
                    last_topic = topic
                    heads = self._heads_of(topic)
                high = _PAIRS.get(key[28:30])
                low = _PAIRS.get(key[30:])
                if high is not None and low is not None:
                    state = heads.get(key[:_HEAD_BYTES])
                    if state is None:
                        state = _learn(heads, topic, key[:_HEAD_BYTES])
                    value = (state + high * _POWER_2 + low) & _MASK
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
