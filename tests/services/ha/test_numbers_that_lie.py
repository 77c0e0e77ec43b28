"""Strangers tell nodes of a set numbers that cannot be: nothing changes, and no node ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
from support.nodes.live_node import NAME, SUCCESS
from support.nodes.live_set import Broker, LiveSet, follows, level, live_set

from trioha.config import BrokerRole
from trioha.failover.outcome import Result
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.hello import Hello, LogExtent
from trioha.ha.mastership import FILE_NAME
from trioha.services.loop.clock import Clock
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.epoch_numbers import EPOCH_MAX, Word
from trioha.wire.remoting_command import RemotingCommand

TICKET = "0123456789abcdef"
NONCE = b"\xaa" * 8
PEER = {"home_id": 9, "address": "127.0.0.1:9", "ha_address": "127.0.0.1:8"}
STEPS: dict[RequestCode, dict[str, Any]] = {
    RequestCode.FAILOVER_TICKET: {
        **{"broker_name": NAME, "operator": "eve", "ttl_ms": 30_000, "wait_ms": 0},
        **{"log_offset": 0, "metadata_position": 0, "forced": False},
    },
    RequestCode.PAUSE_WRITES: {"pause_ms": 100},
    RequestCode.HAND_OVER: {"epoch": 2, "log_offset": 0, "metadata_position": 0, **PEER},
    RequestCode.PROMOTE: {
        **{"epoch": 2, "sync": True, "log_offset": 0, "planned": False},
        **{"promised": [0], "written_off": [0], "members": {"0": "127.0.0.1:9"}},
    },
    RequestCode.FOLLOW: {"epoch": 2, "nonce": NONCE, **PEER},
    RequestCode.PROMISE: {"epoch": 2},
    RequestCode.RELEASE: {"audit": {"ticket_id": TICKET}, "resume": False},
    RequestCode.FAILOVER_AUDIT: {},
    RequestCode.HA_RESYNC: {"broker_name": NAME, "dry_run": True, "force": False},
}
HOSTILE: tuple[Any, ...] = (
    *(None, -1, 2**31, 2**53, 2**63, 2**64 - 1, 1.5, float("nan"), True),
    *("", "\x1b[2J", "é" * 4000, b"", b"\xff" * 9, [], [2**64 - 1], [[[]]]),
    *({}, {"1": 2**64 - 1}, {"1": "é" * 250 + ":1"}, {"9" * 4000: "a:1"}, {b"\xff": b"\xff"}),
)


def hello_of(known: int, *, wants: int = 0, history: int = 0) -> Hello:
    """Return the hello of a stranger that says that it is a node of the set."""
    records = (EpochRecord(history, 0, 9, NONCE, True),) if history else ()
    return Hello(
        broker_name=NAME,
        home_id=9,
        address="127.0.0.1:9",
        log=LogExtent(EpochHistory(records), 0, 0),
        known_epoch=known,
        known_nonce=NONCE if known else b"",
        nonce=b"n" * 16,
        wants_epoch=wants,
        wants_nonce=NONCE if wants else b"",
    )


async def say_hello(broker: Broker, hello: Hello) -> RemotingCommand:
    return await broker.ask(RemotingCommand(RequestCode.HA_HELLO, body=hello.encode()))


async def step(broker: Broker, code: RequestCode, fields: object) -> RemotingCommand:
    return await broker.ask(RemotingCommand(code, body=msgpack.packb(fields)))


async def take_ticket(broker: Broker) -> None:
    fields = {"ticket_id": TICKET, **STEPS[RequestCode.FAILOVER_TICKET]}
    assert (await step(broker, RequestCode.FAILOVER_TICKET, fields)).code == SUCCESS


async def lone_master(set_: LiveSet) -> Broker:
    master = await set_.add(BrokerRole.ASYNC_MASTER)
    assert await master.send(b"before") == SUCCESS
    return master


@pytest.mark.parametrize(
    "hello",
    [
        hello_of(EPOCH_MAX),
        hello_of(1 + Word.UNASKED + 1),
        hello_of(0, wants=EPOCH_MAX),
        hello_of(0, history=EPOCH_MAX),
    ],
    ids=["last", "too far", "wanted", "recorded"],
)
async def test_a_hello_of_an_epoch_that_cannot_be_fences_no_master(
    tmp_path: Path, hello: Hello
) -> None:
    async with live_set(tmp_path) as set_:
        master = await lone_master(set_)
        for _ in range(3):
            answer = await say_hello(master, hello)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "tells of a term that cannot be" in (answer.remark or "")
        assert await master.send(b"after") == SUCCESS
        status = await master.status()
        assert (status["standing"], status["epoch"], status["promised_epoch"]) == ("MASTER", 1, 0)
        assert [line["code"] for line in master.events.of("request_refused")] == [30010]
        await master.stop()


async def test_a_node_fenced_by_the_largest_number_it_believes_is_brought_back_by_force(
    tmp_path: Path,
) -> None:
    async with live_set(tmp_path) as set_:
        master = await lone_master(set_)
        slave = await set_.add()
        await master.wait(level)
        lie = 1 + Word.UNASKED
        assert (await say_hello(master, hello_of(lie))).code == SUCCESS
        status = await master.wait(lambda one: one["standing"] == "FENCED")
        assert status["epoch"] == lie
        outcome = await set_.fail_over(to=0, force=True)
        assert outcome.result is Result.DONE, outcome.message
        await master.wait(lambda one: one["standing"] == "MASTER")
        # The slave, which never heard the lie, believes the term that repairs it.
        await slave.wait(lambda one: follows(one) and one["epoch"] > lie)
        assert await master.send(b"after") == SUCCESS
        await slave.stop()
        await master.stop()


async def test_a_node_that_believed_the_last_number_of_all_is_brought_back_by_force(
    tmp_path: Path,
) -> None:
    """An earlier version kept what one hello had told it."""
    async with live_set(tmp_path) as set_:
        master = await lone_master(set_)
        await master.stop()
        file = TwoSlotFile(master.root / FILE_NAME)
        assert file.payload is not None
        kept = msgpack.unpackb(file.payload, strict_map_key=False)
        kept |= {"known_epoch": EPOCH_MAX, "known_nonce": NONCE, "fenced_by": "a stranger"}
        file.save(msgpack.packb(kept))
        await master.start()
        assert (await master.status())["standing"] == "FENCED"
        outcome = await set_.fail_over(to=0, force=True)
        assert outcome.result is Result.DONE, outcome.message
        await master.wait(lambda one: one["standing"] == "MASTER")
        assert await master.send(b"after") == SUCCESS
        await master.stop()


@pytest.mark.parametrize("epoch", [0, 1 + Word.ORDERED + 1, EPOCH_MAX, EPOCH_MAX + 1, 2**63])
@pytest.mark.parametrize(
    "code",
    [RequestCode.PROMOTE, RequestCode.PROMISE, RequestCode.FOLLOW, RequestCode.HAND_OVER],
)
async def test_no_step_of_a_failover_takes_an_epoch_that_cannot_be(
    tmp_path: Path, code: RequestCode, epoch: int
) -> None:
    async with live_set(tmp_path) as set_:
        broker = await lone_master(set_)
        if code is not RequestCode.HAND_OVER:
            master, broker = broker, await set_.add()
            await master.wait(level)
        await take_ticket(broker)
        if code is RequestCode.HAND_OVER:
            fields = {"ticket_id": TICKET, "pause_ms": 30_000}
            assert (await step(broker, RequestCode.PAUSE_WRITES, fields)).code == SUCCESS
        before = await broker.status()
        answer = await step(broker, code, {"ticket_id": TICKET, **STEPS[code], "epoch": epoch})
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
        assert "epoch" in (answer.remark or "")
        after = await broker.status()
        for key in ("standing", "epoch", "promised_epoch"):
            assert after[key] == before[key]
        for one in set_.brokers:
            await one.stop()


def hostile_bodies() -> Iterator[tuple[RequestCode, object]]:
    """Each field of each step with each value, under a ticket of its own; and bodies without."""
    ticket_ids = (f"{number:016x}" for number in count(1))
    for code, fields in STEPS.items():
        for name in ("ticket_id", *fields):
            for value in HOSTILE:
                yield code, {"ticket_id": next(ticket_ids), **fields, name: value}
        for body in HOSTILE:
            yield code, body


@pytest.mark.parametrize("home_id", [0, 1], ids=["master", "slave"])
async def test_whatever_steps_and_hellos_hold_no_node_ends(tmp_path: Path, home_id: int) -> None:
    async with live_set(tmp_path) as set_:
        master = await lone_master(set_)
        slave = await set_.add()
        await master.wait(level)
        broker = set_.brokers[home_id]
        async with open_remoting_client(*parse_address(broker.address), Clock()) as client:

            async def ask(code: RequestCode, body: object) -> None:
                with trio.fail_after(20):
                    await client.request(RemotingCommand(code, body=msgpack.packb(body)))

            for code, body in hostile_bodies():
                if isinstance(body, dict) and code is not RequestCode.FAILOVER_TICKET:
                    ticket = STEPS[RequestCode.FAILOVER_TICKET]
                    shown = {"ticket_id": body.get("ticket_id"), **ticket}
                    await ask(RequestCode.FAILOVER_TICKET, shown)
                    if code is RequestCode.HAND_OVER:
                        await ask(RequestCode.PAUSE_WRITES, {**shown, "pause_ms": 1000})
                await ask(code, body)
                if isinstance(body, dict):
                    await ask(RequestCode.RELEASE, {"ticket_id": body.get("ticket_id")})
            plain = msgpack.unpackb(hello_of(1).encode())
            for name in plain:
                for value in HOSTILE:
                    await ask(RequestCode.HA_HELLO, {**plain, name: value})
        assert not broker.ended.is_set()
        assert broker.events.of("handler_failed") == []
        assert (await broker.status())["standing"]
        await slave.stop()
        await master.stop()
