"""Brokers, topics, queues, groups: each screen in both sizes, and what its keys do."""

from __future__ import annotations

import time

import msgpack
import pytest
from support.fakes.raw_answers import NAMESRV, RawCluster
from support.fakes.raw_topics import GROUP, TOPIC, add_losing_groups, add_members, add_topics
from support.screens.screens import LARGE, SMALL, check_snapshot, open_console
from trioha_console.screens.group import GroupScreen
from trioha_console.widgets.grid import Grid

from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

SIZES = pytest.mark.parametrize("size", [SMALL, LARGE])


def a_cluster() -> RawCluster:
    cluster = RawCluster()
    first, _ = cluster.add_set("broker-a")
    second, slave = cluster.add_set("broker-b")
    cluster.statuses[second]["disk_ratio"] = 0.81
    cluster.silent[slave] = "did not answer within 3 s"
    add_topics(cluster, first, second)
    add_members(cluster, first, second)
    return cluster


def busy(cluster: RawCluster) -> None:
    for status in cluster.statuses.values():
        status["put_total"] += 120


@SIZES
async def test_brokers(size: tuple[int, int]) -> None:
    cluster = a_cluster()
    async with open_console(cluster, size) as console:
        await console.press("2")
        for _ in range(4):
            busy(cluster)
            await console.tick()
        check_snapshot(f"brokers-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_topics(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        await console.press("3")
        await console.tick()
        check_snapshot(f"topics-{size[0]}x{size[1]}", console.text)


async def test_a_topic_has_its_groups_and_the_largest_lag() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_topics(cluster, master)
    cluster.say(master, "topics", {name: {"perm": 6} for name in ("orders", "unread")})
    del cluster.answers[master]["progress"]
    async with open_console(cluster) as console:
        await console.press("3")
        await console.tick()
        # No broker has told the offsets: that is no topic without groups.
        assert console.line("unread").endswith("-  -")
        progress = {
            "audit": {TOPIC: [[0, 1000, 993, 1]]},
            "billing": {TOPIC: [[0, 1000, 400, 1]]},
            "TOOLS_CONSUMER": {TOPIC: [[0, 1000, 0, 1]]},
        }
        cluster.say(master, "progress", progress)
        await console.tick()
        assert console.line(TOPIC).endswith("  600  billing, audit")
        assert console.line("unread").endswith("  -")
        await console.press("a")
        assert "1000  TOOLS_CONSUMER" in console.line(TOPIC)
        await console.press("/", *"audit", "enter")
        assert TOPIC in console.text
        assert "unread" not in console.text


@SIZES
async def test_queues(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        await console.press("4")
        await console.tick()
        check_snapshot(f"queues-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_groups(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        await console.press("5")
        await console.tick()
        check_snapshot(f"groups-{size[0]}x{size[1]}", console.text)


async def test_a_group_that_gains_says_when_it_has_caught_up() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    async with open_console(cluster) as console:

        async def lags(**lags: int) -> None:
            cluster.tick(5000)
            told = {name: {TOPIC: [[0, 9000, 9000 - lag, 1]]} for name, lag in lags.items()}
            cluster.say(master, "progress", told)
            await console.frame()

        await console.press("5")
        await lags(audit=0, billing=8000, refunds=50)
        assert "-  caught up" in console.line("audit")
        assert "         -          -  " in console.line("billing")
        await lags(audit=0, billing=7500, refunds=50)
        assert "   -100.0     75.0 s  " in console.line("billing")
        assert "   steady    no gain  " in console.line("refunds")
        await console.press("/", *"billing", "enter", "enter")
        assert "lag 7500" in console.text
        assert ", caught up in 75.0 s" in console.text
        # It goes on while the group is in front.
        await lags(billing=7000)
        assert ", caught up in 70.0 s" in console.text


@SIZES
async def test_a_group_that_loses_messages_is_marked_and_the_cure_is_said(
    size: tuple[int, int],
) -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_losing_groups(cluster, master)
    async with open_console(cluster, size) as console:
        await console.press("5")
        await console.tick()
        assert "`trioha" not in console.text, "audit loses nothing"
        await console.press("down", "down")
        assert "`trioha group delete" in console.text
        check_snapshot(f"groups-losing-{size[0]}x{size[1]}", console.text)
        await console.press("up")
        assert "keeps messages for 72 h" in " ".join(console.text.split())
        await console.press("enter")
        assert "▲ 12 h" in console.line(" 4800 ")
        await console.press("escape", "7", "down")
        check_snapshot(f"alerts-losing-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_a_group_with_the_owner_of_each_queue(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        await console.press("5", "enter")
        await console.tick()
        assert isinstance(console.app.screen, GroupScreen)
        check_snapshot(f"group-{size[0]}x{size[1]}", console.text)
        await console.press("tab")
        assert "10.7.0.2:5002" in console.text
        await console.press("escape")
        assert console.app.screen is console.app.main


async def test_a_name_server_that_is_silent_is_named_with_its_reason() -> None:
    cluster = a_cluster()
    async with open_console(cluster, LARGE) as console:
        await console.press("2")
        cluster.silent[NAMESRV] = f"{NAMESRV}: Connection refused"
        await console.tick()
        assert "Connection refused" in console.line("name servers  ✖")


async def test_the_lines_about_name_servers_grow_and_shrink_with_their_words() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster, SMALL) as console:
        await console.press("2")
        await console.tick()
        above = console.app.query_one("#namesrvs")
        assert above.size.height == 1
        cluster.silent[NAMESRV] = "did not answer " + "within its time " * 4
        await console.tick()
        assert above.size.height == 2
        del cluster.silent[NAMESRV]
        await console.tick()
        assert above.size.height == 1


async def test_what_is_asked_of_the_brokers_follows_the_screen() -> None:
    async with open_console(a_cluster()) as console:
        wanted = []
        for keys in (["1"], ["3"], ["5"], ["enter"], ["escape", "1"]):
            await console.press(*keys)
            interest = console.source.interest
            wanted.append((interest.topics, interest.stats_of_all, set(interest.members_of)))
        nothing: set[str] = set()
        assert wanted == [
            (False, False, nothing),
            (True, True, nothing),
            (True, False, nothing),
            (True, False, {GROUP}),
            (False, False, nothing),
        ]


async def test_names_of_the_system_are_hidden_until_they_are_asked_for() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("3")
        assert "%RETRY%" not in console.text
        await console.press("a")
        assert "%RETRY%" in console.text
        await console.press("5")
        assert "TOOLS_CONSUMER" not in console.text
        await console.press("a")
        assert "TOOLS_CONSUMER" in console.text


async def test_enter_on_a_topic_shows_its_queues() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("3", "enter")
        assert console.app.view.NAME == "queues"
        assert console.app.view.grid.filter_text == TOPIC
        assert console.source.interest.stats_of == {TOPIC}


async def test_a_topic_that_grows_has_a_rate() -> None:
    cluster = RawCluster()
    first, _ = cluster.add_set("broker-c")
    async with open_console(cluster, LARGE) as console:
        await console.press("3")
        for step in range(1, 4):
            cluster.tick(5000)
            add_topics(cluster, first)
            cluster.say(first, f"topic_stats/{TOPIC}", [[0, 0, 1000 * step, cluster.wall_ms]])
            await console.frame()
        line = console.line(TOPIC)
        assert " 200 " in line, line


@pytest.mark.parametrize(
    ("key", "question", "things"),
    [
        ("3", "topics", "topics"),
        ("4", "topic_stats/BenchmarkTest", "queues"),
        ("5", "groups", "groups"),
    ],
)
async def test_an_empty_table_says_whether_anything_is_still_to_come(
    key: str, question: str, things: str
) -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await console.press(key)
        await console.tick()
        assert f"No {things} yet; the first answers are on their way." in console.text
        cluster.say(master, question, {})
        await console.tick()
        assert f"No {things} but RocketMQ's own: a shows them." in console.text
        await console.press("a")
        await console.tick()
        assert f"No {things}.\n" in console.text


async def test_a_group_shows_what_was_seen_of_its_rebalances() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_topics(cluster, master)
    add_members(cluster, master)
    async with open_console(cluster, LARGE) as console:
        await console.press("5")
        console.app.action_group("billing")
        await console.tick()
        await console.press("tab", "tab")
        assert "Nothing has changed since this group was first opened here." in console.text
        members = dict(cluster.answers[master]["members/billing"]["value"])
        left = members["clients"][1]["client_id"]
        cluster.say(master, "members/billing", members | {"clients": members["clients"][:1]})
        await console.tick()
        line = console.line("left")
        assert left in line
        assert "broker-a 1,3" in line


async def test_a_group_shows_its_lag_over_hours_from_the_journals() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    add_topics(cluster, master)

    async def answer(address: str, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {"broker-a": BrokerData("c", "broker-a", {0: master})}
            return command.response(body=ClusterInfo(brokers, {"c": ("broker-a",)}).encode())
        assert command.code == RequestCode.TRIOHA_JOURNAL_STREAM
        assert address == master
        told = {"topic": "orders", "group": "billing", "lag": 4711, "consumer_offset": 1}
        at_ms = int(time.time() * 1000) - 3_600_000
        events = [] if command.ext_fields.get("last") else [[0, at_ms, "consumer_lag", told]]
        return command.response(body=msgpack.packb({"events": events, "next": 1, "end": 1}))

    async with open_console(cluster, LARGE) as console:
        await console.press("5")
        console.app.action_group("billing")
        await console.tick()
        await console.press("tab", "tab", "tab")
        await console.tick()
        assert "nobody answers in this test" in console.text
        console.source.answer = answer
        await console.press("r")
        await console.tick()
        assert "messages not consumed, " in console.text
        assert "4,711┤" in console.text
        assert "nobody answers in this test" not in console.text


async def test_a_key_in_five_thousand_groups_works_out_the_rows_that_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key is answered at once: what it costs does not grow with the table."""
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    groups = {f"group-{number:04}": {"orders": [[0, 9, 4, 1]]} for number in range(5000)}
    cluster.say(master, "topics", {"orders": {"perm": 6}})
    cluster.say(master, "groups", {name: {} for name in groups})
    cluster.say(master, "progress", groups)
    made: list[object] = []
    make = Grid._made_of

    def counted(grid: Grid[object], row: object) -> object:
        made.append(row)
        return make(grid, row)

    monkeypatch.setattr(Grid, "_made_of", counted)
    async with open_console(cluster, LARGE) as console:
        await console.press("5")
        await console.tick()
        assert len(console.app.view.grid.rows) == 5000
        visible = LARGE[1]
        assert len(made) <= 4 * visible
        for key, most in (("down", 3), ("pagedown", visible), ("s", visible), ("end", visible)):
            made.clear()
            await console.press(key)
            assert len(made) <= most, key
