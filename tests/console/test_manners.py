"""Manners of every screen: filter, commands, sorting, export, help, themes, small terminals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_topics
from support.screens.screens import LARGE, SMALL, Console, check_snapshot, open_console
from textual.color import Color
from textual.filter import ANSIToTruecolor
from textual.widgets import Input
from trioha_console.commands import COMMANDS
from trioha_console.later import VIEWS
from trioha_console.layout import Layout, load_layout
from trioha_console.screens.help import HelpScreen
from trioha_console.screens.node import NodeScreen
from trioha_console.source import LiveSource
from trioha_console.themes import THEMES
from trioha_console.widgets.prompt import Prompt

from trioha.contexts import Context, Contexts
from trioha.watch.rules import RULES


def a_cluster(sets: int = 3) -> RawCluster:
    cluster = RawCluster()
    masters = [cluster.add_set(f"broker-{letter}")[0] for letter in "abcdef"[:sets]]
    add_topics(cluster, *masters)
    return cluster


def names(console: Console) -> list[str]:
    return [row.replica.name for row in console.app.view.grid.rows]


async def command(console: Console, line: str) -> None:
    keys = {" ": "space", "-": "minus", ".": "full_stop", "/": "slash", "!": "exclamation_mark"}
    await console.press("colon", *(keys.get(one, one) for one in line), "enter")


async def test_the_filter_narrows_with_each_key_and_escape_takes_it_back() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("2", "slash", *"broker")
        assert set(names(console)) == {"broker-a", "broker-b", "broker-c"}
        await console.press("minus", "b")
        assert set(names(console)) == {"broker-b"}
        assert "/broker-b  2 of 6" in console.text
        await console.press("enter", "escape")
        assert len(names(console)) == 6


async def test_a_word_with_an_exclamation_mark_must_not_be_there() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("2")
        await command(console, "filter !broker-b writable")
        assert names(console) == ["broker-a", "broker-c"]


async def test_a_filter_stays_with_its_screen() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("2")
        await command(console, "filter broker-b")
        await console.press("3", "2")
        assert set(names(console)) == {"broker-b"}
        assert "/broker-b" in console.text


async def test_a_table_is_sorted_by_any_column_and_what_is_not_known_comes_last() -> None:
    cluster = a_cluster()
    masters = [address for address in cluster.statuses if address.endswith(".1:10911")]
    for ratio, address in zip((0.5, 0.9, None), masters, strict=True):
        cluster.statuses[address]["disk_ratio"] = ratio
    cluster.tick()
    async with open_console(cluster) as console:
        await console.press("2")
        await command(console, "filter writable")
        await command(console, "sort disk down")
        assert names(console) == ["broker-b", "broker-a", "broker-c"]
        await console.press("S")
        assert names(console) == ["broker-a", "broker-b", "broker-c"]
        assert "DISK▲" in console.text


async def test_a_click_on_a_head_sorts_and_on_a_row_selects() -> None:
    async with open_console(a_cluster()) as console:
        await console.press("2")
        grid = console.app.view.grid
        await console.pilot.click(grid, offset=(1, 0))
        assert grid.order.title == "BROKER"
        await console.pilot.click(grid, offset=(1, 0))
        assert grid.order.descending
        await console.pilot.click(grid, offset=(5, 3))
        assert grid.cursor == 2
        await console.pilot.click(grid, offset=(5, 3), times=2)
        await console.settled()
        assert isinstance(console.app.screen, NodeScreen)


async def test_replicas_stay_with_their_set_when_sorted() -> None:
    cluster = a_cluster(2)
    first = next(iter(cluster.statuses))
    cluster.link(first)["gap_bytes"] = 5000
    cluster.tick()
    async with open_console(cluster) as console:
        await command(console, "sort gap down")
        rows = console.app.view.grid.rows
        assert [row.set.name for row in rows] == ["broker-a"] * 3 + ["broker-b"] * 3
        assert rows[0].replica is None
        await console.press("S")
        assert console.app.view.grid.rows[0].set.name == "broker-b"


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "messages"])
async def test_every_table_is_exported(view: str, tmp_path: Path) -> None:
    async with open_console(a_cluster()) as console:
        await command(console, view)
        await console.tick()
        app = console.app
        for form in ("csv", "json"):
            app.command_export(f"{form} {tmp_path / view}.{form}")
        titles = [column.title for column in app.view.grid.shape.columns]
        with (tmp_path / f"{view}.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == titles
        documents = json.loads((tmp_path / f"{view}.json").read_text())
        assert len(documents) == len(rows) - 1 == len(app.view.grid.rows)


async def test_what_is_not_known_is_exported_as_nothing(tmp_path: Path) -> None:
    cluster = a_cluster(1)
    for status in cluster.statuses.values():
        status["disk_ratio"] = None
    cluster.tick()
    async with open_console(cluster) as console:
        await console.press("2")
        console.app.command_export(f"json {tmp_path / 'b.json'}")
        assert json.loads((tmp_path / "b.json").read_text())[0]["DISK"] is None


async def test_the_screen_becomes_a_picture(tmp_path: Path) -> None:
    async with open_console(a_cluster()) as console:
        console.app.command_screenshot(str(tmp_path / "screen.svg"))
        assert "broker-a" in (tmp_path / "screen.svg").read_text()


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_help_is_made_of_the_bindings_and_the_commands(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        check_snapshot(f"help-{size[0]}x{size[1]}", console.text)
        await console.press("escape")
        assert console.app.screen is console.app.main


async def test_the_palette_has_what_the_prompt_has() -> None:
    async with open_console(a_cluster()) as console:
        offered = {one.title for one in console.app.get_system_commands(console.app.screen)}
        for one in COMMANDS:
            assert one.usage in offered or f"Go to {one.name.title()}" in offered
        await console.press("ctrl+p", *"topics", "enter")
        await console.settled()
        assert console.app.view.NAME == "topics"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("frobnicate", "there is no command :frobnicate"),
        ("t", ":t could be :topics, :theme"),
        ("goto broker-z", "no node 'broker-z'; there are broker-a"),
        ("sort height", "no column height; there are"),
        ("theme pink", "no theme pink"),
        ("export xml", "export as csv or json"),
        ("export csv /nowhere/at/all", "/nowhere/at/all: No such file or directory"),
        ("failover broker-z", "no broker broker-z"),
        ("failover broker-a x", "an id is a number, not x"),
        ("jump +1s", "only a recording can be moved about in"),
        ("context prod", "no clusters are named"),
        ("group", "name a group"),
    ],
)
async def test_what_cannot_be_done_is_said_in_a_sentence(line: str, said: str) -> None:
    async with open_console(a_cluster(), LARGE) as console:
        await command(console, line)
        assert said in console.text
        # It can be mended; what is typed next is no key.
        await console.press("q", "x")
        assert console.app.main.query_one(Prompt).query_one(Input).value == f"{line}qx"
        await console.press("escape")
        assert not console.app.main.query_one(Prompt).is_open


async def test_commands_go_where_their_names_say() -> None:
    async with open_console(a_cluster()) as console:
        await command(console, "topics orders")
        assert console.app.view.NAME == "topics"
        assert console.app.view.grid.filter_text == "orders"
        await command(console, "ha")
        assert console.app.view.NAME == "replication"
        await command(console, "goto broker-b 1")
        assert isinstance(console.app.screen, NodeScreen)
        assert console.app.screen.address == "10.0.2.2:10911"
        await command(console, "brokers")
        assert console.app.screen is console.app.main
        assert console.app.view.NAME == "brokers"


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES] + ["ansi-dark", "ansi-light"])
async def test_every_theme_draws_every_screen(theme: str) -> None:
    async with open_console(a_cluster()) as console:
        await command(console, f"theme {theme}")
        for number in range(1, len(VIEWS) + 1):
            await console.press(str(number))
            await console.tick()
        assert console.app.theme == theme


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_lines_of_tables_have_no_colour_of_the_terminal_s(theme: str) -> None:
    """So they need not go through Textual's filter for such colours."""
    async with open_console(a_cluster()) as console:
        await command(console, f"theme {theme}")
        for number in range(1, len(VIEWS) + 1):
            await console.press(str(number))
            await console.tick()
            grid = console.app.view.grid
            (its_filter,) = (
                one for one in console.app.get_line_filters() if isinstance(one, ANSIToTruecolor)
            )
            assert its_filter not in grid.get_line_filters()
            for y in range(grid.size.height):
                line = list(grid.render_line(y))
                assert its_filter.apply(line, Color(0, 0, 0)) == line


async def test_without_colour_everything_is_still_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    cluster = a_cluster(1)
    cluster.silent["10.0.1.2:10911"] = "gone"
    async with open_console(cluster) as console:
        await console.tick()
        assert console.app.no_color
        assert "✖ 1 10.0.1.2:10911" in console.text
        assert "unreachable" in console.text


@pytest.mark.parametrize("size", [(40, 10), (59, 24), (80, 12), (20, 4)])
async def test_a_terminal_that_is_too_small_is_told_what_is_needed(size: tuple[int, int]) -> None:
    async with open_console(a_cluster(), size) as console:
        words = " ".join(console.text.split())
        assert "too small" in words
        await console.pilot.resize_terminal(80, 24)
        await console.settled()
        assert "too small" not in console.text
        assert "broker-a" in console.text


async def test_no_alert_covers_the_words_of_a_terminal_that_is_too_small() -> None:
    cluster = a_cluster()
    cluster.silent["10.0.1.2:10911"] = "gone"
    async with open_console(cluster, (40, 10)) as console:
        await console.tick(12)
        assert console.app.alerts.active
        assert " ".join(console.text.split()) == "This terminal is too small: 60x16 is the least."


async def test_the_layout_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "state" / "console.json"
    async with open_console(a_cluster(), layout_path=path) as console:
        await command(console, "theme trioha-light")
        await console.press("2")
        await command(console, "sort disk down")
        await console.press("q")
    async with open_console(a_cluster(), layout_path=path) as console:
        assert console.app.theme == "trioha-light"
        assert console.app.view.NAME == "brokers"
        assert console.app.view.grid.order.title == "DISK"


@pytest.mark.parametrize("text", ["", "[]", '{"orders": {"brokers": 7}}', "\x00", '{"theme": 3}'])
def test_a_layout_that_cannot_be_read_is_the_usual_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "console.json"
    path.write_text(text)
    layout = load_layout(path)
    assert layout.view == Layout().view
    assert layout.orders == {}


async def test_another_cluster_by_its_name(tmp_path: Path) -> None:
    context = Context("prod", "127.0.0.1:1", None, RULES, "here:1")
    contexts = Contexts(tmp_path / "config.toml", None, {"prod": context}, RULES)
    async with open_console(a_cluster(), LARGE, contexts=contexts) as console:
        await command(console, "context prod")
        assert console.source.closed
        app = console.app
        assert isinstance(app.source, LiveSource)
        await console.shows("No name server answers")
        text = console.text
        assert "prod" in text.splitlines()[0]
        assert "No name server answers: Connection refused. Asking on; q leaves." in text
        assert "broker-a" not in text


async def test_the_header_tells_of_an_insecure_node_as_long_as_there_is_one() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        assert "INSECURE" not in console.text
        cluster.statuses[slave]["insecure"] = True
        await console.tick()
        assert "INSECURE" in console.text.splitlines()[0]
        cluster.statuses[slave]["insecure"] = False
        await console.tick()
        assert "INSECURE" not in console.text
