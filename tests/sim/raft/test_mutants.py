"""The detector is proved: a release's 2,000 seeds notice every known fault that is put back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from sim.raft import mutants
from sim.raft.mutants import BROKEN, MOVED, MUTANTS, NOTICED, SEEDS_MAX, SURVIVED

import trioha
from trioha.sim.raft import simulation

_SCRIPT = Path(__file__).with_name("mutants.py")
_CORE = Path(trioha.__file__).parent / "dledger"
_DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_fault_is_noticed(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), name, str(SEEDS_MAX)],
        capture_output=True,
        text=True,
        check=False,
    )
    seed = done.stdout.partition("\t")[0]
    assert done.returncode != MOVED, f"its seed does not notice it; write {seed} in its place"
    assert done.returncode != SURVIVED, f"{name} lived through {SEEDS_MAX} seeds"
    assert done.returncode == NOTICED, f"{name} broke the simulation: {done.stderr}"
    assert "\t" in done.stdout, done.stdout


def test_the_page_tells_of_every_fault() -> None:
    page = (_DOCS / "simulation.md").read_text()
    told = page.partition("| a seed that notices it |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [f"| {one.name} | {one.why} | {one.seed} |" for one in MUTANTS]
    assert told.splitlines() == rows, "\n".join(rows)


def test_every_fault_is_one_line_of_the_core_as_it_is() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        source = (_CORE / f"{mutant.module}.py").read_text()
        assert source.count(mutant.right) == 1, mutant.name


def test_an_exception_of_the_simulation_itself_is_not_a_fault_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(seed: int) -> None:
        raise KeyError("a typing error in a mutant")

    monkeypatch.setattr(simulation, "run_seed", breaks)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert mutants.main(MUTANTS[0].name, 1) == BROKEN
    assert "a typing error in a mutant" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("judged", "expected"),
    [({0, 4}, NOTICED), ({1, 3}, MOVED), (set(), SURVIVED)],
)
def test_only_the_judge_notices_and_by_the_seed_that_is_written_down(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    judged: set[int],
    expected: int,
) -> None:
    """Every other seed ends in an error that the core raised on purpose."""
    whole = simulation.run_seed(0)

    def run_seed(seed: int) -> simulation.SeedVerdict:
        return attrs.evolve(whole, failure="an error", is_judged=seed in judged)

    monkeypatch.setattr(simulation, "run_seed", run_seed)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(mutants, "MUTANTS", (attrs.evolve(MUTANTS[0], seed=4),))
    assert mutants.main(MUTANTS[0].name, 4) == expected
    told = {NOTICED: "4\tan error\n", MOVED: "1\tan error\n", SURVIVED: ""}
    assert capsys.readouterr().out == told[expected]
