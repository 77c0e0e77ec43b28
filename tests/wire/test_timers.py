from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.wire.timers import (
    CANCEL_BIT,
    SLOT_MS,
    RecallHandle,
    TimerCheckpoint,
    is_timer,
    parse_long,
    slot_of,
    timer_code,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("deliver_ms", "slot_ms"),
    [(10_000, 9_000), (10_001, 10_000), (10_500, 10_000), (10_999, 10_000), (11_000, 10_000)],
)
def test_slot_is_the_one_that_rocketmq_computes(deliver_ms: int, slot_ms: int) -> None:
    assert slot_of(deliver_ms, 1000) == slot_ms


@given(st.integers(NOW_MS, NOW_MS * 2), st.sampled_from([100, 200, 500, 1000]))
def test_delivery_time_survives_in_the_record(deliver_ms: int, precision_ms: int) -> None:
    slot_ms = slot_of(deliver_ms, precision_ms)
    properties = {"TIMER_OUT_MS": str(slot_ms), "TIMER_DELIVER_MS": str(deliver_ms)}
    assert timer_code(properties) == deliver_ms
    assert slot_ms < deliver_ms <= slot_ms + precision_ms


def test_record_of_rocketmq_is_due_when_its_longest_slot_ends() -> None:
    properties = {"TIMER_OUT_MS": str(NOW_MS), "TIMER_DELAY_SEC": "5"}
    assert timer_code(properties) == NOW_MS + SLOT_MS
    # The client asked for two things, and the delay counted.
    assert timer_code(properties | {"TIMER_DELIVER_MS": "17"}) == NOW_MS + SLOT_MS


def test_cancellation_comes_before_every_message_of_its_slot() -> None:
    properties = {"TIMER_OUT_MS": str(NOW_MS), "TIMER_DEL_UNIQKEY": "T+K"}
    assert timer_code(properties) == NOW_MS | CANCEL_BIT


@pytest.mark.parametrize("slot", ["", "x", "-1", "0", "1000", "9" * 18, "9" * 30])
def test_slots_that_no_clock_shows_are_no_timers(slot: str) -> None:
    assert timer_code({"TIMER_OUT_MS": slot}) == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("+5", 5), ("-5", -5), ("", None), ("5.0", None), ("٣", None), ("5 ", None)],
)
def test_numbers_are_javas(text: str, value: int | None) -> None:
    assert parse_long(text) == value


def test_message_that_has_waited_does_not_wait_again() -> None:
    assert is_timer({"TIMER_DELAY_SEC": "5"})
    assert not is_timer({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"})
    assert not is_timer({"TAGS": "x"})


def test_handle_is_the_one_of_rocketmq() -> None:
    # RecallMessageHandle.HandleV1.buildHandle("T", "broker-a", "1700000000001", "7F01").
    text = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIDdGMDE="
    handle = RecallHandle("T", "broker-a", 1_700_000_000_001, "7F01")
    assert handle.encode() == text
    assert RecallHandle.decode(text) == handle
    assert RecallHandle.decode(text.rstrip("=")) == handle


@given(st.text(max_size=60))
def test_text_that_is_no_handle_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        RecallHandle.decode(text)


@pytest.mark.parametrize("raw", [b"v2 T b 1 k", b"v1 T b x k", b"v1 T b 1", b"v1 T b 1 ", b"\xff"])
def test_handles_with_odd_contents_are_invalid(raw: bytes) -> None:
    from base64 import urlsafe_b64encode

    with pytest.raises(ValueError, match="recall handle is invalid"):
        RecallHandle.decode(urlsafe_b64encode(raw).decode())


def test_huge_handle_is_invalid() -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        RecallHandle.decode("A" * 10_000_000)


def test_checkpoint_is_rocketmqs_file() -> None:
    written = TimerCheckpoint(NOW_MS, 7).encode()
    assert written == struct.pack(">7q", NOW_MS, 0, 7, 7, 0, 0, 0)
    assert TimerCheckpoint.decode(written + bytes(4096)) == TimerCheckpoint(NOW_MS, 7)
    # A slave of RocketMQ may have queued more than its master had delivered.
    theirs = struct.pack(">7q", NOW_MS, 52, 9, 8, 0, 0, 0)
    assert TimerCheckpoint.decode(theirs) == TimerCheckpoint(NOW_MS, 8)


@pytest.mark.parametrize(
    "data",
    [b"", b"x" * 55, bytes(4096), struct.pack(">7q", NOW_MS, 0, -1, 0, 0, 0, 0), b"\xff" * 56],
)
def test_other_files_are_no_checkpoint(data: bytes) -> None:
    assert TimerCheckpoint.decode(data) is None
