"""Python's search for cycles, and imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from trioha.cli.garbage import importing


@pytest.fixture(params=[True, False])
def was_enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_an_import_is_not_interrupted_and_leaves_the_search_as_it_was(was_enabled: bool) -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        assert not gc.isenabled()
        raise ModuleNotFoundError
    assert gc.isenabled() == was_enabled
