"""In an incident: the state is always in sight, and nothing that is shown contradicts it."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_topics
from support.processes.rig import REPO
from support.screens.screens import LARGE, SMALL, open_console
from textual.widgets import ContentSwitcher
from trioha_console.widgets.prompt import Prompt

from trioha.wire.remoting_command import RemotingCommand


async def never(address: str, command: RemotingCommand) -> RemotingCommand:
    """Never answer: what waits for the answer stays as it is."""
    answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
    return await answer


def deposed() -> tuple[RawCluster, str, str]:
    """A set whose master died and whose slave is master since."""
    cluster = RawCluster()
    old, new, _ = cluster.add_set("broker-a", slaves=2)
    cluster.silent[old] = "Connection refused"
    cluster.statuses[new] |= {
        "standing": "MASTER",
        "role": "SYNC_MASTER",
        "epoch": 2,
        "writable": True,
        "slave": None,
        "connections": cluster.statuses[old]["connections"][1:],
    }
    cluster.members[old]["registered"] = False
    cluster.members[new]["id"] = 0
    cluster.tick()
    return cluster, old, new


async def test_a_dead_master_is_no_master_beside_its_successor() -> None:
    cluster, old, new = deposed()
    async with open_console(cluster) as console:
        assert "MASTER" in console.line(f"{new}    writable")
        assert "MASTER" not in console.line(f"{old}    absent")
        rows = [one.replica.address for one in console.app.view.grid.rows if one.replica]
        assert rows[0] == new
        assert "1/2 in sync   0: no longer registered" in console.line("DefaultC")
        await console.press("2")
        assert "MASTER" not in console.line("absent")


@pytest.mark.parametrize("size", [(60, 16), SMALL, LARGE])
async def test_the_state_is_in_sight_whatever_else_is_in_the_line(size: tuple[int, int]) -> None:
    cluster, _, _ = deposed()
    cluster.statuses["10.0.1.2:10911"]["insecure"] = True
    async with open_console(cluster, size, armed=True) as console:
        console.source.title = "name-server-1.example:9876; name-server-2.example:9876"
        await console.tick(40)
        for number in "1234567":
            await console.press(number)
            first = console.text.splitlines()[0]
            assert first.startswith(" ✖ 1 node  ✖ ")
            assert " WRITE " in first


@pytest.mark.parametrize("size", [(60, 16), SMALL, LARGE])
async def test_the_state_is_in_sight_on_the_screens_over_the_main_one(
    size: tuple[int, int],
) -> None:
    """A node dies while an operator looks at a group, a node or a plan: the screen tells it."""
    cluster = RawCluster()
    nodes = cluster.add_set("broker-a", slaves=1)
    add_topics(cluster, nodes[0])
    async with open_console(cluster, size, armed=True) as console:
        console.source.answer = never
        await console.press("5", "enter")
        assert console.text.startswith(" ● all well  ")
        cluster.silent[nodes[1]] = "Connection refused"
        await console.tick(2)
        assert console.text.startswith(" ✖ 1 node  ")
        for keys in (("1", "enter"), ("1", "F"), ("3", "D")):
            await console.press("escape", *keys)
            assert console.app.screen is not console.app.main, keys
            assert console.text.startswith(" ✖ 1 node  "), keys


async def test_all_is_not_well_beside_an_alert() -> None:
    cluster = RawCluster()
    (master,) = cluster.add_set("broker-a", slaves=0)
    cluster.statuses[master]["disk_ratio"] = 0.99
    async with open_console(cluster) as console:
        assert "● all well" in console.text
        await console.tick(70)
        assert "well" not in console.text.splitlines()[0]
        assert console.text.startswith(f" ✖ {len(console.app.alerts.active)} alerts  ")


async def test_no_notice_covers_anything_but_the_keys() -> None:
    cluster, _, _ = deposed()
    async with open_console(cluster) as console:
        before = console.text.splitlines()[2:-1]
        console.app.notify("something has happened", title="news")
        await console.settled()
        *lines, last = console.text.splitlines()
        assert lines[2:] == before
        assert "news: something has happened" in last


async def test_tab_completes_commands_and_names() -> None:
    cluster = RawCluster()
    add_topics(cluster, cluster.add_set("broker-a")[0])
    async with open_console(cluster) as console:
        prompt = console.app.main.query_one(Prompt)
        await console.press("colon", *"fa", "tab", *"br", "tab")
        assert "failover broker-a" in console.text
        assert prompt.is_open
        await console.press("escape", "colon", "t", "tab")
        assert "theme  topics" in console.text
        await console.press("escape", *":topics or", "tab", "enter")
        assert console.app.view.grid.filter_text == "orders"


async def test_escape_goes_back_one_level() -> None:
    cluster = RawCluster()
    add_topics(cluster, cluster.add_set("broker-a")[0])
    async with open_console(cluster) as console:
        await console.press("3", "slash", *"ord", "enter")
        await console.press("enter")
        assert (console.app.view.NAME, console.app.view.grid.filter_text) == ("queues", "orders")
        await console.press("escape")
        assert (console.app.view.NAME, console.app.view.grid.filter_text) == ("topics", "ord")
        await console.press("escape")
        assert (console.app.view.NAME, console.app.view.grid.filter_text) == ("topics", "")
        await console.press("5", "enter", "slash", *"bro", "enter")
        await console.press("escape")
        assert console.app.screen is not console.app.main
        await console.press("escape")
        assert console.app.screen is console.app.main


async def test_a_recording_offers_no_failover() -> None:
    cluster, _, _ = deposed()
    async with open_console(cluster) as console:
        assert "Fail over" in console.text
        console.source.live = False
        console.app.main.refresh_bindings()
        await console.tick()
        assert "Fail over" not in console.text
        await console.press(*":failover broker-a", "enter")
        assert "this is a recording: nothing can be changed" in console.text


COMMAND = [sys.executable, "-m", "trioha", "console", "-n", "127.0.0.1:1"]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "console")]),
    "TERM": "xterm-256color",
}


def test_without_a_terminal_it_says_so_in_one_sentence() -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trioha: the console needs a terminal")
    assert done.stderr.count("\n") == 1


def test_a_terminal_that_goes_away_ends_it(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    environment = ENVIRONMENT | {"XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(
        COMMAND, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=False
    ) as process:
        os.close(slave)
        drawn = b""
        while b"Connection refused" not in drawn:
            drawn += os.read(master, 65536)
        os.close(master)
        # No signal comes: the terminal is not that of its session.
        process.wait(timeout=30)


async def test_an_alert_of_a_group_is_raised_on_every_screen() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        for key in "123567":
            await console.press(key)
            assert console.source.interest.alerts, key
        await console.press("1")
        cluster.say(master, "progress", {"billing": {"T": [[0, 9, 1, 1, 5, cluster.wall_ms]]}})
        await console.tick()
        assert "1 alert" in console.line("1 set, 2 nodes")


async def test_a_frame_that_comes_while_the_widgets_are_taken_down_ends_the_watching() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await console.app.main.query_one(ContentSwitcher).remove()
        console.source.push()
        await console.app.workers.wait_for_complete()
        assert console.source.closed


async def test_a_frame_that_comes_while_a_screen_opens_is_drawn_when_it_is_composed() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        console.app.action_node(master)
        console.app.show_frame()
        assert not console.app.screen.is_mounted
        await console.shows("the node")
        assert master in console.text.splitlines()[0]
