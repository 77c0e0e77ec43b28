"""Commands within limits, and parts that have passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gate import running
from gate.passed import PassedParts
from gate.running import Budget, CommandFailed, check, environment, run

FAR_S = 60.0


def python(program: str) -> list[str | Path]:
    return [sys.executable, "-c", program]


def test_a_command_says_how_it_ended_and_what_it_cost(tmp_path: Path) -> None:
    budget = Budget.of(FAR_S)
    assert run(python("raise SystemExit(3)"), budget) == 3
    assert budget.cpu_s > 0
    with pytest.raises(CommandFailed, match="exit code 3: "):
        check(python("raise SystemExit(3)"), budget)


def test_a_command_over_its_limit_is_interrupted_and_may_still_write(tmp_path: Path) -> None:
    program = f"""
import pathlib, time
try:
    time.sleep({FAR_S})
except KeyboardInterrupt:
    pathlib.Path({str(tmp_path / "report")!r}).touch()
"""
    # Long enough for the interpreter to reach the try.
    with pytest.raises(CommandFailed, match="did not end in time"):
        run(python(program), Budget.of(5.0))
    assert (tmp_path / "report").exists()


def test_a_command_that_is_deaf_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.1)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(99)"
    with pytest.raises(CommandFailed, match="did not end in time"):
        run(python(deaf), Budget.of(0.5))


def test_what_a_command_leaves_behind_is_killed() -> None:
    reader, writer = os.pipe()
    leaves = f"import subprocess; subprocess.Popen(['sleep', '99'], pass_fds=[{writer}])"
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; from gate.running import *; run(sys.argv[1:], Budget.of(60))",
            *map(str, python(leaves)),
        ],
        env={**os.environ, "PYTHONPATH": str(running.ROOT / ".ci")},
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    # The end of the file comes when the last process that holds the other end is gone.
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_nothing_in_the_environment_softens_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOHA_REWRITE", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("CI", "")
    env = environment(TEST_TIER="gate")
    assert "TRIOHA_REWRITE" not in env
    assert "PYTEST_ADDOPTS" not in env
    assert (env["CI"], env["TEST_TIER"]) == ("1", "gate")


def test_a_part_has_passed_for_one_state_of_the_sources(tmp_path: Path) -> None:
    passed = PassedParts(tmp_path, "abc")
    assert "sim" not in passed
    passed.add("sim")
    assert "sim" in PassedParts(tmp_path, "abc")
    assert "sim" not in PassedParts(tmp_path, "def")
    passed.forget("sim")
    assert "sim" not in passed
