"""How the demonstrations tell what they do: steps, checks that hold, deaths."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import click
import trio

from trioha.cli.demo_load import Ledger
from trioha.client import Producer
from trioha.errors import TriohaError
from trioha.supervisor import Node, Supervisor

STEP_PATIENCE_S = 30.0
"""For each step. All of them together take some seconds; a loaded machine gets more."""


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
    """For the supervisor."""
    click.echo(f"   {node.name} died, exit code {node.process.returncode}; it said last:", err=True)
    click.echo(indented("\n".join(node.tail())), err=True)


def indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())


def environment() -> dict[str, str]:
    """Ours, without settings meant for other nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIOHA_")}


@attrs.define(eq=False)
class Demonstration:
    """What both have: nodes in a folder, an account of messages, and checks that are told."""

    directory: Path
    count: int
    keep: bool
    namesrv: str = ""
    ledger: Ledger = attrs.Factory(Ledger)
    checks_held: int = 0
    all_held: bool = False
    began: float = attrs.field(factory=time.monotonic)

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

    def _held(self, what: str, ok: bool = True, details: str = "") -> None:
        if not ok:
            raise TriohaError(f"this did not hold: {what}{f' ({details})' if details else ''}")
        self.checks_held += 1
        click.echo(f"   ok: {what}")
