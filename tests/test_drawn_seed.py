"""Campaigns can be repeated."""

from __future__ import annotations

import pytest
from support.suite.drawn_seed import drawn_seed


def test_a_commit_decides_the_seed_of_each_campaign(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TEST_SEED", raising=False)
    seed = drawn_seed("cut")
    assert drawn_seed("cut") == seed
    assert drawn_seed("disk") != seed
    assert f"cut: seed {seed}; the same again with TEST_SEED={seed}" in capsys.readouterr().out


def test_a_given_seed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SEED", "4711")
    assert drawn_seed("cut") == 4711
