"""No two public classes have one name, so a name in a log or a question means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def classes_of(source: str) -> Iterable[tuple[str, bool]]:
    """Yield the name of each public class at the top of a module, and whether it is a Protocol."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, any(ast.unparse(base).startswith("Protocol") for base in node.bases)


def shared_names(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that several modules give to a class, each with these modules.

    A Protocol may have the name of the one class that it describes for a module below it.
    """
    places: defaultdict[str, list[tuple[bool, str]]] = defaultdict(list)
    for module, source in modules.items():
        for name, is_protocol in classes_of(source):
            places[name].append((is_protocol, module))
    return {
        name: [module for _, module in found]
        for name, found in places.items()
        if len(found) > 1 and sorted(is_protocol for is_protocol, _ in found) != [False, True]
    }


def test_no_two_classes_have_one_name() -> None:
    modules = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in ("trioha", "console")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(modules) > 500
    assert shared_names(modules) == {}


def test_a_name_that_two_modules_use_is_noticed() -> None:
    described = {"a": "class Tables(Protocol): ...", "b": "class Tables: ..."}
    assert shared_names(described) == {}
    assert shared_names({**described, "c": "class Tables: ..."}) == {"Tables": ["a", "b", "c"]}
    twice = {"a": "class Answer: ...\nclass _Part: ...", "b": "class Answer(Enum): ..."}
    assert shared_names({**twice, "c": "class _Part: ..."}) == {"Answer": ["a", "b"]}
    assert shared_names({"a": "class P(Protocol): ...", "b": "class P(Protocol[T]): ..."}) != {}
