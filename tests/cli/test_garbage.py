"""Python's search for cycles, imports, and freed memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trioha.cli.garbage import importing


@pytest.fixture(params=[True, False])
def was_enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_an_import_is_not_interrupted_and_leaves_the_search_as_it_was(was_enabled: bool) -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        assert not gc.isenabled()
        raise ModuleNotFoundError
    assert gc.isenabled() == was_enabled


@pytest.mark.parametrize(
    ("options", "faults"),
    [({}, range(2_000)), ({"MALLOC_ARENA_MAX": "2"}, range(10_000, 1 << 30))],
    ids=["kept", "as the owner has set malloc"],
)
def test_a_large_frame_gets_the_memory_of_the_one_before(
    options: dict[str, str], faults: range
) -> None:
    program = """
import resource
from trioha.cli.garbage import keep_freed_memory
def frames():
    for _ in range(50):
        first = bytes(b"x" * 1_100_000)
        second = bytearray(first)
is_kept = keep_freed_memory()
frames()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
frames()
print(is_kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    out = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **options},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    is_kept, count = out.split()
    assert is_kept == str(not options)
    assert int(count) in faults, out
