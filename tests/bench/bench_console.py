"""Benchmark of the console before 100 brokers, 2,000 topics, 20,000 queues and 5,000 groups.

    PYTHONPATH=tests:console python tests/bench/bench_console.py [SECONDS] [SCREEN ...]

Another process answers for all brokers of ten clusters over loopback (`bench.fleet`). Measured is
the console with its own source: asking, reading the answers, keeping, judging and drawing, at
200x50 and one frame a second. It prints processor time as a share of one core, the time from a key
to the drawn row under it, and the time from `exec` to the first screen that has every broker. Of
keys and of the start it prints processor time as well: what they take where nothing else runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median
from typing import Any

import trioha_console  # noqa: F401  it sets Textual's clock, before Textual is imported

# isort: split
from bench.fleet import CLUSTERS, QUEUES, SETS, TOPICS
from support.processes.faults import processor_s
from support.screens.screens import LARGE
from textual.events import Key
from trioha_console.app import ConsoleApp
from trioha_console.garbage import IdleCollector
from trioha_console.source import LiveSource

SCREENS = ("replication", "brokers", "topics", "queues", "groups", "alerts")
_SETTLED_S = 12
"""After a screen was opened: its tables are there, and asked for in their rhythm."""
_FILL_S = 240
"""The queues of all topics come in turns, for two minutes: five times as many as later on."""
ALL_QUEUES = CLUSTERS * SETS * TOPICS * QUEUES
_KEYS = 300
_STARTS = 5


@contextlib.contextmanager
def running_fleet() -> Iterator[list[str]]:
    """The fleet in a process of its own; addresses of its name servers."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.fleet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()
        finally:
            process.stdin.close()


class Drawn:
    """Tells when the program has drawn."""

    def __init__(self, app: ConsoleApp) -> None:
        self.event = asyncio.Event()
        display = app._display

        def drawn(*arguments: Any) -> None:
            display(*arguments)
            self.event.set()

        app._display = drawn  # type: ignore[method-assign, assignment]


@contextlib.asynccontextmanager
async def open_app(namesrv: str) -> AsyncIterator[ConsoleApp]:
    app = ConsoleApp(LiveSource((namesrv,)), collector=IdleCollector(time.monotonic()))
    async with app.run_test(size=LARGE):
        yield app


async def filled(app: ConsoleApp) -> None:
    """Wait until the queues of all topics are known."""
    began = time.monotonic()
    while app.frame is None or len(app.frame.snapshot.queues) < ALL_QUEUES:
        assert time.monotonic() - began < _FILL_S, "not all queues are known"
        await asyncio.sleep(1)
    await asyncio.sleep(_SETTLED_S)


async def cpu_share(seconds: int) -> float:
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - began)


async def key_times(app: ConsoleApp, drawn: Drawn) -> list[tuple[float, float]]:
    """Seconds, and processor seconds, from a key to the screen on which the cursor has moved."""
    rng = random.Random(1)
    times: list[tuple[float, float]] = []
    grid = app.view.grid
    if len(grid.rows) < 2:
        return []
    for number in range(_KEYS):
        await asyncio.sleep(rng.uniform(0.02, 0.1))
        before, began, cpu = grid.cursor, time.monotonic(), time.process_time()
        app.post_message(Key("down" if number % 40 < 20 else "up", None))
        while grid.cursor == before:
            drawn.event.clear()
            await drawn.event.wait()
        times.append((time.monotonic() - began, time.process_time() - cpu))
    return times


async def measure(namesrv: str, seconds: int, screens: tuple[str, ...]) -> None:
    async with open_app(namesrv) as app:
        drawn = Drawn(app)
        for screen in screens:
            await app.action_view(screen)
            await asyncio.sleep(_SETTLED_S)
            if screen in ("topics", "queues"):
                await filled(app)
            if not app.view.grid.rows and screen != "alerts":
                print(f"{screen}: no rows yet")
            share = await cpu_share(seconds)
            times = await key_times(app, drawn)
            print(f"{screen:<12} {share:6.1%} of a core, {len(app.view.grid.rows)} rows", end="")
            for what, column in zip(("keys", "CPU"), zip(*times, strict=True), strict=False):
                ordered = sorted(1000 * one for one in column)
                p99 = ordered[int(len(ordered) * 0.99)]
                print(f"; {what}: median {median(ordered):.0f} ms, p99 {p99:.0f} ms", end="")
            print(flush=True)


def first_screen(namesrv: str, words: bytes) -> tuple[float, float]:
    """Seconds, and processor seconds, from `exec` to a screen with these words."""
    began = time.monotonic()
    process, terminal = pty.fork()
    if not process:
        os.execv(
            sys.executable, [sys.executable, "-m", "trioha", "console", "-n", namesrv]
        )  # pragma: no cover
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    seen = b""
    while words not in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen):
        assert select.select([terminal], [], [], 30)[0], "no screen in 30 s"
        seen += os.read(terminal, 65_536)
    took_s = time.monotonic() - began
    worked_s = processor_s(process)
    os.write(terminal, b"q")
    with contextlib.suppress(OSError):
        while os.read(terminal, 65_536):
            pass
    os.close(terminal)
    os.waitpid(process, 0)
    return took_s, worked_s


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    screens = tuple(sys.argv[2:]) or SCREENS
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with running_fleet() as namesrvs:
        if screens == SCREENS or "start" in screens:
            starts = [first_screen(namesrvs[0], b"50 sets, 100 nodes") for _ in range(_STARTS)]
            took_s, cpu_s = (median(column) for column in zip(*starts, strict=True))
            print(f"first screen {took_s:6.2f} s, {cpu_s:.2f} s of it processor time", flush=True)
        chosen = tuple(one for one in screens if one != "start")
        if chosen:
            asyncio.run(measure(namesrvs[0], seconds, chosen))
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
