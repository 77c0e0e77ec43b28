"""Files and environment as lists of entries: key, value as written, and where it was written.

Two kinds of file: TOML (name ends in ``.toml``) and Java's ``.properties``, which is what a
RocketMQ ``broker.conf`` is (java.util.Properties: separators ``=``, ``:`` or blank; comments ``#``
and ``!``; backslash escapes and continuation; blanks behind a value belong to it).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from trioha.errors import ConfigError

TomlLines = Mapping[tuple[str, ...], int]

FILE_BYTES_MAX = 1_048_576
"""A configuration of a mebibyte is another file given by mistake."""


class Syntax(Enum):
    """Syntax in which a value was written."""

    TOML = "toml"
    """Typed; text may carry a unit."""
    PROPERTIES = "properties"
    """Text, numbers bare as Java wants them."""
    TEXT = "text"
    """Text from a flag or the environment; may carry a unit."""


@attrs.frozen
class FileEntry:
    key: str
    value: object
    origin: str
    """``broker.conf:12``, ``TRIOHA_LISTEN_PORT``, ``--listen``."""
    syntax: Syntax = Syntax.TEXT


def read_file(path: Path, tables: Mapping[str, bool]) -> list[FileEntry]:
    """Every entry of a configuration file.

    `tables` names the TOML tables there may be and whether their keys are wanted: a broker skips
    ``[namesrv]``, so that one file can describe both.

    Errors: ConfigError with file and line.
    """
    data = _read(path)
    if path.suffix == ".toml":
        return list(_toml_entries(path, tables, *parse_toml(path, data)))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what java.util.Properties reads
    return [
        FileEntry(key, value, f"{path}:{line}", Syntax.PROPERTIES)
        for line, key, value in parse_properties(text)
    ]


def read_toml(path: Path) -> tuple[dict[str, Any], TomlLines]:
    """Return the tables of a TOML file, and the line of each key by its path from the top.

    Errors: ConfigError with file and line.
    """
    return parse_toml(path, _read(path))


def parse_toml(path: Path, data: bytes) -> tuple[dict[str, Any], TomlLines]:
    """Do the same as `read_toml` for bytes that are there already; `path` is for the errors."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8, as TOML has to be") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found[1]) if found else text.rstrip().count("\n") + 1  # else: "at end"
        reason = re.sub(r" \(at .*\)", "", str(error))
        raise ConfigError(f"{path}:{line}: not TOML: {reason}") from None
    return document, _toml_lines(text)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: over {FILE_BYTES_MAX} bytes, surely not a configuration")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from None


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, key, value) as java.util.Properties.load would, every duplicate included."""
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        yield number, _unescape(line[:end]), _unescape(rest)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where an odd number of backslashes ends one."""
    gathered: str | None = None
    first = 0
    for number, natural in enumerate(re.split("\r\n|\n|\r", text), 1):
        line = natural.lstrip(" \t\f")
        if gathered is None:
            if not line or line[0] in "#!":
                continue
            gathered, first = "", number
        gathered += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            gathered = gathered[:-1]
            continue
        yield first, gathered
        gathered = None
    if gathered:
        yield first, gathered


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, text)


def _toml_entries(
    path: Path, tables: Mapping[str, bool], document: Mapping[str, Any], lines: TomlLines
) -> Iterator[FileEntry]:
    for key, value in document.items():
        origin = f"{path}:{lines.get((key,), 1)}"
        if not isinstance(value, dict) or key == _DOTTED:
            yield from _flat_entries(path, lines, (key,), (key,), value)
        elif key not in tables:
            near = get_close_matches(key, tables, 1)
            cure = f"; did you mean [{near[0]}]?" if near else ""
            raise ConfigError(f"{origin}: unknown table [{key}]{cure}")
        elif tables[key]:
            for name, inner in value.items():
                yield from _flat_entries(path, lines, (key, name), (name,), inner)


def _flat_entries(
    path: Path, lines: TomlLines, where: tuple[str, ...], key: tuple[str, ...], value: object
) -> Iterator[FileEntry]:
    """Yield one entry, or those of a dotted key: TOML reads ``tls.server.mode`` as tables."""
    if isinstance(value, dict) and key[0] == _DOTTED:
        for name, inner in value.items():
            yield from _flat_entries(path, lines, (*where, name), (*key, name), inner)
        return
    known = (lines[where[:size]] for size in range(len(where), 0, -1) if where[:size] in lines)
    yield FileEntry(".".join(key), value, f"{path}:{next(known, 1)}", Syntax.TOML)


_DOTTED = "tls"
"""First part of the only keys that have dots."""
_TABLE = re.compile(r"\s*\[\s*(?P<name>[^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(?P<name>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[\w-]+)*)\s*=")


def _toml_lines(text: str) -> dict[tuple[str, ...], int]:
    """Line of each key: tomllib does not tell. Settings are scalars, so a line each is enough."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(line):
            table = _path(header["name"])
            for length in range(1, len(table) + 1):
                lines.setdefault(table[:length], number)
        elif key := _KEY.match(line):
            path = (*table, *_path(key["name"]))
            for length in range(1, len(path) + 1):
                lines.setdefault(path[:length], number)
    return lines


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
