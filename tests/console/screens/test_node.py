from __future__ import annotations

from typing import Any

import msgpack
import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, Console, check_snapshot, open_console
from trioha_console.screens.node import NodeScreen
from trioha_console.screens.node_tables import waits_facts

from trioha.errors import Unreachable
from trioha.journal.file import Event
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

SIZES = pytest.mark.parametrize("size", [SMALL, LARGE])
TREE = {
    "count": 4,
    "root": {
        "name": "<init>",
        "waits_in": "",
        "nurseries": [
            {
                "left_out": 0,
                "tasks": [
                    {
                        "name": "node",
                        "waits_in": "services/broker.py:105 _serve_store",
                        "nurseries": [
                            {
                                "left_out": 7,
                                "tasks": [
                                    {
                                        "name": "commitlog_flush",
                                        "waits_in": "services/node/log_flush.py:62 run",
                                        "nurseries": [],
                                    }
                                ],
                            }
                        ],
                    },
                    {"name": "signals", "waits_in": "", "nurseries": []},
                ],
            }
        ],
    },
}
SETTINGS = {
    "settings": [
        {"key": "brokerRole", "value": "SYNC_MASTER", "origin": "--role", "doc": ""},
        {"key": "adminHttpEnable", "value": True, "origin": "default", "doc": ""},
    ]
}
EVENTS = [
    [1, 1_760_000_000_000, "node_started", {"node": "broker-a:0"}],
    [2, 1_760_000_001_000, "ha_disconnected", {"peer": "10.0.1.2:5", "reason": "silent"}],
]


class FakeNode:
    """Answers what the node screen asks; polls of the journal beyond its end hang."""

    def __init__(self) -> None:
        self.events = list(EVENTS)
        self.waits: list[Any] = []

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.TRIOHA_NODE_TASKS:
            return command.response(body=msgpack.packb(TREE))
        if command.code == RequestCode.TRIOHA_NODE_CONFIG:
            return command.response(body=msgpack.packb(SETTINGS))
        if command.code == RequestCode.TRIOHA_JOURNAL_STREAM:
            if command.ext_fields.get("names") == "sync_waits":
                told: dict[str, Any] = {"next": 9, "end": 9, "events": self.waits}
                return command.response(body=msgpack.packb(told))
            first = command.ext_int("from", 1)
            if first > len(self.events):
                raise Unreachable("10.0.1.1:10911: connection closed by the node")
            told = {"next": len(self.events) + 1, "end": len(self.events) + 1}
            return command.response(body=msgpack.packb(told | {"events": self.events[first - 1 :]}))
        raise AssertionError(f"asked {command}")


async def open_node(console: Console) -> None:
    console.source.answer = FakeNode()
    await console.press("down", "enter")
    await console.tick()
    assert isinstance(console.app.screen, NodeScreen)


@SIZES
async def test_each_tab_of_a_node(size: tuple[int, int]) -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    cluster.statuses[master]["epochs"] = [
        {"epoch": 1, "home_id": 0, "start_offset": 0, "began_wall_ms": 1_760_000_000_000}
    ]
    cluster.tick()
    async with open_console(cluster, size) as console:
        await open_node(console)
        name = f"{size[0]}x{size[1]}"
        check_snapshot(f"node-overview-{name}", console.text)
        for tab, told in (
            *(("journal", "connection closed by the node"), ("tasks", "signals")),
            *(("settings", "adminHttpEnable"),),
        ):
            await console.press("I" if tab == "tasks" else "tab")
            await console.shows(told)
            check_snapshot(f"node-{tab}-{name}", console.text)


async def test_the_journal_is_filtered_by_words() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await open_node(console)
        await console.press("tab", "slash", *"disconn")
        assert "ha_disconnected" in console.text
        assert "node_started" not in console.text
        await console.press("escape")
        assert "node_started" in console.text


async def test_a_node_that_is_not_ours_says_so_in_a_sentence() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")

    async def refuse(address: str, command: RemotingCommand) -> RemotingCommand:
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")

    async with open_console(cluster) as console:
        await open_node(console)
        console.source.answer = refuse
        await console.press("I")
        await console.settled()
        assert "This node is not trioha, or an older one" in console.text


async def test_a_journal_whose_node_goes_away_keeps_what_it_has_told() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await open_node(console)
        await console.press("tab")
        await console.settled()
        assert "node_started" in console.text
        assert "connection closed by the node" in console.text


async def test_escape_goes_back_and_the_screen_below_is_drawn_anew() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await open_node(console)
        cluster.silent[slave] = "gone"
        await console.tick()
        await console.press("escape")
        assert "unreachable" in console.line(f"1 {slave}")


@SIZES
async def test_put_waits_of_a_sample_are_on_the_screen_as_a_whole(size: tuple[int, int]) -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    node = FakeNode()
    bins = [*([0] * 13), 12_345]
    async with open_console(cluster, size) as console:
        node.waits = [[8, cluster.wall_ms, "sync_waits", {"bins": bins}]]
        console.source.answer = node
        await console.press("down", "enter")
        await console.tick(2)
        assert "put waits    p50 ≥4096, p99 ≥4096 ms" in console.text
        assert "sample       12345 sends, " in console.text
        assert " s ago" in console.line("12345 sends")


@pytest.mark.parametrize(
    ("bins", "said"),
    [
        ([90, 9, 1], "p50 <1, p99 <2 ms  100 sends, 0.0 s ago"),
        ([0, 0, 4], "p50 ≥2, p99 ≥2 ms"),
        *((odd, "no sample") for odd in (None, "x", [], [3], [0, 0], ["a", 1], [-1, 1])),
    ],
)
def test_put_waits_are_percentiles_and_an_odd_sample_is_none(bins: Any, said: str) -> None:
    found = waits_facts(Event(1, 1000, "sync_waits", {"bins": bins}), 1000)
    assert said in "  ".join(words for _, value in found for words, _ in value)
