"""docs/schemas has the schema of every document that a command prints; `TRIOHA_REWRITE=1` writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.suite.json_schema import faults
from support.suite.printed import PRINTED, schema_of_command
from support.suite.printing import commands_with_json

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_the_schemas_are_those_of_the_documents() -> None:
    texts = {
        f"{name.replace(' ', '-')}.json": json.dumps(schema_of_command(name), indent=1) + "\n"
        for name in PRINTED
    }
    if os.environ.get("TRIOHA_REWRITE"):
        for path in SCHEMAS.glob("*.json"):
            path.unlink()
        for file, text in texts.items():
            (SCHEMAS / file).write_text(text)
    assert {path.name: path.read_text() for path in SCHEMAS.glob("*.json")} == texts


def test_every_command_that_prints_json_has_one() -> None:
    assert set(commands_with_json().values()) == PRINTED.keys()


def test_a_schema_lists_the_properties_of_its_objects() -> None:
    for name in PRINTED:
        schema = schema_of_command(name)
        for title, kind in schema.get("$defs", {}).items():
            assert kind.get("properties") or kind.get("enum"), (name, title)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"topics": [{"name": 1}]}, "$.topics[0].name is 1, no string"),
        ({}, "$ lacks topics"),
        ({"topics": [], "more": 1}, "$ has more, which the schema does not know"),
    ],
)
def test_a_wrong_document_is_noticed(value: object, says: str) -> None:
    assert says in faults(value, schema_of_command("topic list"))
