"""Names in backticks, in docstrings, comments and pages, belong to something that exists.

Checked are modules and what they define (`trioha.x.y`, and `ring.module` in the sources), classes
(`Class`), their members (`Class.member`), functions with parentheses (`function(…)`), paths of
files (`ring/file.py`), and words in lower case (`word`, `some.word`): identifiers, settings, or
words of a string in the sources. Anything else in backticks is code or a command line.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from keyword import iskeyword
from pathlib import Path

import attrs
import pytest

from trioha.config import BrokerConfig, NamesrvConfig, key_of

pytestmark = pytest.mark.xdist_group("named things")  # they share what was read

ROOT = Path(__file__).resolve().parents[1]
IN_BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOTTED = re.compile(r"(?:trioha|trioha_console)(?:\.\w+)+")
IN_A_RING = re.compile(r"([a-z]+)\.(?!conf\b)\w+")
CLASS = re.compile(r"([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(.*\))?")
FUNCTION = re.compile(r"([a-z_]\w*)\(.*\)")
WORDS = re.compile(r"[a-z]\w*(?:\.\w+)?(?:\(\))?")
SOURCE_FILE = re.compile(r"(?:[\w-]+/)+[\w-]+\.(?:py|md|toml)")
FOREIGN = {
    "Cancelled": "Trio",
    "PythonScanBuilder": "Spark",
    "currterm": "DLedger",
    "df": "Unix",
    "focus": "Textual",
    "hashCode": "Java",
    "lastProgress": "Spark",
}
"""Names that belong to a library."""


SETTINGS = (BrokerConfig, NamesrvConfig)


@attrs.frozen
class Class:
    """Bases and members of all classes that share a name."""

    bases: set[str] = attrs.field(factory=set)
    members: set[str] = attrs.field(factory=set)


class Sources:
    """Definitions and texts of the sources, read without importing them."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}
        """Names at the top of each module, imported ones among them."""
        self.classes: dict[str, Class] = {}
        self.functions: set[str] = set()
        self.words = {key_of(field) for kind in SETTINGS for field in attrs.fields(kind)}
        """Identifiers, words in strings, and keys of settings."""
        self.texts: list[tuple[Path, str]] = []
        """Docstrings and comments."""
        for home in (ROOT, ROOT / "console"):
            for path in sorted(home.glob("trioha*/**/*.py")):
                self._read(".".join(path.relative_to(home).with_suffix("").parts), path)

    def _read(self, name: str, path: Path) -> None:
        source = path.read_text()
        tree = ast.parse(source)
        self.modules[name.removesuffix(".__init__")] = set(_bound(tree.body))
        self.words.update(path.parts, [path.stem])
        for node in ast.walk(tree):
            for field in ("id", "attr", "arg", "name"):
                self.words.update(str(getattr(node, field, "")).split("."))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.add(node.name)
            elif isinstance(node, ast.ClassDef):
                known = self.classes.setdefault(node.name, Class())
                known.bases.update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))
                known.members.update(_bound(node.body), _set_on_self(node))
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.texts.append((path, str(node.value.value)))
                node.value.value = ""  # else its words would be found in it
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.words.update(re.findall(r"\w+", node.value))
        if re.search("#.*`", source):
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT:
                    self.texts.append((path, token.string))

    def has(self, name: str) -> bool:
        """Return whether `name` is of something that exists, or of no kind that is checked."""
        if DOTTED.fullmatch(name):
            return self._has_dotted(name)
        if (ring := IN_A_RING.fullmatch(name)) and f"trioha.{ring[1]}" in self.modules:
            return f"trioha.{name}" in self.modules
        if found := None if iskeyword(name) else CLASS.fullmatch(name):
            return found[1] in FOREIGN or self._has_member(found[1], found[2])
        if found := FUNCTION.fullmatch(name):
            known = found[1] in self.functions or hasattr(builtins, found[1])
            return known or found[1] in FOREIGN
        if WORDS.fullmatch(name):
            words = set(re.findall(r"\w+", name))
            return words <= self.words | FOREIGN.keys() or hasattr(builtins, name)
        return not SOURCE_FILE.fullmatch(name) or _is_file(name)

    def _has_dotted(self, name: str) -> bool:
        if name in self.modules:
            return True
        module, _, last = name.rpartition(".")
        if module in self.modules:
            return last in self.modules[module]
        module, _, holder = module.rpartition(".")
        return holder in self.modules.get(module, ()) and self._has_member(holder, last)

    def _has_member(self, name: str, member: str | None) -> bool:
        known = self.classes.get(name)
        if known is None:
            found = getattr(builtins, name, None)
            is_bound = found is not None or any(name in bound for bound in self.modules.values())
            return is_bound if member is None else hasattr(found, member)
        if member is None or member in known.members:
            return True
        return any(self._has_member(base, member) for base in known.bases - {name})


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements bind, without those inside of functions and classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = (inner for target in targets for inner in ast.walk(target))
            yield from (one.id for one in found if isinstance(one, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _bound([*node.body, *node.orelse])


def _set_on_self(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr


def _is_file(name: str) -> bool:
    homes = (ROOT, ROOT / "docs", ROOT / "trioha", ROOT / "console" / "trioha_console")
    return any((home / name).is_file() for home in homes)


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


def test_docstrings_and_comments_name_what_exists(sources: Sources) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in sources.texts
        for name in IN_BACKTICKS.findall(text)
        if not sources.has(name)
    ]
    assert wrong == []


def test_pages_name_modules_and_files_that_exist(sources: Sources) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    names = [(page, name) for page in pages for name in IN_BACKTICKS.findall(page.read_text())]
    checked = [(p, name) for p, name in names if DOTTED.match(name) or SOURCE_FILE.fullmatch(name)]
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page, name in checked
        if not sources.has(name.partition("(")[0])
    ]
    assert wrong == []
    assert len(checked) > 50


@pytest.mark.parametrize(
    "name",
    [
        "trioha.ha.mastership",
        "trioha.ha.mastership.Mastership",
        "trioha.config.BrokerConfig",
        "ha.mastership",
        "Mastership",
        "Mastership.follows_term",
        "StoreLocked.args",
        "read_journal(path)",
        "ha/mastership.py",
        "docs/journal.md",
        "phy_offset",
        "slave_ack_offset",
        "haListenPort",
        "tally.count",
        "broker.conf",
    ],
)
def test_what_exists_is_found(sources: Sources, name: str) -> None:
    assert sources.has(name)


@pytest.mark.parametrize(
    "name",
    [
        "trioha.ha.nothing",
        "trioha.ha.mastership.Nothing",
        "trioha.ha.mastership.Mastership.nothing",
        "ha.nothing",
        "Nothing",
        "Mastership.nothing",
        "no_such_function(path)",
        "ha/nothing.py",
        "no_such_word",
        "tally.no_such_word",
    ],
)
def test_what_is_gone_is_noticed(sources: Sources, name: str) -> None:
    assert not sources.has(name)
