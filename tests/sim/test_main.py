"""`python -m trioha.sim` from a shell."""

from __future__ import annotations

import pytest

from trioha.sim.__main__ import main


@pytest.mark.parametrize(
    "arguments", [[], ["pair"], ["pair", "--help"], ["raft", "1"], ["pair", "1:"]]
)
def test_wrong_words_are_answered_with_the_right_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "python -m trioha.sim pair 4711" in capsys.readouterr().err


def test_one_seed_is_lived_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "5"]) == 0
    assert capsys.readouterr().out == "pair: 1 seeds, 0 failed\n"
