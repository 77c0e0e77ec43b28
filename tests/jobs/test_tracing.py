"""The records that RocketMQ's clients send to the trace topic (TraceDataEncoder.java)."""

from __future__ import annotations

import pytest

from trioha.jobs.tracing import TraceStep, steps_of

ID = "AC11000100002A9F00000000000004D2"
PUB = ["Pub", "1700", "eu", "shop", "orders", ID, "paid", "k", "10.0.0.1:10911", "5", "3", "0"]


def line(*fields: str) -> str:
    return "\x01".join(fields)


def test_a_send_with_and_without_an_offset_id() -> None:
    expected = TraceStep(1700, "sent", "shop", "", 3, "10.0.0.1:10911")
    assert steps_of(line(*PUB, "true"), ID) == [expected]
    assert steps_of(line(*PUB, "7F00", "true"), ID) == [expected]
    (told,) = steps_of(line(*PUB, "7F00", "false", "10.0.0.9"), ID)
    assert (told.what, told.client) == ("failed", "10.0.0.9")


def test_a_delivery_and_its_end_belong_together() -> None:
    text = "\x02".join(
        [
            line("SubBefore", "1800", "eu", "billing", "R1", ID, "0", "k"),
            line("SubAfter", "R1", ID, "40", "false", "k", "1"),
            line("SubBefore", "2800", "eu", "billing", "R2", ID, "1", "k"),
            line("SubAfter", "R2", ID, "30", "true", "k", "0", "2830", "billing"),
            "",
        ]
    )
    assert [(one.at_ms, one.what, one.group, one.cost_ms) for one in steps_of(text, ID)] == [
        (1800, "received", "billing", None),
        (1840, "failed", "billing", 40),
        (2800, "received", "billing", None),
        (2830, "consumed", "billing", 30),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pub",
        line("Pub", "soon", *PUB[2:], "true"),
        line("Other", "x"),
        line(*PUB[:8]),
        "\x02\x02",
    ],
)
def test_what_is_no_record_is_left_out(text: str) -> None:
    assert steps_of(text, ID) == []


def test_a_record_of_another_message_is_left_out() -> None:
    assert steps_of(line(*PUB, "true"), "another") == []


def test_the_end_of_a_transaction() -> None:
    told = line(
        *("EndTransaction", "1900", "eu", "shop", "orders", ID, "paid", "k", "10.0.0.1:10911"),
        *("2", "T1", "COMMIT_MESSAGE", "false"),
    )
    (step,) = steps_of(told, ID)
    assert (step.what, step.detail) == ("transaction", "COMMIT_MESSAGE")
