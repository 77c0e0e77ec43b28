"""docs/operations.md, the column of the console: each cell is done by keys against real brokers.

Two clusters of processes live through the page from top to bottom. In one the console's keys do
each job, in the other the command of the same row. After each row both clusters have the same
state. A cell that names a screen shows what the command prints.
"""

from __future__ import annotations

import asyncio
import json
import pprint
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from support.clusters.operated import reading, run_here
from support.clusters.operated_state import State, read_state
from support.screens.screens import Keyboard, open_live_console
from textual.widgets import Input
from trioha_console.app import ConsoleApp
from trioha_console.screens.detail import DetailScreen
from trioha_console.screens.operation import OperationScreen, OperationStage
from trioha_console.source import LiveSource
from trioha_console.widgets.confirmation import TypedConfirmation
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.prompt import Prompt

from trioha.client.cluster import success
from trioha.client.delivery import ConsumeLater
from trioha.client.message import Message, ReceivedMessage
from trioha.testing.cluster import TriohaCluster
from trioha.testing.thread_cluster import ThreadCluster, start_cluster
from trioha.wire.address import parse_namesrvs
from trioha.wire.codes import RequestCode
from trioha.wire.names import dlq_topic
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| `?(trioha [^`|]+?)`? \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
VIEWS = {"topic": "3", "group": "5", "broker": "2", "dlq": "6"}
"""The number of the screen on which the keys of a noun work."""
CHANGES = (
    *("create", "alter", "delete", "reset-offsets", "skip", "clone-offsets"),
    *("send", "resend", "purge", "set", "drain", "clean", "put"),
)
"""Commands that leave another state than they find."""
ANSWERS = {
    "topic list": ("name",),
    "topic describe": ("name", "broker"),
    "group list": ("name",),
    "group describe": ("name", "topic", "broker"),
    "group history": ("name",),
    "message get": ("msg_id", "body"),
    "message trace": ("msg_id", "group", "state"),
    "broker list": ("name", "address"),
    "broker describe": ("name", "address"),
    "broker config": ("longPollingEnable",),
    "cluster describe": ("name", "address"),
    "client list": ("client_id",),
    "client describe": ("client_id", "topic", "broker", "stacks"),
}
"""The fields of a command's document that its screen shows too."""
STATE_S = 20.0


@attrs.frozen
class Row:
    """One job of the page."""

    job: str
    command: str
    cell: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)[1:]

    @property
    def is_change(self) -> bool:
        return bool(set(self.words[1:3]) & set(CHANGES))

    @property
    def line(self) -> str:
        """The line that the cell types into the prompt; "" for none."""
        found = re.search(r"`:([^`]+)`", self.cell)
        return found[1] if found else ""

    @property
    def keys(self) -> list[str]:
        """The single keys that the cell names."""
        return re.findall(r"`(\S)`", self.cell)

    def named(self, names: dict[str, str]) -> Row:
        """Return it with the names of one cluster."""
        command, cell = self.command, self.cell
        for name, value in names.items():
            command, cell = command.replace(name, value), cell.replace(name, value)
        return Row(self.job, command, cell)


ROWS = [
    # Jobs of users need a cluster that checks users, and no cell of the console.
    row
    for row in (Row(*found) for found in ROW.findall(PAGE))
    if row.words[0] != "user"
]


def values(document: Any, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of these fields, at any depth."""
    if isinstance(document, list):
        for one in document:
            yield from values(one, names)
    elif isinstance(document, dict):
        for name, value in document.items():
            if isinstance(value, list | dict):
                yield from values(value, names)
            elif name in names and value is not None:
                yield str(value).splitlines()[0]


@attrs.define(eq=False)
class Place:
    """One of the two clusters, and the names that its messages have."""

    cluster: ThreadCluster
    names: dict[str, str] = attrs.Factory(dict)

    async def run(self, row: Row, *more: str) -> str:
        """Run the command of a row; return what it printed."""
        words = [*row.named(self.names).words, *more]
        done = await asyncio.to_thread(run_here, *words, "-n", self.cluster.namesrv)
        assert (done.code, done.err) == (0, ""), (words, done)
        return done.out

    async def document(self, row: Row) -> Any:
        return json.loads(await self.run(row, "-o", "json"))

    async def call(self, function: Any) -> Any:
        return await asyncio.to_thread(self.cluster.call, function)


@attrs.define(eq=False)
class Operator:
    """Keys in one cluster, commands in the other."""

    console: Keyboard
    keyed: Place
    commanded: Place
    readers: ExitStack = attrs.Factory(ExitStack)
    """Consumers that are connected."""

    @property
    def app(self) -> ConsoleApp:
        return self.console.app

    @property
    def places(self) -> tuple[Place, Place]:
        return self.keyed, self.commanded

    async def do(self, row: Row) -> None:
        await self.before(row)
        if row.is_change:
            await self.commanded.run(row)
        here = row.named(self.keyed.names)
        if row.line.startswith("dlq"):
            await self.look_at_dead_letters(here)
        elif row.line:
            await self.carry_out(here)
        elif row.cell != "-":
            await self.look(here)
        elif row.is_change:
            await self.keyed.run(row)
        await self.after(row)
        await self.compare(row)

    # The work of applications between two jobs.

    async def before(self, row: Row) -> None:
        for place in self.places:
            if "--undo" in row.command:
                await place.call(wipe_write_perm)
            if row.command.startswith("trioha client list"):
                reader = reading(place.cluster, "orders", "billing")
                await asyncio.to_thread(self.readers.enter_context, reader)

    async def after(self, row: Row) -> None:
        if row.command.startswith("trioha client describe"):
            await asyncio.to_thread(self.readers.close)
        for place in self.places:
            if row.command.startswith("trioha group create"):
                await place.call(send_and_consume)
            if row.command.startswith("trioha message send"):
                sent = Row("", "trioha message get -t orders --key order-4712", "-")
                place.names["MSG_ID"] = next(values(await place.document(sent), ("msg_id",)))
            if row.command.startswith("trioha message trace"):
                await place.call(fail_all)

    async def compare(self, row: Row) -> None:
        """Wait until both clusters have the same state: name servers do not announce changes."""
        deadline_s = time.monotonic() + STATE_S
        while True:
            keyed, commanded = [await one.call(read_state) for one in self.places]
            if keyed == commanded:
                return
            differ = {
                key: (keyed.get(key), commanded.get(key))
                for key in keyed | commanded
                if keyed.get(key) != commanded.get(key)
            }
            assert time.monotonic() < deadline_s, f"{row}\n{pprint.pformat(differ)}"

    # Cells that change something.

    async def carry_out(self, row: Row) -> None:
        """Type the line and read its plan; begin it by its keys, which plan the same; do it."""
        press = self.console.press
        await press(VIEWS[row.words[0]], *f":{row.line}", "enter")
        plan = await self.plan()
        command, *words = row.line.split()
        # The plan of the last key is carried out. `r`, for one dead letter, is only planned.
        for key in sorted(row.keys, key=lambda one: one != "r"):
            await self.back()
            if key == "r":
                await self.console.until("dead letters", lambda: self.grid.rows)
            elif not (key == "n" or command == "resend"):
                await self.select(words[0])
            await press(key)
            if (prompt := self.app.main.query_one(Prompt)).is_open:
                typed = prompt.query_one(Input).value
                assert row.line.startswith(typed), (row, typed)
                await press(*row.line.removeprefix(typed), "enter")
            said = await self.plan()
            if key == "r":
                assert "1 dead letter:" in said, said
            else:
                assert said == plan, (key, said, plan)
        if "--dry-run" in row.words:
            would = (await self.keyed.document(row))["would"]
            assert would, row
            assert all(one in plan for one in would), (would, plan)
        else:
            await self.confirm()
        await self.back()

    async def plan(self) -> str:
        """Wait for the plan; return the screen below the cluster's state."""
        await self.console.until("a plan", lambda: isinstance(self.app.screen, OperationScreen))
        screen = self.operation
        await self.console.until("the plan", lambda: screen.stage is OperationStage.PLAN)
        await self.console.shows("data loss  ")
        return self.console.text.partition("\n")[2]

    async def confirm(self) -> None:
        screen = self.operation
        await self.console.press("c")
        if screen.query_one(TypedConfirmation).is_open:
            await self.console.press(*screen.operation.name, "enter")
        await self.console.until("the end", lambda: screen.stage is OperationStage.END)
        # The first line is the cluster's state.
        await self.console.until("success", lambda: re.search(r"\n *● ", self.console.text))

    @property
    def operation(self) -> OperationScreen:
        screen = self.app.screen
        assert isinstance(screen, OperationScreen)
        return screen

    # Cells that only look.

    async def look(self, row: Row) -> None:
        """Go where the cell says; what the command prints is there too."""
        screen, *steps = row.cell.split(", ")
        is_tail = row.words[1] == "tail"
        document: Any = {} if is_tail else await self.keyed.document(row)
        await self.console.press(screen[0])
        if query := re.search(r"`(.+)`", screen):
            await self.ask(query[1], document)
        for step in steps:
            await self.step(row, step)
        if is_tail:
            await self.follow()
        if row.words[:2] == ["topic", "describe"]:
            await self.filter("orders")
        if row.words[:2] == ["broker", "config"]:
            await self.filter("longPollingEnable")
        if row.words[:2] == ["group", "history"]:
            await self.console.shows("messages not consumed, ")
        if row.words[:2] == ["cluster", "health"]:
            assert document["state"] == "OK", document
            await self.console.shows("No active alerts.")
        for value in values(document, ANSWERS.get(" ".join(row.words[:2]), ())):
            await self.console.shows(value)
        if row.words[1] == "describe" and "queues" in document and steps[1:] == []:
            count = len(document["queues"])
            await self.console.until(f"{count} queues", lambda: len(self.grid.rows) == count)
        await self.back()

    async def step(self, row: Row, step: str) -> None:
        """Press what a cell says after the name of its screen."""
        press, before = self.console.press, self.app.screen
        if step == "Enter":
            if before is self.app.main:
                names = ("orders", "billing", "broker-a")
                await self.select(next((one for one in row.words if one in names), "billing"))
            else:
                await self.console.until("a row", lambda: self.grid.rows)
            await press("enter")
            await self.console.until("a screen", lambda: self.app.screen is not before)
        elif step == "`/`":
            count = len(self.grid.rows)
            ids = set(values(await self.keyed.document(row), ("msg_id",)))
            await self.filter("paid")
            assert len(self.grid.rows) < count
            assert ids <= {one.message_id for one in self.grid.rows}
        elif step == "`t`":
            await press("t")
            await self.console.shows("trace of  ")
        elif isinstance(before, DetailScreen):
            if step not in dict(before.tabs).values():
                await press("I")
            while dict(before.tabs)[before.tab] != step:
                await press("tab")

    async def ask(self, query: str, document: Any) -> None:
        """Ask for messages; wait until all that the command found are found."""
        ids = set(values(document, ("msg_id",)))
        await self.console.press("i", "ctrl+u", *query, "enter")
        await self.console.until(
            f"messages of {query}",
            lambda: (
                "Asking…" not in self.console.text
                and ids <= {one.message_id for one in self.grid.rows}
            ),
        )

    async def follow(self) -> None:
        """Follow a topic; a message that comes is shown."""
        await self.ask("orders", [])
        # At the end the cursor goes on with what comes.
        await self.console.press("end", "f")
        for place in self.places:
            await place.call(send_tick)
        await self.console.shows("tick")
        await self.console.press("f")
        await self.console.shows("No longer following.")

    async def look_at_dead_letters(self, row: Row) -> None:
        """Look at the dead letters that the command prints, by the key and by the line."""
        ids = set(values(await self.keyed.document(row), ("msg_id",)))
        assert ids, row
        for keys in (row.keys, [*f":{row.line}", "enter"]):
            await self.console.press("5")
            await self.select("billing")
            await self.console.press(*keys)
            await self.console.until(
                "dead letters", lambda: ids == {one.message_id for one in self.grid.rows}
            )

    # Moving about.

    @property
    def grid(self) -> Grid[Any]:
        grid = self.app.front_grid
        assert grid is not None
        return grid

    async def select(self, name: str) -> None:
        """Put the cursor on the row of this name."""
        grid = self.grid

        def index() -> int | None:
            names = [grid.shape.search(row).split() for row in grid.rows]
            return next((at for at, words in enumerate(names) if name in words), None)

        await self.console.until(f"a row of {name}", lambda: index() is not None)
        await self.console.press("home", *["down"] * (index() or 0))

    async def filter(self, text: str) -> None:
        await self.console.press("slash", *text, "enter")

    async def back(self) -> None:
        """Escape until the main window is in front, its rows unfiltered."""
        while self.app.screen is not self.app.main or self.grid.filter_text:
            await self.console.press("escape")


async def wipe_write_perm(cluster: TriohaCluster) -> None:
    """Let no producer use broker-b, as a drain does."""
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    success(await cluster.observer.ask_namesrv(RemotingCommand(code, {"brokerName": "broker-b"})))


async def send_and_consume(cluster: TriohaCluster) -> None:
    """Send a message to each queue, half of them paid, and consume them."""
    async with cluster.admin() as admin:
        await admin.wait_route("orders", 16)
    async with cluster.producer() as producer:
        for number, queue in enumerate(await producer.queues("orders")):
            tag = "open" if number % 2 else "paid"
            message = Message("orders", b"%d" % number, tag, ("order-4711",))
            await producer.send(message, queue=queue)
    await cluster.consume("orders", "billing")


async def send_tick(cluster: TriohaCluster) -> None:
    async with cluster.producer() as producer:
        await producer.send(Message("orders", b"tick"))


def dead_letters(state: State) -> int:
    return int(state["messages"].get(dlq_topic("billing"), 0))


async def fail_all(cluster: TriohaCluster) -> None:
    """Consume without success: what waits for the group becomes dead letters."""

    async def fail(message: ReceivedMessage) -> None:
        raise ConsumeLater(-1)

    waiting = (await read_state(cluster))["offsets"]["billing behind in orders"]
    async with cluster.consumer("orders", fail, group="billing"):
        # A broker does not announce dead letters.
        while dead_letters(await read_state(cluster)) < waiting:  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_every_cell_of_the_console_is_done_by_keys() -> None:
    with ExitStack() as stack:
        keyed, commanded = [
            Place(await asyncio.to_thread(stack.enter_context, start_cluster("2m-noslave")))
            for _ in range(2)
        ]
        for place in (keyed, commanded):
            await place.run(Row("", "trioha topic create parcels --queues 1", "-"))
        source = LiveSource(parse_namesrvs(keyed.cluster.namesrv), period_s=0.2)
        async with open_live_console(source, (160, 32), armed=True) as console:
            await console.shows("● all well")
            operator = Operator(console, keyed, commanded)
            stack.callback(operator.readers.close)
            for row in ROWS:
                await operator.do(row)


def test_no_cell_of_the_console_is_forgotten() -> None:
    cells = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    filled = [one for one in cells if one not in ("-", "console")]
    assert filled == [row.cell for row in ROWS if row.cell != "-"]
    assert len(filled) > 25
