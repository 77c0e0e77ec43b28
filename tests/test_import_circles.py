"""No module imports itself by way of others, not even for its annotations."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def circle_in(*packages: str) -> list[str]:
    """Return the modules of one circle in order, the first again at the end; empty without one.

    Imports below `if TYPE_CHECKING:` and inside of functions count.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]
    return []


def test_nothing_imports_itself_by_way_of_others() -> None:
    assert circle_in("trioha", "trioha_console") == []


def test_no_broker_needs_the_log_of_a_group() -> None:
    graph = grimp.build_graph("trioha", cache_dir=None)
    room = "trioha.broker.raft"
    imported = {
        (name, one)
        for name in graph.find_children("trioha.broker") - {room}
        for one in graph.find_modules_directly_imported_by(name)
    }
    assert imported
    assert [pair for pair in imported if pair[1].startswith(room)] == []


@pytest.mark.parametrize(
    "import_back",
    [
        "from circular_example import first",
        "import circular_example.first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .first import A",
        "def late():\n    from circular_example.first import A",
    ],
    ids=["from", "import", "type-checking", "late"],
)
def test_a_circle_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_back: str
) -> None:
    package = tmp_path / "circular_example"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("from circular_example.second import B\n")
    (package / "second.py").write_text("import circular_example.third\n")
    (package / "third.py").write_text(f"{import_back}\n")
    monkeypatch.syspath_prepend(tmp_path)
    circle = circle_in("circular_example")
    assert circle[0] == circle[-1]
    assert {name.rpartition(".")[2] for name in circle} == {"first", "second", "third"}
    (package / "third.py").write_text("")
    assert circle_in("circular_example") == []
