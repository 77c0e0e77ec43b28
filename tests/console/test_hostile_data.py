"""Whatever peers send: no control character and no markup of theirs is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from rich.style import Style
from support.fakes.hostile import HOSTILE, UNSAFE, hostile
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import GROUP, add_members, add_topics
from support.screens.screens import LARGE, SMALL, Console, open_console
from textual.color import Color
from trioha_console.bodies import Look, body_text
from trioha_console.later import VIEWS
from trioha_console.roles import ControlFilter
from trioha_console.screens.group import GroupScreen
from trioha_console.screens.node import NodeScreen

from trioha.errors import CommandError
from trioha.wire.remoting_command import RemotingCommand

LITERAL = "[red]x"


def keys_too(value: Any) -> Any:
    """Topics, groups and client ids are keys of the answers."""
    if isinstance(value, dict):
        return {
            key + HOSTILE if key in ("orders", GROUP) else key: keys_too(inner)
            for key, inner in value.items()
        }
    return [keys_too(inner) for inner in value] if isinstance(value, list) else value


def hostile_cluster() -> RawCluster:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    add_topics(cluster, master)
    add_members(cluster, master)
    cluster.statuses = {address: hostile(told) for address, told in cluster.statuses.items()}
    cluster.link(master).update(in_sync=False, last_error=HOSTILE, doubt=HOSTILE)
    cluster.statuses[slave]["slave"]["last_error"] = HOSTILE
    cluster.statuses[master]["refusals"] = [{"peer": HOSTILE, "reason": HOSTILE, "age_s": 1.0}]
    cluster.statuses[master]["absent"] = [
        {"host": HOSTILE, "last_error": HOSTILE, "last_error_age_s": 3.0}
    ]
    for member in cluster.members.values():
        member.update(name=member["name"] + HOSTILE, cluster=HOSTILE)
    for status in cluster.statuses.values():
        status["name"] = "broker-a" + HOSTILE
    for answers in cluster.answers.values():
        for key in list(answers):
            answers[key + HOSTILE * ("/" in key)] = keys_too(hostile(answers.pop(key)))
    cluster.silent[slave] = HOSTILE
    cluster.tick()
    return cluster


async def refuse(address: str, command: RemotingCommand) -> RemotingCommand:
    raise CommandError(1, f"{address}: {HOSTILE}")


async def command(console: Console, line: str) -> None:
    await console.press("colon", *line, "enter")


def drawn(console: Console) -> str:
    """Return the screen, of which nothing may be unsafe."""
    text = console.text
    found = UNSAFE.search(text)
    assert found is None, f"{found} in {text!r}"
    assert len(text.splitlines()) == console.app.size.height
    return text


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("view", [*VIEWS])
async def test_no_view_draws_it(view: str, size: tuple[int, int]) -> None:
    async with open_console(hostile_cluster(), size) as console:
        console.source.answer = refuse
        await command(console, view)
        await console.tick(2)
        text = drawn(console)
        if size == LARGE and view not in ("messages", "alerts"):
            assert LITERAL in text or "u001b" in text
        await console.press("enter")
        await console.tick()
        drawn(console)


async def test_no_tab_of_a_node_or_group_draws_it() -> None:
    async with open_console(hostile_cluster(), LARGE) as console:
        console.source.answer = refuse
        for view, screen in (("brokers", NodeScreen), ("groups", GroupScreen)):
            await command(console, view)
            await console.tick()
            await console.press("enter")
            assert isinstance(console.app.screen, screen)
            for _ in screen.TABS:
                await console.press("tab")
                await console.tick()
                assert LITERAL in drawn(console)
            await console.press("escape")


async def test_neither_a_failover_nor_a_toast_draws_it() -> None:
    async with open_console(hostile_cluster(), LARGE) as console:
        console.source.answer = refuse
        await command(console, "replication")
        await console.tick()
        await console.press("F")
        await console.tick()
        drawn(console)
        console.app.notify(HOSTILE, title=HOSTILE)
        await console.settled()
        text = drawn(console)
        assert LITERAL in text
        assert "u001b]0;owned" in text


@pytest.mark.parametrize("look", list(Look))
@pytest.mark.parametrize("body", [HOSTILE.encode(), b'{"a":"\\u001b[2J\\u202e"}', b"\xff\x9b\x1b"])
def test_a_body_is_drawn_safely(body: bytes, look: Look) -> None:
    assert not UNSAFE.search(body_text(body, look))


def test_a_widget_that_forgot_draws_nothing_of_it() -> None:
    segments = [Segment("fine "), Segment(f"a{HOSTILE}b", Style(bold=True))]
    fine, odd = ControlFilter().apply(segments, Color(0, 0, 0))
    assert fine == segments[0]
    assert odd == Segment("a]0;owned[2J31mgnp[red]x[/red][/]{$error}b", Style(bold=True))


async def test_an_exported_screen_has_none_of_it(tmp_path: Path) -> None:
    async with open_console(hostile_cluster(), LARGE) as console:
        console.app.command_screenshot(str(tmp_path / "screen.svg"))
        assert not UNSAFE.search((tmp_path / "screen.svg").read_text())
