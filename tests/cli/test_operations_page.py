"""docs/operations.md: every command of its tables runs against a cluster, from top to bottom."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
from support.clusters.operated import Operated

from trioha.cli import cli
from trioha.client.delivery import ConsumeLater
from trioha.client.message import ReceivedMessage
from trioha.jobs.documents import DOCUMENTS

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
ROW = re.compile(r"^\| ([^|]+) \| `(trioha [^`]+)` \|", re.MULTILINE)


async def fail(message: ReceivedMessage) -> None:
    raise ConsumeLater(-1)


def after(operator: Operated, command: str, names: dict[str, str]) -> None:
    """Act as applications do between an operator's commands."""
    if command.startswith("trioha group create billing"):
        names["MSG_ID"] = operator.send("orders", 12, tags="paid", keys="order-4711")[0]
        assert operator.consume("orders", "billing") == 12
    if command.startswith("trioha message trace"):
        with operator.reading("orders", "billing", fail):
            operator.eventually(lambda: bool(operator.json("dlq", "list")["queues"]))


def test_every_command_of_the_page_runs(operator: Operated) -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) > 10
    names: dict[str, str] = {}
    for job, command in rows:
        text = command
        for name, value in names.items():
            text = text.replace(name, value)
        if "message tail" in text:
            with operator.sending("orders", every_s=0.05):
                done = operator.trioha(*shlex.split(text)[1:])
        else:
            done = operator.trioha(*shlex.split(text)[1:])
        assert (done.code, done.err) == (0, ""), (job, text, done)
        after(operator, command, names)


def test_every_command_of_a_noun_is_on_the_page() -> None:
    texts = [" ".join(shlex.split(text)[1:]) + " " for _, text in ROW.findall(PAGE)]
    missing = {name for name in DOCUMENTS if not any(one.startswith(f"{name} ") for one in texts)}
    # They need a Java client (tests/interop/test_nouns.py), or users (test_user.py).
    elsewhere = {"client describe", "client consume-directly"}
    assert missing - elsewhere == {name for name in DOCUMENTS if name.startswith("user ")}
    assert all(f"| trioha {name} " in PAGE for name in missing)
    context = click.Context(cli)
    assert all(cli.get_command(context, name.split()[0]) for name in DOCUMENTS)
