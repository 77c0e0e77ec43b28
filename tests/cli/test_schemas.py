"""docs/schemas has the schema of every document of a noun; `TRIOHA_REWRITE=1` writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.suite.json_schema import faults

from trioha.cli import cli
from trioha.jobs.documents import DOCUMENTS, schema_of

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
NOUNS = sorted({name.split()[0] for name in DOCUMENTS})


def test_the_schemas_are_those_of_the_documents() -> None:
    texts = {
        f"{name.replace(' ', '-')}.json": json.dumps(schema_of(kind), indent=1) + "\n"
        for name, kind in DOCUMENTS.items()
    }
    if os.environ.get("TRIOHA_REWRITE"):
        for path in SCHEMAS.glob("*.json"):
            path.unlink()
        for file, text in texts.items():
            (SCHEMAS / file).write_text(text)
    assert {path.name: path.read_text() for path in SCHEMAS.glob("*.json")} == texts


def leaves(name: str, group: click.Group) -> Iterator[str]:
    """Yield the commands of a noun that print documents, groups within it included."""
    for verb, one in group.commands.items():
        if isinstance(one, click.Group):
            yield from leaves(f"{name} {verb}", one)
        elif any(param.name == "output" for param in one.params):
            yield f"{name} {verb}"


def test_every_command_of_a_noun_has_one() -> None:
    context = click.Context(cli)
    found = set()
    for noun in NOUNS:
        group = cli.get_command(context, noun)
        assert isinstance(group, click.Group)
        found |= set(leaves(noun, group))
    assert found - DOCUMENTS.keys() == set()
    assert DOCUMENTS.keys() - found == set()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"topics": [{"name": 1}]}, "$.topics[0].name is 1, no string"),
        ({}, "$ lacks topics"),
        ({"topics": [], "more": 1}, "$ has more, which the schema does not know"),
    ],
)
def test_a_wrong_document_is_noticed(value: object, says: str) -> None:
    assert says in faults(value, schema_of(DOCUMENTS["topic list"]))
