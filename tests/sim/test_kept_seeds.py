"""The file of kept seeds: whatever no longer means anything is an error."""

from __future__ import annotations

import pytest
from sim.kept_seeds import KeptSeedError, parse_seeds

KEPT = """\
# Words.

pair v2 102  # a lost tail
pair v2 7  # a lost tail
raft v3 102  # a stale lease
"""


def test_seeds_are_read_by_kind() -> None:
    assert parse_seeds(KEPT, "pair", 2) == [102, 7]
    assert parse_seeds(KEPT, "raft", 3) == [102]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (KEPT, "raft", "raft seed 102 was kept for generator 3, and the generator is 2"),
        ("pair v2 1  # a\npair v1 5  # lost tail", "pair", "seeds.txt:2: .*lost tail"),
        ("pair v3 1  # a", "pair", "kept for generator 3, and the generator is 2"),
        (KEPT, "trio", "keeps no seed of kind trio"),
        ("", "pair", "keeps no seed of kind pair"),
        (KEPT + "pair v2 7  # again", "pair", "seeds.txt:6: pair seed 7 is kept twice"),
        ("pair 102 a lost tail", "pair", "is not KIND vGENERATOR SEED"),
        ("pair v2 102  #", "pair", "is not KIND vGENERATOR SEED"),
        # A line of another kind is checked, too: a misspelt one would belong to no kind.
        (KEPT + "3 4601 overload", "pair", "is not KIND vGENERATOR SEED"),
    ],
)
def test_a_seed_that_means_nothing_is_an_error(text: str, kind: str, says: str) -> None:
    with pytest.raises(KeptSeedError, match=says):
        parse_seeds(text, kind, 2)
