"""Commands within limits, and parts that have passed."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from gate import running
from gate.running import Budget, CommandFailed, check, environment, run
from support.processes.rig import REPO

FAR_S = 60.0
KNOWN = {
    "CC",
    # Tests set these for programs that they start; only those programs read them.
    *("STRIKE_FILE", "ROCKETMQ_NAMESRV_ADDR", "PYSPARK_PYTHON"),
}


def python(program: str) -> list[str | Path]:
    return [sys.executable, "-c", program]


def test_a_command_says_how_it_ended_and_what_it_cost(tmp_path: Path) -> None:
    budget = Budget.of(FAR_S)
    assert run(python("raise SystemExit(3)"), budget) == 3
    assert budget.cpu_s > 0
    with pytest.raises(CommandFailed, match="exit code 3: "):
        check(python("raise SystemExit(3)"), budget)


def test_a_program_that_is_not_there_is_named_with_the_cure(tmp_path: Path) -> None:
    program = tmp_path / "python"
    with pytest.raises(
        CommandFailed, match=rf"^there is no {program}: run `\.ci/run setup` first$"
    ):
        run([program], Budget.of(10))


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


@pytest.mark.parametrize("starts_session", [False, True])
@pytest.mark.parametrize("limit_s", [FAR_S, 2.0])
def test_what_a_command_leaves_behind_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts_session: bool, limit_s: float
) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.1)
    path = tmp_path / "held"
    leaves = f"""
import fcntl, subprocess, time
held = open({str(path)!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
words = dict(pass_fds=[held.fileno()], start_new_session={starts_session})
subprocess.Popen(["sleep", "999"], **words)
time.sleep({0 if limit_s == FAR_S else 99})
"""
    with suppress(CommandFailed):
        assert run(python(leaves), Budget.of(limit_s)) == 0
    with path.open() as file:
        # Waits for the end of the last process that has the file open.
        fcntl.flock(file, fcntl.LOCK_EX)


def test_a_process_of_nobodys_command_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "99"], start_new_session=True) as other:
        assert run(python("pass"), Budget.of(FAR_S)) == 0
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    "name",
    [
        *("TRIOHA_REWRITE", "PYTEST_ADDOPTS", "PYTHONOPTIMIZE", "HYPOTHESIS_PROFILE"),
        *("TEST_TIER", "TEST_SEED", "HOSTILE_ROUND", "HA_ROUNDS", "RAFT_MEMBER_SEEDS"),
        *("FAILPOINTS", "BREAKAGE", "SYNCED"),
    ],
)
def test_nothing_in_the_environment_softens_a_test(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CI", "")
    env = environment()
    assert name not in env
    assert env["CI"] == "1"
    assert environment(TEST_TIER="gate")["TEST_TIER"] == "gate"


def test_every_variable_that_tests_read_is_unset_or_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one that changes what is tested would soften the gate unseen."""
    read = r"""environ(?:ment)?(?:\.get\(|\[)\s*"(\w+)"|"(\w+)" (?:not )?in os\.environ"""
    names = {
        first or second
        for path in (REPO / "tests").rglob("*.py")
        if "target" not in path.parts  # stock clients and their packages
        for first, second in re.findall(read, path.read_text())
    }
    assert {"HOSTILE_ROUND", "TEST_TIER", "FAILPOINTS"} <= names
    for name in names:
        monkeypatch.setenv(name, "1")
    assert names & environment().keys() - {"CI"} == KNOWN
