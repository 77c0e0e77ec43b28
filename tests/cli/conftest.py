"""A cluster for the nouns' tests: two masters in this process, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clusters.operated import Operated, operate
from support.suite.printing import printed_json

__all__ = ["operator", "printed_json", "two_masters"]


@pytest.fixture(scope="session")
def two_masters() -> Iterator[Operated]:
    with operate("2m-noslave") as operated:
        yield operated


@pytest.fixture
def operator(
    two_masters: Operated, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Operated:
    return two_masters.listen(capsys, monkeypatch)
