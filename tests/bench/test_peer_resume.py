"""A run that goes on with what was begun."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import bench.peer.__main__ as bench_peer
import pytest
from bench.peer.nodes import Runtime
from bench.peer.results import Results, save_results
from bench.peer.scale import QUICK, Scale

BEGUN = {"Java broker": "4.9.8", "trioha": "compiled", "measured": "on Sunday", "rows": []}


def describe(
    rounds: int, scale: Scale, runtime: Runtime, globs: Sequence[str]
) -> dict[str, object]:
    return BEGUN | {"method": f"{rounds} rounds", "rounds": rounds, "measured": "on Monday"}


def test_a_run_that_is_resumed_with_more_rounds_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_peer, "describe_setup", describe)
    path = tmp_path / "results.json"
    setup = BEGUN | {"method": "3 rounds", "rounds": 3, "scale": attrs.asdict(QUICK)}
    save_results(Results(setup=setup, samples=[]), path)
    options = bench_peer.parser().parse_args(["--resume", str(path), "--rounds", "5"])
    runner = bench_peer.make_runner(options)
    told = {name: runner.setup[name] for name in ("method", "rounds", "measured", "resumed")}
    assert runner.rounds == 5
    assert told == {
        "method": "5 rounds",
        "rounds": 5,
        "measured": "on Sunday",
        "resumed": "on Monday",
    }
