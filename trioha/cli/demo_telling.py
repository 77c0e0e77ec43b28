"""How the demonstrations tell what they do: steps, checks that hold, deaths."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click
import trio

from trioha.errors import TriohaError
from trioha.supervisor import Node

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
