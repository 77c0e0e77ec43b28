"""Numbers for the topics of a log, found for a whole run of records at once.

Theory of operation. A topic stands in its record behind a byte that is its length. NumPy reads that
byte and the first seven of the topic as one word, its last eight as another, and looks both up
among the topics seen so far; words between them are compared where a topic is longer than 15 bytes.
So equality is exact. What is not found is looked at by itself: a new topic, one so near the
window's end that a word would not fit, or no topic at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trioha.analysis.log_walk import topic_text
from trioha.analysis.plain_records import PlainRecords

_WORD = 8
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)  # any large odd number
_HEAD_MASKS = np.array([(1 << 8 * (size + 1)) - 1 for size in range(_WORD)], np.uint64)
_TAIL_MASKS = np.array([0] * _WORD + [(1 << 64) - 1], np.uint64)
_UNWANTED = -1
_FIRST_ROWS = 64
"""Rows that are looked at first, when no topic is known and each row would be looked at alone."""


class TopicCodes:
    """Codes of topics: places in `names`, and -1 for those that are not wanted."""

    def __init__(self, wanted: frozenset[str] | None = None) -> None:
        """`wanted`: None for all."""
        self.names: list[str] = []
        """Topics in the order in which they were met, which does not depend on how a log is cut."""
        self._wanted = wanted
        self._codes: dict[bytes, int] = {}
        self._keys = np.empty(0, np.uint64)
        self._known = np.empty(0, np.int32)
        self._heads = self._tails = self._keys
        self._middles: list[NDArray[np.uint64]] = []

    def code(self, topic: bytes) -> int | None:
        """Return the code of one topic; None if it is no text."""
        code = self._codes.get(topic)
        if code is None:
            text = topic_text(topic)
            if text is None:
                return None
            code = _UNWANTED
            if self._wanted is None or text in self._wanted:
                code = len(self.names)
                self.names.append(text)
            self._codes[topic] = code
        return code

    def codes(self, found: PlainRecords, window: bytes) -> NDArray[np.int32]:
        """Return the codes of records' topics, up to the first one that is no text."""
        if not self._codes and len(found) > _FIRST_ROWS:
            self.codes(found.first(_FIRST_ROWS), window)
        known_count = len(self._codes)
        codes, is_known = self._looked_up(found, window)
        for row in np.flatnonzero(~is_known).tolist():
            topic = window[int(found.body_end[row]) + 1 : int(found.topic_end[row])]
            code = self.code(topic)
            if code is None:
                codes = codes[:row]
                break
            codes[row] = code
        if len(self._codes) > known_count:
            self._index()
        return codes

    def _looked_up(
        self, found: PlainRecords, window: bytes
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return codes, and for which records they are right."""
        count, last = len(found), len(window) - _WORD
        if not len(self._keys):
            return np.zeros(count, np.int32), np.zeros(count, np.bool_)
        words = np.ndarray((last + 1,), "<u8", window, strides=(1,))
        sizes = found.topic_end - found.body_end - 1
        is_in = found.body_end <= last
        begins = np.minimum(found.body_end, last)
        heads = words[begins] & _HEAD_MASKS[np.minimum(sizes, _WORD - 1)]
        tails = words[found.topic_end - _WORD] & _TAIL_MASKS[np.minimum(sizes, _WORD)]
        places = np.searchsorted(self._keys, _key(heads, tails))
        places = np.minimum(places, len(self._keys) - 1)
        is_known = is_in & (self._heads[places] == heads) & (self._tails[places] == tails)
        for step, middle in enumerate(self._middles, 1):
            rows = np.flatnonzero(is_known & (sizes >= _WORD * step + _WORD))
            is_known[rows] = words[begins[rows] + _WORD * step] == middle[places[rows]]
        return self._known[places], is_known

    def _index(self) -> None:
        """Arrange the topics by their keys; of two that share one, the second is not found."""
        texts = [bytes([len(topic)]) + topic for topic in self._codes]
        heads = np.array([int.from_bytes(text[:_WORD], "little") for text in texts], np.uint64)
        tails = np.array(
            [int.from_bytes(text[-_WORD:], "little") if len(text) > _WORD else 0 for text in texts],
            np.uint64,
        )
        keys = _key(heads, tails)
        order = np.argsort(keys, kind="stable")
        self._keys, self._heads, self._tails = keys[order], heads[order], tails[order]
        self._known = np.array(list(self._codes.values()), np.int32)[order]
        longest = max(map(len, texts)) - 1
        self._middles = [
            np.array(
                [int.from_bytes(text[at : at + _WORD], "little") for text in texts], np.uint64
            )[order]
            for at in range(_WORD, longest - _WORD + 1, _WORD)
        ]


def _key(heads: NDArray[np.uint64], tails: NDArray[np.uint64]) -> NDArray[np.uint64]:
    keys: NDArray[np.uint64] = heads * _ODD ^ tails
    return keys
