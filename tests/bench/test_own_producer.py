"""The lines that RocketMQ's own load program prints."""

from __future__ import annotations

import pytest
from bench.peer.own_producer import Report

LINE = "Send TPS: 4304 Max RT: 311 Average RT:  14.893 Send Failed: 1 Response Failed: 2"


def test_a_report_has_the_rate_the_average_and_all_failures() -> None:
    assert Report.of(LINE) == Report(4304.0, 14.893, 3)


@pytest.mark.parametrize(
    "line",
    ["", "topic bench threadCount 64 messageSize 128 keyEnable false", LINE[: LINE.rindex(":")]],
)
def test_other_lines_tell_nothing(line: str) -> None:
    assert Report.of(line) is None
