from __future__ import annotations

import asyncio

import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, Console, check_snapshot, open_console
from support.stores.records import encode_record

from trioha.errors import Unreachable
from trioha.store.interface import PutMessage
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import pack_host
from trioha.wire.names import TRACE_TOPIC
from trioha.wire.properties import encode_properties
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, TopicRouteData

STORED_MS = 1_760_000_000_000
HOST = pack_host("10.0.1.1", 10911)


class FakeBroker:
    """A topic `orders` of one queue with ten messages; it keeps what it is asked."""

    def __init__(self, bodies: list[bytes] | None = None) -> None:
        self.asked: list[RemotingCommand] = []
        self.records = [
            _record(index, body)
            for index, body in enumerate(
                bodies or [b'{"order": %d, "item": "tea"}' % number for number in range(10)]
            )
        ]

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        self.asked.append(command)
        fields = command.ext_fields
        match command.code:
            case RequestCode.GET_TOPIC_STATS_INFO:
                if fields["topic"] != "orders":
                    return command.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
                key = MessageQueue("orders", "broker-a", 0).to_dict()
                ends = {"minOffset": 0, "maxOffset": len(self.records), "lastUpdateTimestamp": 1}
                table = fastjson.ObjectKeyMap([(key, ends)])
                return command.response(body=fastjson.dumps({"offsetTable": table}))
            case RequestCode.QUERY_CONSUME_QUEUE:
                first = command.ext_int("index")
                entries = range(first, first + command.ext_int("count"))
                data = [{"physicOffset": one * 1000, "physicSize": 1} for one in entries]
                return command.response(body=fastjson.dumps({"queueData": data}))
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                offset = (command.ext_int("timestamp") - STORED_MS) // 1000
                return command.response(ext_fields={"offset": str(max(0, offset))})
            case RequestCode.VIEW_MESSAGE_BY_ID:
                return command.response(body=self.records[command.ext_int("offset") // 1000])
            case RequestCode.QUERY_MESSAGE:
                return command.response(body=self.records[3])
        raise AssertionError(f"asked {command}")


class TracedBroker(FakeBroker):
    """Three groups of `orders`: one has consumed its message 3, one has not, one told nothing."""

    def __init__(self, steps: list[tuple[str, ...]]) -> None:
        super().__init__()
        self.steps = steps

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        match command.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                route = TopicRouteData([BrokerData("c", "broker-a", {0: "10.0.1.1:10911"})])
                return command.response(body=route.encode(True))
            case RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
                body = {"groupList": ["billing", "shipping", "absent"]}
                return command.response(body=fastjson.dumps(body))
            case RequestCode.GET_CONSUME_STATS:
                offsets = {"billing": 4, "shipping": 3}
                key = MessageQueue("orders", "broker-a", 0).to_dict()
                rows = [
                    (key, {"brokerOffset": 10, "consumerOffset": offset, "lastTimestamp": 0})
                    for group, offset in offsets.items()
                    if group == fields["consumerGroup"]
                ]
                table = fastjson.ObjectKeyMap(rows)
                return command.response(body=fastjson.dumps({"offsetTable": table}))
            case RequestCode.QUERY_MESSAGE if fields["topic"] == TRACE_TOPIC:
                text = "\x02".join("\x01".join(one) for one in self.steps)
                return command.response(body=_record(0, text.encode(), keys=ID_3))
        return await super().__call__(address, command)


ID_3 = f"{3:032X}"
STEPS = [
    ("SubBefore", f"{STORED_MS + 3040}", "eu", "billing", "R1", ID_3, "0", "K3"),
    ("SubAfter", "R1", ID_3, "25", "false", "K3", "1"),
    ("SubBefore", f"{STORED_MS + 13_100}", "eu", "billing", "R2", ID_3, "1", "K3"),
    ("SubAfter", "R2", ID_3, "30", "true", "K3", "0"),
]


def _record(index: int, body: bytes, *, keys: str = "") -> bytes:
    stored_ms = STORED_MS + index * 1000
    message = PutMessage(
        topic="orders",
        queue_id=0,
        flag=0,
        sys_flag=0,
        body=body,
        properties=encode_properties(
            {"KEYS": keys or f"K{index}", "TAGS": "A", "UNIQ_KEY": f"{index:032X}"}
        ),
        born_timestamp=stored_ms,
        born_host=pack_host("10.9.9.9", 5555),
        store_host=HOST,
    )
    return encode_record(message, index, index * 1000, stored_ms)


async def ask(console: Console, line: str) -> None:
    await console.press("6", "i", "ctrl+u", *[_key(one) for one in line], "enter")
    await console.settled()


def _key(character: str) -> str:
    return {" ": "space", "-": "minus", ":": "colon"}.get(character, character)


def a_cluster() -> RawCluster:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    return cluster


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_newest_messages_of_a_topic(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        console.source.answer = FakeBroker()
        await ask(console, "orders")
        check_snapshot(f"messages-{size[0]}x{size[1]}", console.text)


async def test_a_body_as_text_as_json_and_as_bytes() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.source.answer = FakeBroker()
        await ask(console, "orders")
        assert "body as text" in console.text
        await console.press("v")
        assert '  "item": "tea"' in console.text
        await console.press("v")
        assert "00000000  7b 22 6f 72" in console.text


@pytest.mark.parametrize(
    ("line", "offsets"),
    [
        ("orders last 3", [7, 8, 9]),
        ("orders offset 8", [8, 9]),
        ("orders offset 2 count 2", [2, 3]),
        ("orders at 1760000006000", [6, 7, 8, 9]),
        ("orders key K3", [3]),
        ("orders id 00000000000000000000000000000003", [3]),
        ("id 0A00010100002A9F0000000000000FA0", [4]),
        ("orders key K4", []),
    ],
)
async def test_the_ways_to_ask(line: str, offsets: list[int]) -> None:
    async with open_console(a_cluster()) as console:
        console.source.answer = FakeBroker()
        await ask(console, line)
        found = [row.record.queue_offset for row in console.app.view.grid.rows]
        assert found == offsets


async def test_nobody_is_a_consumer_of_anything() -> None:
    async with open_console(a_cluster()) as console:
        broker = console.source.answer = FakeBroker()
        for line in ("orders", "orders offset 1", "orders key K3", "orders at 1760000006000"):
            await ask(console, line)
        asked = {command.code for command in broker.asked}
        assert asked.isdisjoint(
            {RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET}
        )
        assert not any(command.ext_fields.get("consumerGroup") for command in broker.asked)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("orders since yesterday", "yesterday is no time"),
        ("orders banana", "banana is not understood"),
        ("orders queue x", "queue takes a number, not x"),
        ("nowhere", "no broker has a queue of topic nowhere"),
        ("orders broker b9", "no master of b9 is known; there are broker-a"),
        ("id 123", "name the topic"),
    ],
)
async def test_what_cannot_be_asked_is_said_in_a_sentence(line: str, said: str) -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.source.answer = FakeBroker()
        await ask(console, line)
        assert said in console.text


async def test_a_question_without_an_answer_leaves_no_old_rows_and_stays_to_be_mended() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.source.answer = FakeBroker()
        await ask(console, "orders")
        assert console.app.view.grid.rows
        for line in ("nowhere", "orders queue x"):
            await ask(console, line)
            assert not console.app.view.grid.rows
            assert "body as" not in console.text
            await console.press("q", "x")
            assert f"{line}qx" in console.text
        await console.press("escape", "1")
        assert console.app.view.NAME == "replication"


async def test_a_broker_that_goes_away_is_said_and_nothing_else_happens() -> None:
    async def gone(address: str, command: RemotingCommand) -> RemotingCommand:
        raise Unreachable(f"{address}: Connection refused")

    async with open_console(a_cluster(), LARGE) as console:
        console.source.answer = gone
        await ask(console, "orders")
        assert "10.0.1.1:10911: Connection refused" in console.text


async def test_a_body_cannot_play_with_the_terminal() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.source.answer = FakeBroker([b"\x1b[2J\x1b]0;pwned\x07 [red]not markup[/red]"])
        await ask(console, "orders")
        text = console.text
        assert "\x1b" not in text
        assert "[red]not markup[/red]" in text


async def test_following_asks_again_with_each_frame() -> None:
    async with open_console(a_cluster()) as console:
        broker = console.source.answer = FakeBroker()
        await ask(console, "orders")
        await console.press("f")
        broker.records.append(_record(10, b"new"))
        await console.tick()
        await console.settled()
        assert console.app.view.grid.rows[-1].record.queue_offset == 10
        assert console.app.view.grid.cursor == len(console.app.view.grid.rows) - 1


class HeldBroker(FakeBroker):
    """Broker that answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        await self.may_answer.wait()
        return await super().__call__(address, command)


async def test_an_answer_on_its_way_does_not_hide_that_following_has_ended() -> None:
    async with open_console(a_cluster()) as console:
        broker = console.source.answer = HeldBroker()
        await ask(console, "orders")
        await console.press("f")
        broker.records.append(_record(10, b"it came late"))
        broker.may_answer.clear()
        await console.tick()
        await console.press("f")
        await console.shows("No longer following.")
        broker.may_answer.set()
        await console.shows("it came late")
        assert "No longer following." in console.text


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_way_of_a_message_is_a_timeline(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        console.source.answer = TracedBroker(STEPS)
        await ask(console, "orders key K3")
        await console.press("t")
        await console.shows("shipping waiting")
        check_snapshot(f"trace-{size[0]}x{size[1]}", console.text)
        await console.press("escape")
        assert console.app.screen is console.app.main


async def test_a_way_that_no_client_told_of_has_the_times_of_the_broker() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        broker = console.source.answer = TracedBroker([])
        await ask(console, "orders key K3")
        await console.press("t")
        await console.shows("No client told of it: tracing is off in its clients.")
        assert console.line("stored").endswith("broker-a queue 0, offset 3")
        broker.steps = STEPS
        await console.press("r")
        await console.shows("consumed     billing")
