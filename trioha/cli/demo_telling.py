"""Output of the demonstrations: steps, checks that hold, deaths."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import click
import trio

from trioha.cli.demo_load import SentLedger
from trioha.client import Producer
from trioha.errors import TriohaError
from trioha.services.node.signals import watch_signals
from trioha.supervisor import Node, Supervisor, open_supervisor

STEP_PATIENCE_S = 30.0
"""Limit of each step. All of them together take some seconds; a loaded machine gets more."""
SMALL_SETTINGS = (
    # Small files, and no opinion on how full this machine's disk is.
    "mappedFileSizeCommitLog=64MiB",
    "maxHashSlotNum=50000",
    "maxIndexNum=200000",
    "diskMaxUsedSpaceRatio=99",
    "diskSpaceWarningLevelRatio=99",
)


@asynccontextmanager
async def step(title: str) -> AsyncIterator[None]:
    """Errors: TriohaError when it is not over within `STEP_PATIENCE_S`."""
    click.echo(f"\n{title}")
    try:
        with trio.fail_after(STEP_PATIENCE_S):
            yield
    except trio.TooSlowError:
        raise TriohaError(f"not done within {STEP_PATIENCE_S:g} s: {title}") from None


async def interrupt_on(shutdown: trio.Event) -> None:
    await shutdown.wait()
    raise KeyboardInterrupt


def say_death(node: Node) -> None:
    """Print that a node died, and its last lines."""
    click.echo(f"   {node.name} died, exit code {node.process.returncode}; it said last:", err=True)
    click.echo(indented("\n".join(node.tail())), err=True)


def indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def environment() -> dict[str, str]:
    """Ours, without settings meant for other nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIOHA_")}


@attrs.define(eq=False)
class Demonstration(ABC):
    """Base of both: nodes in a folder, a ledger of messages, and checks that are printed."""

    directory: Path
    count: int
    keep: bool
    namesrv: str = ""
    ledger: SentLedger = attrs.Factory(SentLedger)
    checks_held: int = 0
    all_held: bool = False
    began: float = attrs.field(factory=time.monotonic)

    async def run(self) -> None:
        """Errors: TriohaError of the first step that did not hold; all processes are stopped."""
        shutdown = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, shutdown, name="signals")
            nursery.start_soon(interrupt_on, shutdown, name="interrupt")
            async with open_supervisor(on_death=say_death) as supervisor:
                await self._tell(supervisor)
            nursery.cancel_scope.cancel()

    @abstractmethod
    async def _tell(self, supervisor: Supervisor) -> None:
        """The steps, in the order they are told."""

    async def _start(self, supervisor: Supervisor, name: str, arguments: list[str]) -> Node:
        node = await supervisor.start(
            name,
            arguments,
            log=self.directory / f"{name}.log",
            environment=environment(),
            detached=self.keep,
        )
        click.echo(f"   {name:<12} {node.address:<21} pid {node.pid}")
        return node

    async def _send(self, producer: Producer) -> None:
        elapsed = await self.ledger.send(self.namesrv, producer, self.count)
        count = len(self.ledger.acknowledged)
        self._held(
            f"{count} acknowledged in {elapsed:.1f} s, {count / elapsed:.0f}/s",
            count == self.count,
            f"{self.count} were sent",
        )

    async def _consume_half(self) -> None:
        async with step("Consume half of them"):
            half = set(sorted(self.ledger.acknowledged)[: self.count // 2])
            await self.ledger.consume(self.namesrv, half)
            self._held(f"{len(self.ledger.received)} arrived; the group's progress is stored")

    @asynccontextmanager
    async def _account_step(self) -> AsyncIterator[None]:
        """The last step; before the block all that was acknowledged is consumed."""
        ledger = self.ledger
        acknowledged = set(ledger.acknowledged)
        async with step(f"Account for all {ledger.next_number} messages that were ever sent"):
            await ledger.consume(self.namesrv, acknowledged)
            self._held(
                f"each of {len(acknowledged)} acknowledged ones was consumed, "
                f"{ledger.received_twice} of all twice",
                acknowledged <= ledger.received,
            )
            yield

    def _say_rest(self) -> None:
        """Tell how many messages were not acknowledged, and with which answer."""
        rest = [
            (self.ledger.unsafe, "stored, and told that there was no slave"),
            (self.ledger.refused, "told that there was no master"),
            (self.ledger.unknown, "in flight when it was killed, told that nobody knows"),
        ]
        for numbers, what in rest:
            if numbers:
                click.echo(f"   and {len(numbers)} {what}")

    def _held(self, what: str, ok: bool = True, details: str = "") -> None:
        if not ok:
            raise TriohaError(f"this did not hold: {what}{f' ({details})' if details else ''}")
        self.checks_held += 1
        click.echo(f"   ok: {what}")
