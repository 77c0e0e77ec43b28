"""docs/operations.md, the column of the console: each cell is done by keys against real brokers.

Where a cell has a line of the prompt, the line is typed, the plan read, and the name typed; then
the command line tells what became of it. Other cells name a screen: it shows the job's answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.processes.status import run_trioha
from support.screens.screens import LARGE, Console
from textual.pilot import Pilot
from trioha_console.app import ConsoleApp
from trioha_console.screens.operation import OperationScreen, OperationStage
from trioha_console.source import LiveSource
from trioha_console.views.messages import MessagesView
from trioha_console.widgets.confirmation import TypedConfirmation

from trioha.testing.thread_cluster import start_cluster
from trioha.wire.address import parse_namesrvs

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| `(trioha [^`]+)` \| ([^|]+) \|", re.MULTILINE)
PATIENCE_S = 60.0
BY_COMMAND = ("group create", "group clone-offsets", "message send")
"""Jobs that the console does not do, and that later rows of the page need."""
ONLY_PLANNED = ("drain ",)
"""An operator's day drains a broker for good (test_operator_day.py)."""


class Operator:
    """Keys for the console, commands beside it."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[Any], namesrv: str) -> None:
        self.app = app
        self.pilot = pilot
        self.namesrv = namesrv
        self.keys = Console(app, None, pilot)  # type: ignore[arg-type]

    async def cli(self, *arguments: str) -> str:
        noun, verb, *rest = arguments
        done = await asyncio.to_thread(run_trioha, noun, verb, "-n", self.namesrv, *rest)
        assert done.code == 0, (arguments, done.err)
        return done.out

    async def told(self, *arguments: str) -> Any:
        return json.loads(await self.cli(*arguments, "-o", "json"))

    async def until(self, what: str, holds: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    await self.pilot.pause(0.05)
        except TimeoutError:
            raise AssertionError(f"never saw {what}; the screen is\n{self.keys.text}") from None

    async def shows(self, words: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while words not in self.keys.text:
                    await self.pilot.pause(0.05)
        except TimeoutError:
            raise AssertionError(f"no {words!r} on\n{self.keys.text}") from None

    async def type(self, line: str) -> None:
        await self.keys.press(*line, "enter")

    async def carry_out(self, line: str, *, only_plan: bool = False) -> str:
        """Type a line, read the plan, confirm it; return the last screen."""
        await self.type(f":{line}")
        await self.until(f"a plan of {line}", lambda: isinstance(self.app.screen, OperationScreen))
        screen = self.app.screen
        assert isinstance(screen, OperationScreen)
        await self.until(f"the plan of {line}", lambda: screen.stage is OperationStage.PLAN)
        assert "plan  " in self.keys.text, self.keys.text
        assert "data loss" in self.keys.text, self.keys.text
        if not only_plan:
            await self.keys.press("c")
            if screen.query_one(TypedConfirmation).is_open:
                await self.type(screen.operation.name)
            await self.until(f"the end of {line}", lambda: screen.stage is OperationStage.END)
            assert "● " in self.keys.text, self.keys.text
        text = self.keys.text
        await self.keys.press("escape")
        await self.until("the screen below", lambda: self.app.screen is self.app.main)
        return text


@asynccontextmanager
async def operating(namesrv: str) -> AsyncIterator[Operator]:
    app = ConsoleApp(LiveSource(parse_namesrvs(namesrv), period_s=0.2), armed=True)
    async with app.run_test(size=LARGE) as pilot:
        operator = Operator(app, pilot, namesrv)
        await operator.shows("● all well")
        yield operator


async def look_at(operator: Operator, cell: str, command: str) -> None:
    """A cell that names a screen: it shows what the job asks for."""
    number, *_ = cell.split()
    await operator.keys.press("1" if number == "7" else number)
    if query := re.search(r"Messages: `([^`]+)`", cell):
        await operator.type(f":messages {query[1]}")
        view = operator.app.view
        assert isinstance(view, MessagesView)
        await operator.until(f"messages of {query[1]}", lambda: bool(view.grid.rows))
        return
    await operator.keys.press(number)
    words = shlex.split(command)
    name = next((one for one in words if one in ("orders", "billing", "broker-a")), "")
    if number == "7":
        await operator.shows("No active alerts.")
    elif number == "6":
        await operator.shows("messages")
    elif number == "4":
        await operator.type(":queues orders")
        await operator.shows("orders")
    else:
        await operator.shows(name or {"2": "broker-b", "3": "TOPIC", "5": "GROUP"}[number])
    if "Enter" in cell:
        rows = operator.app.view.grid
        index = next(
            (at for at, row in enumerate(rows.rows) if name and name in rows.shape.search(row)), 0
        )
        await operator.keys.press("home", *["down"] * index, "enter")
        await operator.until(
            "a screen of its own", lambda: operator.app.screen is not operator.app.main
        )
        await operator.shows(name or "broker")
        await operator.keys.press("escape")


async def after(operator: Operator, command: str, names: dict[str, str]) -> None:
    """Do the work of applications between two jobs of the operator."""
    if command.startswith("trioha group create billing"):
        body = ("--count", "12", "--tag", "paid")
        await asyncio.to_thread(
            run_trioha, "produce", "-n", operator.namesrv, "-t", "orders", *body
        )
        read = ("-t", "orders", "-g", "billing", "--count", "12", "--from", "first")
        await asyncio.to_thread(run_trioha, "consume", "-n", operator.namesrv, *read)
        await operator.until("progress of billing", lambda: True)
    if command.startswith("trioha message send"):
        found = await operator.told("message", "get", "-t", "orders", "--key", "order-4712")
        names["MSG_ID"] = found["messages"][0]["msg_id"]
    if command.startswith("trioha message trace"):
        # The topic of its retries is there since the group consumed.
        await operator.carry_out("create-topic %DLQ%billing 1")
        await asyncio.to_thread(
            run_trioha, "produce", "-n", operator.namesrv, "-t", "%DLQ%billing", "--count", "3"
        )


async def test_every_cell_of_the_console_is_done_by_keys() -> None:
    rows = ROW.findall(PAGE)
    done: list[str] = []
    with start_cluster("2m-noslave") as cluster:
        async with operating(cluster.namesrv) as operator:
            names: dict[str, str] = {}
            for job, command, cell in rows:
                for name, value in names.items():
                    command, cell = command.replace(name, value), cell.replace(name, value)
                line = re.search(r"`:([^`]+)`", cell)
                if line and line[1].startswith("dlq"):
                    await operator.type(f":{line[1]}")
                    await operator.shows("3 messages")
                elif line:
                    said = await operator.carry_out(
                        line[1], only_plan=line[1].startswith(ONLY_PLANNED)
                    )
                    done.append(f"{job.strip()}: {said}")
                elif cell.strip()[0].isdigit():
                    await look_at(operator, cell.strip(), command)
                elif command.removeprefix("trioha ").startswith(BY_COMMAND):
                    await operator.cli(*shlex.split(command)[1:])
                await after(operator, command, names)
            topics = await operator.told("topic", "list")
            groups = await operator.told("group", "list")
    assert "orders" not in [one["name"] for one in topics["topics"]]
    assert "billing-2" not in [one["name"] for one in groups["groups"]]
    assert len(done) >= 10, done
