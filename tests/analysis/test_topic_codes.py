from __future__ import annotations

import random
import string

import numpy as np
import pytest
from support.stores.records import encode_record
from support.stores.small import message

from trioha.analysis import topic_codes
from trioha.analysis.plain_records import PlainReader, PlainRecords
from trioha.analysis.topic_codes import TopicCodes

KINDS = (
    [text[:size] for size in range(1, 40) for text in (string.ascii_letters, "x" * 40)]
    # The same length, beginning and end: only the middle differs.
    + [f"beginning{middle}-the-end" for middle in ("-of-orders--", "-of-clicks--", "-of-clickz--")]
    + ["t" * 127, "t" * 60 + "u" + "t" * 66, "café-ü-Ω"]
)


def read(topics: list[str]) -> tuple[PlainRecords, bytes]:
    window, places = b"", []
    for topic in topics:
        places.append(len(window))
        # The body ends with bytes like those of a topic.
        put = message(b"orders", topic=topic, properties=b"")
        window += encode_record(put, 0, len(window), 1)
    found = PlainReader(0).read(window, 0, 0, len(window))
    assert found is not None
    assert len(found) == len(topics)
    return found, window


@pytest.mark.parametrize("seed", range(5))
def test_codes_are_those_of_one_look_at_a_time(seed: int) -> None:
    rng = random.Random(seed)
    codes, alone = TopicCodes(), TopicCodes()
    for _ in range(4):
        topics = rng.choices(
            rng.sample(KINDS, rng.randrange(1, len(KINDS))), k=rng.randrange(1, 80)
        )
        found, window = read(topics)
        told = codes.codes(found, window)
        assert [codes.names[code] for code in told.tolist()] == topics
        assert told.tolist() == [alone.code(topic.encode()) for topic in topics]
    assert codes.names == alone.names


def test_topics_of_one_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_codes, "_key", lambda heads, tails: np.zeros(len(heads), np.uint64))
    codes = TopicCodes()
    for _ in range(3):
        found, window = read(KINDS)
        assert [codes.names[code] for code in codes.codes(found, window).tolist()] == KINDS


def test_topics_that_are_not_wanted_have_no_name() -> None:
    codes = TopicCodes(frozenset({"clicks"}))
    found, window = read(["orders", "clicks", "orders", "audit", "clicks"])
    for _ in range(2):
        assert codes.codes(found, window).tolist() == [-1, 0, -1, -1, 0]
    assert codes.names == ["clicks"]


def test_codes_end_before_a_topic_that_is_no_text() -> None:
    found, window = read(["orders", "clicks", "orders"])
    codes = TopicCodes()
    at = window.index(b"\6clicks") + 2
    damaged = window[:at] + b"\xff" + window[at + 1 :]
    for _ in range(2):
        assert codes.codes(found, damaged).tolist() == [0]
    assert codes.names == ["orders"]
