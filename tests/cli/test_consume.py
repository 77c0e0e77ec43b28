"""`trioha consume`: lines, JSON, and where a group begins."""

from __future__ import annotations

import json

import click
import pytest
import trio
from support.fakes.client_messages import received
from support.fakes.cluster import FakeCluster

from trioha.cli import run
from trioha.cli.consume import ConsumeProgress, json_line, parse_begin, print_messages, text_line
from trioha.cli.failures import ExitCode
from trioha.client import ConsumeFrom, PushConsumerConfig, open_push_consumer
from trioha.testing.virtual_time import run_on_virtual_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first", (ConsumeFrom.FIRST, 0)),
        ("last", (ConsumeFrom.LAST, 0)),
        ("1700000000123", (ConsumeFrom.TIMESTAMP, 1700000000123)),
        ("2023-11-14T22:13:20+00:00", (ConsumeFrom.TIMESTAMP, 1700000000000)),
    ],
)
def test_where_to_begin(text: str, expected: tuple[ConsumeFrom, int]) -> None:
    assert parse_begin(text) == expected


def test_where_to_begin_must_be_a_time() -> None:
    with pytest.raises(click.UsageError, match="ISO 8601"):
        parse_begin("yesterday")


def test_a_text_line_is_the_body() -> None:
    assert text_line(received("grüße".encode())) == "grüße\n".encode()


def test_a_json_line_tells_everything() -> None:
    line = json.loads(json_line(received(b"hi", b"TAGS\x01A\x02KEYS\x01k", queue_offset=3)))
    assert (line["body"], line["tags"], line["keys"]) == ("hi", "A", ["k"])
    assert (line["broker"], line["queue_id"], line["queue_offset"]) == ("a", 0, 3)


def test_a_body_that_is_no_text_comes_in_base64() -> None:
    line = json.loads(json_line(received(b"\xff\x00")))
    assert line["body_base64"] == "/wA="
    assert "body" not in line


def printed(
    stored: int, count: int | None, idle_s: float | None
) -> tuple[int, dict[tuple[str, str, int], int]]:
    """Return how many of `stored` messages were printed, and the committed offsets."""
    progress = ConsumeProgress()
    offsets: dict[tuple[str, str, int], int] = {}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = FakeCluster(nursery)
            broker = cluster.add_broker()
            for number in range(stored):
                broker.put("T", 0, b"%d" % number)
            async with open_push_consumer(
                cluster.namesrv.address,
                "G",
                {"T": "*"},
                config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST),
                cluster_config=cluster.config,
            ) as consumer:
                await print_messages(consumer, progress, count, idle_s, text_line)
            nursery.cancel_scope.cancel()
        offsets.update(broker.offsets)

    run_on_virtual_time(main)
    return progress.printed, offsets


def test_it_stops_after_so_many_and_commits_exactly_those(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    count, offsets = printed(stored=5, count=3, idle_s=None)
    assert capfdbinary.readouterr().out == b"0\n1\n2\n"
    assert (count, offsets["G", "T", 0]) == (3, 3)


def test_it_stops_when_nothing_came_for_a_while() -> None:
    assert printed(stored=2, count=5, idle_s=10.0)[0] == 2


def test_nobody_there_ends_when_idle_with_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["consume", "-n", "127.0.0.1:1", "-t", "T", "-g", "G", "--count", "1"]
    assert run([*arguments, "--idle", "0.01"]) == ExitCode.UNREACHABLE
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("no name server answers: 127.0.0.1:1: Connection refused" in line for line in said)
    assert said[0].endswith("; waiting")
