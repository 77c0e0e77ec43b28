"""Skips, sizes and time limits of the tests, each seen from a pytest of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from support.processes.rig import REPO, Process, ProcessFailed, running_processes
from support.suite import sizes

pytest_plugins = ["pytester"]

Say = Callable[..., str]

SKIPS = """
import pytest
from support.suite.skips import skip_unless

def test_asks():
    skip_unless(False, "no moon here")

@pytest.fixture
def moon():
    skip_unless(False, "no moon here")

def test_asks_in_a_fixture(moon):
    pass

def test_skips_by_itself():
    pytest.skip("not today")

@pytest.mark.skipif(True, reason="not today")
def test_is_marked():
    pass

@pytest.mark.xfail
def test_may_fail():
    assert False

def test_needs_a_module():
    pytest.importorskip("no_such_module")
"""


@pytest.fixture
def say(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run a file of tests with one of our plugins; returns what pytest printed."""

    def run(
        text: str, *options: str, plugin: str = "support.suite.skips", is_ci: bool = False
    ) -> str:
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        monkeypatch.setenv("CI", "1" if is_ci else "")
        monkeypatch.setenv("PYTHONPATH", str(REPO / "tests"))
        pytester.makepyfile(test_it=text)
        words = ("-q", "-ra", "-p", plugin, "-p", "no:warnings", *options, "test_it.py")
        # A time limit within a time limit: in a process of its own.
        apart = plugin == "support.suite.timeouts"
        runner = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return str(runner(*words).stdout)

    return run


def test_on_a_laptop_skips_are_listed(say: Say) -> None:
    said = say(SKIPS)
    assert "5 skipped, 1 xfailed" in said
    assert "test_it.py:4: support.suite.skips.Unavailable: no moon here" in said


def test_in_the_gate_every_skip_is_a_failure(say: Say) -> None:
    said = say(SKIPS, is_ci=True)
    assert "4 failed, 2 errors" in said
    assert said.count("the gate allows no skip here (see support.suite.skips): no moon here") >= 2
    assert "skipped by another way than support.suite.skips.skip_unless: " in said


def test_an_allowed_skip_is_one(say: Say) -> None:
    said = say(SKIPS, "--allow-skip=test_it.py::test_asks", "-k", "test_asks", is_ci=True)
    assert "1 skipped, 4 deselected, 1 error" in said


def test_an_allowed_skip_has_to_be_ours(say: Say) -> None:
    allowed = "--allow-skip=test_it.py::test_skips_by_itself"
    said = say(SKIPS, allowed, "-k", "test_skips_by_itself", is_ci=True)
    assert "1 failed" in said


def test_a_module_that_skips_itself_fails_in_the_gate(say: Say) -> None:
    text = 'from support.suite.skips import skip_unless\nskip_unless(False, "no moon")\n'
    assert "1 skipped" in say(text)
    said = say(text, is_ci=True)
    assert "1 error" in said
    assert "no moon" in said


TRIO_HANGS = """
import trio

def test_hangs():
    async def nap(task_status):
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            print("unwound")

    async def main():
        async with trio.open_nursery() as nursery:
            await nursery.start(nap, name="ha.read[10.0.0.2]")

    trio.run(main)

def test_after():
    trio.run(trio.sleep, 0)
"""
ASYNCIO_HANGS = """
import asyncio

async def nap():
    await asyncio.Event().wait()

def test_hangs():
    async def main():
        await asyncio.gather(asyncio.create_task(nap(), name="screen"))

    asyncio.run(main())
"""


def test_a_test_that_hangs_shows_the_tree_of_its_tasks(say: Say) -> None:
    said = say(TRIO_HANGS, "--timeout=1", plugin="support.suite.timeouts")
    assert "1 failed, 1 passed" in said
    assert "FAILED test_it.py::test_hangs - Failed: no end within 1 s (pytest-timeout)" in said
    assert "unwound" in said
    assert "-- thread MainThread" in said
    assert "ha.read[10.0.0.2]" in said
    assert "in test_hangs.<locals>.nap" in said
    assert "trio/_timeouts.py" in said


def test_a_test_that_hangs_on_asyncio_shows_its_tasks_too(say: Say) -> None:
    said = say(ASYNCIO_HANGS, "--timeout=1", plugin="support.suite.timeouts")
    assert "1 failed" in said
    assert "-- asyncio's tasks" in said
    assert "in nap" in said


def test_a_test_that_hangs_is_ended_though_its_branches_are_measured(say: Say) -> None:
    traced = TRIO_HANGS.replace("def test_hangs():\n", "def test_hangs():\n    measure()\n")
    measure = "import pdb, sys\n\ndef measure():\n    sys.settrace(lambda *event: None)\n"
    said = say(measure + traced, "--timeout=1", plugin="support.suite.timeouts")
    assert "1 failed, 1 passed" in said


def test_the_tier_is_the_gate_unless_a_release_is_asked_for() -> None:
    assert sizes.tier_of({}) == "gate"
    assert sizes.tier_of({"TEST_TIER": ""}) == "gate"
    assert sizes.tier_of({"TEST_TIER": "release"}) == "release"
    with pytest.raises(ValueError, match="'relase', and must be gate or release"):
        sizes.tier_of({"TEST_TIER": "relase"})


def test_a_share_is_above_nothing_and_at_most_all() -> None:
    assert sizes.share_of({}) == 1
    assert sizes.share_of({"TEST_SHARE": "1/50"}) == Fraction(1, 50)
    for text in ("0", "3/2", "-1/2"):
        with pytest.raises(ValueError, match="must be above 0 and at most 1"):
            sizes.share_of({"TEST_SHARE": text})


def test_some_of_all_cases_are_spread_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = range(48)
    monkeypatch.setattr(sizes, "SHARE", Fraction(1))
    assert sizes.some_of(cases) == cases
    monkeypatch.setattr(sizes, "SHARE", Fraction(4, 48))
    assert list(sizes.some_of(cases)) == [0, 12, 24, 36]


def test_the_gates_sizes_are_those_that_fit_its_time() -> None:
    program = (
        "from support.suite.sizes import *; print(RAFT_SEEDS, MEMBER_SEEDS, len(PLANNED_STEPS))"
    )
    found = {tier: python(program, TEST_TIER=tier).stdout.split() for tier in ("gate", "release")}
    assert found == {"gate": ["200", "12", "2"], "release": ["2000", "60", "7"]}


def test_seeds_come_from_the_commit_and_differ_from_kind_to_kind() -> None:
    first = sizes.drawn_seeds("raft", 200, "0123abc")
    assert first == sizes.drawn_seeds("raft", 200, "0123abc")
    assert len(first) == 200
    assert first.start % 200 == 0
    others = [sizes.drawn_seeds("pair", 200, "0123abc"), sizes.drawn_seeds("raft", 200, "0123abd")]
    assert first not in others


def test_the_gate_draws_cases_from_the_commit_and_a_release_takes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizes, "TIER", "gate")
    drawn = set()
    for number in range(40):
        monkeypatch.setenv("TEST_COMMIT", str(number))
        cases = tuple(sizes.drawn_cases("ends", "abc", 2))
        assert cases == tuple(sizes.drawn_cases("ends", "abc", 2))
        drawn.add(cases)
    assert drawn == {("a", "b"), ("b", "c"), ("c", "a")}
    monkeypatch.setattr(sizes, "TIER", "release")
    assert sizes.drawn_cases("ends", "abc", 2) == "abc"


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"TEST_TIER": "gate"}, (1, 1)),
        ({"TEST_TIER": "release"}, (40, 20)),
        ({"TEST_TIER": "release", "TEST_SHARE": "40/4000"}, (40, 20)),
        ({"TEST_TIER": "release", "TEST_SHARE": "1/4000"}, (1, 1)),
    ],
)
def test_every_part_of_the_hostile_rounds_has_one(
    variables: dict[str, str], parts: tuple[int, int]
) -> None:
    program = """
from support.suite.sizes import *
print(HOSTILE_FRAME_PARTS, HOSTILE_PARTS)
for part in range(HOSTILE_FRAME_PARTS):
    hostile_rounds("frames", HOSTILE_ROUNDS, part, HOSTILE_FRAME_PARTS)
for count in (HOSTILE_MASTERS, HOSTILE_LEADERS, HOSTILE_NAMESRVS):
    for part in range(HOSTILE_PARTS):
        hostile_rounds("others", count, part, HOSTILE_PARTS)
"""
    assert python(program, **variables).stdout.split() == [str(number) for number in parts]


def test_a_range_without_rounds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE_ROUND", "5:6")
    assert list(sizes.hostile_rounds("frames", 20)) == [5, 6]
    monkeypatch.setenv("HOSTILE_ROUND", "6:5")
    with pytest.raises(ValueError, match="no round of frames in part 0 of 1: a test of nothing"):
        sizes.hostile_rounds("frames", 20)
    monkeypatch.delenv("HOSTILE_ROUND")
    monkeypatch.setattr(sizes, "TIER", "release")
    with pytest.raises(ValueError, match="no round of frames in part 3 of 4"):
        sizes.hostile_rounds("frames", 3, 3, 4)


def test_without_a_commit_there_are_no_seeds_in_the_gate(tmp_path: Path) -> None:
    (tmp_path / "support" / "suite").mkdir(parents=True)
    shutil.copy(sizes.__file__, tmp_path / "support" / "suite")
    program = "from support.suite.sizes import *; print(drawn_seeds('raft', 200).start)"
    variables = {"PYTHONPATH": str(tmp_path), "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    assert python(program, **variables, CI="").returncode == 0
    assert python(program, **variables, CI="1", TEST_COMMIT="0123abc").returncode == 0
    failed = python(program, **variables, CI="1")
    assert failed.returncode == 1
    assert "RuntimeError: no commit to draw seeds from: fatal: not a git repo" in failed.stderr


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPO / "tests"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_for_releases_is_deselected_otherwise() -> None:
    path = "tests/analysis/spark/test_memory.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:xdist", path],
        cwd=REPO,
        env={**os.environ, "TEST_TIER": "gate"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"no tests collected \(\d+ deselected\)", done.stdout), done.stdout


PROCESS_DIES = """
import sys
from support.processes.rig import Process

def test_needs_it(processes, tmp_path):
    command = [sys.executable, "-c", "print('no space left')"]
    process = processes.add(Process("node-7", command, tmp_path / "node.log"))
    process.start()
    assert process.wait() == 1

def test_says_too_much(processes, tmp_path):
    log = tmp_path / "logs" / "broker-a.log"
    log.parent.mkdir()
    log.write_text("Traceback (most recent call last)")
"""


LIKE_A_JVM = """
import signal

# Blocked first: none is missed, whenever it comes.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
print("it starts", flush=True)
signal.sigwait({signal.SIGQUIT})
print('"Finalizer" daemon', "  at java.lang.Object.wait", "", sep="\\n")
print('"main" prio=5', "  at broker.recover", "", "JNI global refs: 7", sep="\\n", flush=True)
signal.pause()
"""


def test_a_jvm_that_is_late_says_what_it_waits_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIKE_A_JVM]
    with running_processes(tmp_path) as processes:
        process = processes.add(Process("broker", command, tmp_path / "log", is_java=True))
        process.start()
        process.wait_for_line("it starts")
        with pytest.raises(ProcessFailed) as late:
            process.wait_for_line("it is ready", within_s=0.0)
    said = str(late.value).splitlines()
    assert said[-2:] == ['  | "main" prio=5', "  |   at broker.recover"]


def test_a_failing_test_shows_what_its_processes_said_last(say: Say) -> None:
    said = say(PROCESS_DIES, plugin="support.processes.fixtures")
    assert "1 failed, 1 passed, 1 error" in said
    assert "node-7 (exit status 0)" in said
    assert "  | no space left" in said
    assert "broker-a.log shows a traceback" in said
