"""Order of measurements, cost of a failure, and resuming a run that was cut."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from bench.peer import runner as module
from bench.peer.load_clients import LoadClientEnded
from bench.peer.nodes import Runtime
from bench.peer.results import Measured, Sample, Side, load_results
from bench.peer.rows import Row
from bench.peer.runner import Runner, describe
from bench.peer.scale import QUICK

MakeRow = Callable[..., Row]


@attrs.define
class Theatre:
    """Stands in for brokers and clients: what was played on how many stages."""

    played: list[tuple[Side, str]] = attrs.Factory(list)
    stages: int = 0
    failing: dict[tuple[Side, str], Exception] = attrs.Factory(dict)

    @contextlib.contextmanager
    def open_stage(self, side: Side, *_: object) -> Iterator[Side]:
        self.stages += 1
        yield side

    def measure(self, side: Side, row: Row) -> Measured:
        self.played.append((side, row.name))
        if error := self.failing.get((side, row.name)):
            raise error
        return Measured(figures={"per_s": 1.0}, count=1, elapsed_s=1.0)


@pytest.fixture
def theatre(monkeypatch: pytest.MonkeyPatch) -> Theatre:
    theatre = Theatre()
    monkeypatch.setattr(module, "open_stage", theatre.open_stage)
    monkeypatch.setattr(module, "measure_load", theatre.measure)
    return theatre


def make_runner(out: Path, rows: list[Row], *samples: Sample) -> Runner:
    return Runner(rows, 2, QUICK, out, {"scale": {}}, Runtime(), list(samples))


def test_a_round_holds_every_row_and_the_sides_take_turns(
    theatre: Theatre, make_row: MakeRow, tmp_path: Path
) -> None:
    rows = [make_row("a"), make_row("b"), make_row("c", block="other")]
    make_runner(tmp_path, rows).run()
    once = [(side, row) for block in ("ab", "c") for side in ("java", "trioha") for row in block]
    assert theatre.played == once * 2
    assert theatre.stages == 8


def test_after_a_failure_the_rest_gets_nodes_of_its_own(
    theatre: Theatre, make_row: MakeRow, tmp_path: Path
) -> None:
    theatre.failing["java", "a"] = AssertionError("it fell over\nlog")
    result = make_runner(tmp_path, [make_row("a"), make_row("b")]).run()
    assert theatre.stages == 6
    assert [sample.failed is not None for sample in result.of_row("a", "java")] == [True] * 2
    assert [sample.failed for sample in result.of_row("b", "java")] == [None] * 2


def test_a_client_that_crashed_costs_its_row_and_nothing_else(
    theatre: Theatre, make_row: MakeRow, tmp_path: Path
) -> None:
    theatre.failing["trioha", "a"] = LoadClientEnded("cpp-1: it ended")
    result = make_runner(tmp_path, [make_row("a"), make_row("b")]).run()
    assert theatre.stages == 4
    assert result.of_row("a", "trioha")[0].failed == "LoadClientEnded: cpp-1: it ended"


def test_a_cut_run_goes_on_with_what_is_missing(
    theatre: Theatre, make_row: MakeRow, tmp_path: Path
) -> None:
    rows = [make_row("a"), make_row("b")]
    whole = make_runner(tmp_path, rows).run()
    theatre.played.clear()
    kept = [sample for sample in whole.samples if (sample.row, sample.round) != ("b", 2)]
    make_runner(tmp_path, rows, *kept).run()
    assert theatre.played == [("java", "b"), ("trioha", "b")]
    assert len(load_results(tmp_path / "results.json").samples) == len(whole.samples)


def test_a_line_says_what_strangers_took(make_row: MakeRow) -> None:
    sample = Sample(row="a", side="java", round=1, figures={"per_s": 10.0}, elapsed_s=3.0)
    assert describe(make_row(), sample) == "10 messages/s"
    noisy = attrs.evolve(sample, other_cpu_s=0.5)
    assert describe(make_row(), noisy).endswith("disturbed: strangers took 0.5 CPU s")


def test_a_checkout_elsewhere_speaks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for the one that the comparison is started in."""
    for tree, build in ((tmp_path / "here", "compiled"), (tmp_path / "there", "plain")):
        package = tree / "trioha"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(f'print(\'{{"build": "{build}"}}\')')
    monkeypatch.chdir(tmp_path / "here")
    assert Runtime(tree=tmp_path / "there").version() == {"build": "plain"}
