"""`trioha produce`: what is sent, what is said, how it fails."""

from __future__ import annotations

import io
import json
from pathlib import Path

import attrs
import pytest
import trio
from support.fakes.cluster import Answer, FakeCluster

from trioha.cli import run
from trioha.cli.produce import SendOptions, SendTally, _know_nothing, send_all
from trioha.client import Message, SendRefused, TransactionState, open_producer
from trioha.testing import open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand


def options(
    count: int | None, *, batch: int = 1, concurrency: int = 1, each: bool = False
) -> SendOptions:
    return SendOptions(
        template=Message("T", b"body", "A"),
        count=count,
        batch=batch,
        concurrency=concurrency,
        shard_key="one queue",
        each=each,
    )


async def sent_bodies(chosen: SendOptions, tally: SendTally) -> list[bytes]:
    """Send to a cluster in memory and return what it stored."""
    async with trio.open_nursery() as nursery:
        cluster = FakeCluster(nursery)
        broker = cluster.add_broker()
        async with open_producer(
            cluster.namesrv.address, cluster_config=cluster.config
        ) as producer:
            await send_all(producer, chosen, tally)
        nursery.cancel_scope.cancel()
    queues = broker.queues.values()
    return [record.body for queue in queues for record in decode_records(b"".join(queue))]


def run_sends(chosen: SendOptions) -> tuple[list[bytes], SendTally]:
    tally = SendTally()
    bodies: list[bytes] = []

    async def main() -> None:
        bodies.extend(await sent_bodies(chosen, tally))

    run_on_virtual_time(main)
    return bodies, tally


@pytest.mark.parametrize(("batch", "concurrency"), [(1, 1), (1, 4), (3, 1), (3, 2)])
def test_as_many_as_asked_for_are_sent(batch: int, concurrency: int) -> None:
    bodies, tally = run_sends(options(10, batch=batch, concurrency=concurrency))
    assert bodies == [b"body"] * 10
    assert (tally.sent, dict(tally.statuses)) == (10, {"SEND_OK": 10})


def test_lines_of_stdin_are_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\n\ntwo words\nlast")
    with file.open("rb") as stream:
        wrapped = io.TextIOWrapper(stream)
        monkeypatch.setattr("sys.stdin", wrapped)
        tally = SendTally()

        # Real time: a thread reads the file.
        async def main() -> None:
            assert await sent_bodies(options(None), tally) == [b"one", b"", b"two words", b"last"]

        trio.run(main)
    assert tally.sent == 4


def test_each_result_is_a_json_line_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    run_sends(options(2, each=True))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["status"], first["queue_offset"], second["queue_offset"]) == ("SEND_OK", 0, 1)


@pytest.mark.parametrize("outcome", TransactionState)
def test_transactions_end_as_they_are_told(outcome: TransactionState) -> None:
    tally = SendTally()
    received: list[bytes] = []

    async def main() -> None:
        async with (
            open_cluster("single") as cluster,
            cluster.transactional_producer(_know_nothing) as producer,
        ):
            await send_all(producer, attrs.evolve(options(2), transaction=outcome), tally)
            received.extend(message.body for message in await cluster.consume("T", group="G"))

    run_on_virtual_time(main)
    assert received == ([b"body"] * 2 if outcome is TransactionState.COMMIT else [])
    assert tally.statuses == {"SEND_OK": 2}


def test_the_first_refusal_ends_it_and_what_was_sent_is_counted() -> None:
    tally = SendTally()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = FakeCluster(nursery)
            broker = cluster.add_broker()

            def refuse_third(command: RemotingCommand) -> Answer:
                if len(broker.asked(RequestCode.SEND_MESSAGE_V2)) > 2:
                    return command.response(ResponseCode.MESSAGE_ILLEGAL, "no")
                return command.response(ext_fields={"queueOffset": "0", "queueId": "0"})

            broker.scripts[RequestCode.SEND_MESSAGE_V2] = refuse_third
            config = cluster.config
            async with open_producer(cluster.namesrv.address, cluster_config=config) as producer:
                with pytest.RaisesGroup(SendRefused, flatten_subgroups=True):
                    await send_all(producer, options(10), tally)
            nursery.cancel_scope.cancel()

    run_on_virtual_time(main)
    assert tally.sent == 2


def test_nobody_there_is_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["produce", "-n", "127.0.0.1:1", "-t", "T", "--count", "1", "-o", "json"]) == 4
    output = capsys.readouterr()
    assert json.loads(output.out)["sent"] == 0
    assert "no name server answers" in output.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--count", "1"],
        ["produce", "-t", "T", "--count", "1", "--property", "nonsense"],
        ["produce", "-t", "T", "--count", "0"],
        ["consume", "-t", "T"],
        ["consume", "-t", "T", "-g", "G", "--from", "yesterday"],
        ["bench", "produce", "-n", "127.0.0.1:1", "--self"],
        ["bench", "ha", "-n", "127.0.0.1:1"],
        ["bench", "produce", "--transactions", "--batch", "2"],
        ["bench", "consume", "--filter-percent", "1", "--push"],
        ["produce", "-n", "127.0.0.1:1", "-t", "T", "--transaction", "commit", "--batch", "2"],
        ["produce", "-n", "127.0.0.1:1", "-t", "T", "--transaction", "commit", "--delay", "1s"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "try `trioha" in capsys.readouterr().err
