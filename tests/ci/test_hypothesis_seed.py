"""Properties of a run draw from one seed that is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.rig import REPO

PROPERTY = """
from hypothesis import given, strategies as st
from support.suite.hypothesis_seed import seed_of
from support.suite.sizes import drawn_seeds

@given(st.lists(st.integers(), min_size=9))
def test_numbers(numbers):
    print("drawn", numbers)

def test_seed(request):
    print("seed", seed_of(request.config), drawn_seeds("properties", 1).start)
    assert False
"""


def run(folder: Path, *options: str, commit: str) -> tuple[list[str], str]:
    """Run a test with the hooks; return what it drew, and everything that it printed."""
    (folder / "conftest.py").write_text(
        "from support.suite.hypothesis_seed import pytest_configure, pytest_terminal_summary\n"
    )
    (folder / "test_property.py").write_text(PROPERTY)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *options),
            *("--rootdir", str(folder), "-c", os.devnull, str(folder)),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPO / "tests"), "TEST_COMMIT": commit},
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("drawn")], done.stdout


@pytest.mark.slow
def test_a_commit_decides_what_properties_draw_and_a_failing_run_tells_the_seed(
    tmp_path: Path,
) -> None:
    first, told = run(tmp_path, commit="0123abc")
    assert len(first) > 10
    assert run(tmp_path, commit="0123abc")[0] == first
    other, _ = run(tmp_path, commit="0123abd")
    assert other != first
    (seed,) = [line.partition("=")[2] for line in told.splitlines() if "properties: --" in line]
    # The seed that the failure told repeats it on any commit.
    assert run(tmp_path, f"--hypothesis-seed={seed}", commit="0123abd")[0] == first
