"""A store is opened under its broker's name only."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioha.errors import StoreError
from trioha.store.store_owner import claim_store


def test_a_store_is_the_first_brokers_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "store"
    claim_store(root, "one")
    claim_store(root, "one")
    with pytest.raises(StoreError, match=r"store of broker one, not of two: .*--adopt"):
        claim_store(root, "two")
    claim_store(root, "one")


def test_a_store_can_be_adopted(tmp_path: Path) -> None:
    claim_store(tmp_path, "one")
    claim_store(tmp_path, "two", adopt=True)
    claim_store(tmp_path, "two")
    with pytest.raises(StoreError, match="store of broker two"):
        claim_store(tmp_path, "one")


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=f"cannot use {tmp_path / 'file' / 'broker-name'}"):
        claim_store(tmp_path / "file", "one")
