"""Replica sets that live through hostile seconds; `just sim SEED` shows one that fails."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest
from sim.kept_seeds import kept_seeds

from trioha.sim.pair.checker import Counts
from trioha.sim.pair.simulation import run_seed

QUICK_SEEDS = 50
SEEDS = 1000


@pytest.mark.parametrize("seed", kept_seeds("pair"))
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    run_seed(seed)


def test_seeds_hold_what_is_promised() -> None:
    for seed in range(QUICK_SEEDS):
        run_seed(seed)


def test_a_seed_is_a_run() -> None:
    assert run_seed(11) == run_seed(11)


@pytest.mark.slow
def test_a_thousand_seeds_hold_and_meet_what_they_are_there_for() -> None:
    total = Counts()
    with ProcessPoolExecutor(2) as pool:
        for counts in pool.map(run_seed, range(QUICK_SEEDS, QUICK_SEEDS + SEEDS), chunksize=20):
            total.add(counts)
    assert total.acknowledged > 100 * SEEDS, total
    assert total.planned > SEEDS / 2, total
    assert total.forced > SEEDS / 10, total
    assert total.crashes > SEEDS, total
    assert total.cuts > SEEDS / 20, total
    assert total.given_up > 0, total
