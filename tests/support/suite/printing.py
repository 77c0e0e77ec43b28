"""A check of the JSON that commands print in a test, by the schemas of docs/schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import click
import pytest

from support.suite.json_schema import faults
from support.suite.printed import PRINTED, schema_of_command
from trioha.cli import cli, output
from trioha.compiled import this_build


@cache
def commands_with_json() -> dict[click.Command, str]:
    """Return the commands that print JSON, each with its words."""
    return dict(_walk(cli, click.Context(cli), ()))


def _walk(
    command: click.Command, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[click.Command, str]]:
    choices = [getattr(one.type, "choices", ()) for one in command.params if one.name == "output"]
    # `journal show` prints nothing else, so it has no option.
    if path == ("journal", "show") or any("json" in one for one in choices):
        yield command, " ".join(path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            yield from _walk(one, click.Context(one, parent=context), (*path, name))


@cache
def _schema(name: str) -> dict[str, Any]:
    return schema_of_command(name)


def faults_of(name: str, value: object) -> list[str]:
    """Return what speaks against a value that a command printed.

    Compiled classes have lost the types of their fields: a pure build alone is checked.
    """
    if this_build().compiled:
        return []
    return [f"trioha {name} -o json: {fault}" for fault in faults(value, _schema(name))]


def check_printed(arguments: Sequence[str], out: str) -> None:
    """Check what a command printed in a process of its own, if it was told to print JSON."""
    if ("-o", "json") not in pairwise(arguments) or not out.startswith(("{", "[")):
        return
    words = [" ".join(arguments[:size]) for size in (3, 2, 1)]
    name = next(one for one in words if one in PRINTED)
    if not out.endswith("\n"):
        out = out.rpartition("\n")[0]  # the process was killed within its last line
    decoder, found, position = json.JSONDecoder(), list[str](), 0
    while position < len(out.rstrip()):
        value, position = decoder.raw_decode(out, position)
        position += out[position : position + 1] == "\n"
        found += faults_of(name, value)
    assert found == []


@pytest.fixture(autouse=True)
def printed_json(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Check what commands print in this process; yield the faults, which fail the test."""
    found: list[str] = []

    def dumps(value: object, **how: Any) -> str:
        text = json.dumps(value, **how)
        context = click.get_current_context(silent=True)
        name = context and commands_with_json().get(context.command)
        if name:
            found.extend(faults_of(name, json.loads(text)))
        return text

    monkeypatch.setattr(output, "json", SimpleNamespace(dumps=dumps))
    yield found
    assert not found, "\n".join(sorted(set(found))[:20])
