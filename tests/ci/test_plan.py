"""The plan of the gate: limits, and that no test lies where no step looks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gate import plan, timings
from support.processes.rig import REPO

from trioha.compiled import HOT_MODULES

TESTS = REPO / "tests"
_REAL = re.compile(r"mark\.(slow|interop)\b")
_LIMIT = re.compile(r"mark\.timeout\(\d")


def files_with_real_tests() -> list[Path]:
    """Files with tests that the quick steps leave out; a conftest marks its whole folder."""
    found = []
    for path in TESTS.rglob("*.py"):
        if path.name.startswith(("test_", "conftest")) and _REAL.search(path.read_text()):
            found.append(path.parent if path.name == "conftest.py" else path)
    assert len(found) > 20
    return found


def steps_that_run(path: Path, steps: tuple[plan.Step, ...]) -> list[str]:
    """Names of the steps that run the slow tests of a file."""
    name = str(path.relative_to(REPO))
    return [
        step.name
        for step in steps
        if isinstance(step, plan.Tests)
        and step.marker != plan.QUICK
        and any(name == each or name.startswith(f"{each}/") for each in step.paths)
    ]


@pytest.mark.parametrize("tier", plan.TIERS)
def test_every_file_with_real_tests_is_in_one_step(tier: str) -> None:
    steps = plan.TIERS[tier]
    lost = {path: steps_that_run(path, steps) for path in files_with_real_tests()}
    assert {path: names for path, names in lost.items() if len(names) != 1} == {}


@pytest.mark.parametrize("tier", plan.TIERS)
def test_every_path_of_a_step_is_there(tier: str) -> None:
    for step in plan.TIERS[tier]:
        if isinstance(step, plan.Tests):
            assert [path for path in step.paths if not (REPO / path).exists()] == []


def test_a_step_that_hangs_leaves_the_others_their_time() -> None:
    kept = timings.load(REPO / ".ci" / "timings" / "gate.json")
    for hangs in plan.GATE:
        others = sum(kept[step.name].wall_s for step in plan.GATE if step != hangs)
        assert hangs.limit_s + plan.GRACE_S + others < plan.GATE_LIMIT_S, hangs.name
    assert plan.STATIC.limit_s <= plan.BUILD.limit_s


@pytest.mark.parametrize("tier", plan.TIERS)
def test_a_test_is_over_its_limit_before_its_step_is(tier: str) -> None:
    steps = [step for step in plan.TIERS[tier] if isinstance(step, plan.Tests)]
    assert all(step.test_limit_s < step.limit_s for step in steps)


def test_a_file_with_a_limit_of_its_own_is_over_it_before_its_step_is_in_a_release() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if _LIMIT.search(path.read_text())]
    assert files
    for path in files:
        module = ".".join(path.relative_to(TESTS).with_suffix("").parts)
        program = f"import {module} as m; print(*(o.args[0] for o in m.pytestmark if o.args))"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(TESTS), "TEST_TIER": "release"},
        )
        (step,) = plan.named(plan.RELEASE, steps_that_run(path, plan.RELEASE))
        assert float(done.stdout) < step.limit_s, path


def test_every_package_with_hot_modules_is_tested_compiled_in_the_gate() -> None:
    hot = {f"tests/{name.split('.')[1]}" for name in HOT_MODULES}
    assert hot - set(plan.COMPILED_PATHS) == set()


@pytest.mark.parametrize("tier", plan.TIERS)
def test_every_step_ends_well_within_its_limit(tier: str) -> None:
    """A step's time, measured or estimated, is at most four fifths of its limit."""
    kept = timings.load(REPO / ".ci" / "timings" / f"{tier}.json")
    limits = {step.name: step.limit_s for step in plan.TIERS[tier]}
    assert kept.keys() & limits.keys()
    close = {
        name: (times.wall_s, limits[name])
        for name, times in kept.items()
        if name in limits and times.wall_s > 0.8 * limits[name]
    }
    assert close == {}


def test_allowed_skips_and_samples_name_tests_that_exist() -> None:
    for steps in plan.TIERS.values():
        for step in steps:
            if not isinstance(step, plan.Tests):
                continue
            for nodeid in (*step.allowed_skips, *(step.sample.tests if step.sample else ())):
                path, _, name = nodeid.partition("::")
                assert f"def {name.partition('[')[0]}(" in (REPO / path).read_text(), nodeid


def test_a_sample_names_what_grows_with_it() -> None:
    for step in plan.RELEASE:
        if step.sample is None:
            continue
        assert 0 < step.sample.taken < step.sample.whole
        assert bool(step.sample.tests) == isinstance(step, plan.Tests)
        assert bool(step.sample.command) == isinstance(step, plan.Script)
        if isinstance(step, plan.Script):
            # The same command, but for the number.
            whole, taken = f"{step.sample.whole}", f"{step.sample.taken}"
            assert step.sample.command == (*step.command[:-1], taken)
            assert step.command[-1] == whole
    assert not any(step.sample for step in plan.GATE)


def test_steps_are_chosen_by_name_in_the_order_of_the_plan() -> None:
    chosen = plan.named(plan.GATE, ["files", "quick"])
    assert [step.name for step in chosen] == ["quick", "files"]
    assert plan.named(plan.GATE, []) == ()
    with pytest.raises(ValueError, match="unknown step 'slow'; there are setup, static"):
        plan.named(plan.GATE, ["slow"])
