"""Replica sets that live through hostile seconds; `just sim SEED` shows one that fails."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest
from sim.kept_seeds import kept_seeds
from support.suite.sizes import PAIR_SEEDS, drawn_seeds, sized

from trioha.sim.pair.checker import Counts
from trioha.sim.pair.simulation import GENERATOR, run_seed

QUICK_SEEDS = 50


@pytest.mark.parametrize("seed", kept_seeds("pair", GENERATOR))
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    run_seed(seed)


def test_seeds_hold_what_is_promised() -> None:
    total = Counts()
    for seed in range(QUICK_SEEDS):
        total.add(run_seed(seed))
    assert total.sets.keys() == {2, 3, 4}


def test_a_seed_is_a_run() -> None:
    assert run_seed(11) == run_seed(11)


@pytest.mark.slow
@pytest.mark.xdist_group("drills of groups")  # two processes: not beside tests that measure time
def test_many_seeds_hold_and_meet_what_they_are_there_for() -> None:
    seeds = sized(gate=drawn_seeds("pair", PAIR_SEEDS), release=range(PAIR_SEEDS))
    print(f"the same again: just sim {seeds.start}:{seeds.stop}")
    total = Counts()
    with ProcessPoolExecutor(2) as pool:
        for counts in pool.map(run_seed, seeds, chunksize=20):
            total.add(counts)
    assert total.acknowledged > 100 * PAIR_SEEDS, total
    assert total.planned > PAIR_SEEDS / 2, total
    assert total.forced > PAIR_SEEDS / 4, total
    assert total.crashes > 2 * PAIR_SEEDS, total
    assert total.cuts > PAIR_SEEDS / 20, total
    assert total.given_up > 0, total
    assert total.sets.keys() == {2, 3, 4}, total
    assert all(count > PAIR_SEEDS / 20 for count in total.sets.values()), total
