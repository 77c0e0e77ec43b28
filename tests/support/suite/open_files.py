"""Keeps what a test process has open below 1,024: select(2) and most shells' limits take no more.

The files of a store are closed when Python frees them. Stores lie in cycles, and Python looks for
cycles after so many new objects, not after so many files: a process once had 1,461 open.
"""

from __future__ import annotations

import gc
import os

import pytest

MANY = 512


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    if lowest_free() > MANY:
        gc.collect()


def lowest_free() -> int:
    """The number that the next file gets: those below are open."""
    number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(number)
    return number
