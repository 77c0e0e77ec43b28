"""Rounds of hostile peers, each on a clock of its own: alone, a round goes as it went in a row."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from random import Random
from typing import TypeVar

from support.suite.processes import own_bytes
from trioha.services.loop.host import simulate_host
from trioha.testing.virtual_time import run_seeded

GROWTH_BYTES_MAX = 64 << 20

T = TypeVar("T")


def run_rounds(
    rounds: Iterable[int], root: Path, tests: str, besiege: Callable[[Path, int], Awaitable[T]]
) -> list[T]:
    """Give each round a new folder and its number, and return what they found.

    `tests` selects the test (`pytest -k`) in the command that runs a round again. All randomness,
    the delays of packets too, is drawn from the number. Errors: AssertionError if this process
    grows by 64 MiB in a round.
    """
    found = []
    for number in rounds:
        print(f"round {number}; again: HOSTILE_ROUND={number} pytest tests/peers -k {tests}")
        folder = root / str(number)
        folder.mkdir()

        async def one(number: int = number, folder: Path = folder) -> T:
            simulate_host(Random(number))
            return await besiege(folder, number)

        before = own_bytes()
        found.append(run_seeded(one, number))
        assert own_bytes() - before < GROWTH_BYTES_MAX
        shutil.rmtree(folder)
    return found
