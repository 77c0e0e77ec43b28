"""A directory for small stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stores.small import small_config

from trioha.store.message_store import StoreConfig

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def store_path(tmp_path: Path) -> Iterator[Path]:
    """Yield a path, in memory if possible: the tests open thousands of stores, each with fsyncs."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="trioha-") as path:
        yield Path(path)


@pytest.fixture
def config(store_path: Path) -> StoreConfig:
    return small_config(store_path)
