"""Keys in one burst, as a script sends them, without a wait for the screen between them."""

from __future__ import annotations

from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_topics
from support.screens.screens import LARGE, Console, open_console
from textual import events
from textual.widgets import Input
from trioha_console.screens.node import NodeScreen


def a_cluster() -> RawCluster:
    cluster = RawCluster()
    masters = [cluster.add_set(f"broker-{letter}")[0] for letter in "abc"]
    add_topics(cluster, *masters)
    return cluster


async def burst(console: Console, *typed: str) -> None:
    """A word is its letters."""
    named = ("enter", "escape")
    await console.press(*(key for text in typed for key in ([text] if text in named else text)))


async def test_a_command_in_one_burst_is_a_command() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        await burst(console, ":sort gap down", "enter")
        assert console.app.view.grid.order.title == "GAP"
        assert console.app.view.grid.order.descending


async def test_commands_follow_each_other_without_a_pause() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        await burst(console, ":brokers", "enter", "/broker-b", "enter", ":sort disk", "enter")
        assert console.app.view.NAME == "brokers"
        assert console.app.view.grid.filter_text == "broker-b"
        assert console.app.view.grid.order.title.startswith("DISK")


async def test_a_key_that_opens_a_screen_is_done_before_the_next() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        await burst(console, "2", "enter", ":filter zebra", "enter")
        screen = console.app.screen
        assert isinstance(screen, NodeScreen)
        # The line has gone; where a tab has no table the keys are the tab's again all the same.
        assert not isinstance(console.app.focused, Input)
        await burst(console, "escape", "3:sort brokers", "enter")
        assert console.app.view.NAME == "topics"
        assert console.app.view.grid.order.title == "BROKERS"


async def test_a_pasted_command_waits_for_enter() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.app.post_message(events.Paste(":sort gap\nq"))
        await console.settled()
        assert ":sort gap" in console.text
        assert console.app.view.grid.order.title == ""
        await console.press("enter")
        assert console.app.view.grid.order.title == "GAP"


async def test_a_pasted_filter_filters() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.app.post_message(events.Paste("/broker-c"))
        await console.settled()
        assert console.app.view.grid.filter_text == "broker-c"


async def test_other_words_that_are_pasted_are_no_keys() -> None:
    async with open_console(a_cluster(), LARGE) as console:
        console.app.post_message(events.Paste("q3"))
        await console.settled()
        assert console.app.view.NAME == "replication"
        assert console.app.is_running
