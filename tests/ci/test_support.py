"""tests/README.md tells the folders of tests/support in the order in which they may be imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.processes.rig import REPO

SUPPORT = REPO / "tests" / "support"
TESTS = {path.name for path in (REPO / "tests").iterdir() if path.is_dir()} - {"support"}


def folders() -> list[str]:
    text = (REPO / "tests" / "README.md").read_text()
    table = text[text.index("Folders of `support`") : text.index("## Which rig")]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def imported(path: Path) -> Iterator[list[str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")


def test_every_folder_is_in_the_table() -> None:
    assert set(folders()) == {path.parent.name for path in SUPPORT.glob("*/__init__.py")}


def test_a_folder_imports_those_before_it_only() -> None:
    order = folders()
    for path in SUPPORT.rglob("*.py"):
        for top, *rest in imported(path):
            assert top not in TESTS, f"{path} imports the tests of {top}"
            if top == "support" and path.parent != SUPPORT:
                assert order.index(rest[0]) <= order.index(path.parent.name), path
