"""docs/schemas has the schema of all that commands print; `TRIOHA_REWRITE=1` writes them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.clusters.pair import Cluster
from support.processes.rig import Processes
from support.processes.status import run_trioha
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


def test_commands_that_other_tests_read_as_text_print_what_their_schemas_say(
    processes: Processes, tmp_path: Path
) -> None:
    """`run_trioha` checks each document against its command's schema."""
    cluster = Cluster(processes).start()
    namesrv, config = cluster.namesrv, str(tmp_path / "config.toml")

    def told(*arguments: str) -> None:
        done = run_trioha(*arguments, "-o", "json", TRIOHA_CONFIG=config)
        assert (done.code, done.out != "") == (0, True), (arguments, done)

    added = run_trioha("context", "add", "here", "-n", namesrv, TRIOHA_CONFIG=config)
    assert added.code == 0, added.err
    told("context", "list")
    told("context", "show", "here")
    told("produce", "-t", "orders", "--count", "3", "-n", namesrv)
    told("produce", "-t", "orders", "--count", "1", "--each", "-n", namesrv)
    reading = ("-t", "orders", "-g", "readers", "--from", "first", "--count", "4")
    told("consume", *reading, "-n", namesrv)
    recording = str(tmp_path / "made.trioha")
    rounds = ("--interval", "0.5s", "--for", "1s")
    told("record", "--out", recording, *rounds, "-n", namesrv)
    told("record", "--info", recording)
    told("ha", "status", "-n", namesrv)
    told("timers", "list", "-n", namesrv)
    told("transactions", "list", "-n", namesrv)
    told("version")
    for area in ("broker", "group", "namesrv"):
        told("check", area, "-n", namesrv)
    quick = ("--seconds", "0.2", "--warm-up", "0", "-q", "-n", namesrv)
    told("bench", "produce", *quick)
    told("bench", "e2e", *quick)
    told("bench", "consume", "--count", "100", "-q", "-n", namesrv)
    told("bench", "ha", "--mb", "1", "-q")
    assert cluster.master.stop() == 0
    shutil.rmtree(cluster.master.commitlog)
    told("log", "accept-loss", str(cluster.master.store), "--dry-run")
    told("log", "accept-loss", str(cluster.master.store), "--yes")
