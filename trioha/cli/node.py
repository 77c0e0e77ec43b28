"""`trioha node tasks|config`: what a running node says of its own inside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import click
import trio

from trioha.cli.client_options import address_argument, timeout_option
from trioha.cli.output import output_option, print_json, table
from trioha.client import ClusterConfig
from trioha.client.node_admin import NodeAdmin, open_node_admin


@click.group("node")
def command() -> None:
    """Look into one running node."""


@command.command("tasks")
@address_argument
@timeout_option
@output_option
def tasks(address: str, timeout_s: float, output: str) -> None:
    """Print a node's nursery tree with its task names.

    ADDRESS is a broker's or a name server's HOST:PORT. Behind each task stands the line of trioha
    that it has come to.

    \b
    trioha node tasks 127.0.0.1:10911
    trioha node tasks 127.0.0.1:9876 -o json
    """
    told = _ask(address, timeout_s, NodeAdmin.tasks)
    if output == "json":
        print_json(told)
    else:
        for line in tree_lines(told["root"]):
            click.echo(line)


@command.command("config")
@address_argument
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@timeout_option
@output_option
def config(address: str, changed: bool, timeout_s: float, output: str) -> None:
    """Print the settings a running node has, and where each comes from. Secrets are not told.

    \b
    trioha node config 127.0.0.1:10911 --changed
    trioha node config 127.0.0.1:9876 -o json
    """
    settings = _ask(address, timeout_s, NodeAdmin.config)["settings"]
    if changed:
        settings = [row for row in settings if row["origin"] != "default"]
    if output == "json":
        print_json(
            {row["key"]: {"value": row["value"], "origin": row["origin"]} for row in settings}
        )
    else:
        rows = [(row["key"], _text(row["value"]), row["origin"]) for row in settings]
        click.echo(table(("KEY", "VALUE", "ORIGIN"), rows))


def tree_lines(task: Mapping[str, Any], *, indent: str = "") -> Iterator[str]:
    """A task and what is below it, a line each; a nursery of its own is told by its indent."""
    place = f"   {task['waits_in']}" if task["waits_in"] else ""
    yield f"{indent}{task['name']}{place}"
    for number, nursery in enumerate(task["nurseries"]):
        # A task's nurseries lie within each other: the later ones end first.
        inner = indent + "  " * (number + 1)
        for child in nursery["tasks"]:
            yield from tree_lines(child, indent=inner)
        if nursery["left_out"]:
            yield f"{inner}and {nursery['left_out']} more"


def _ask(
    address: str,
    timeout_s: float,
    question: Callable[[NodeAdmin], Awaitable[Mapping[str, Any]]],
) -> Mapping[str, Any]:
    async def ask() -> Mapping[str, Any]:
        patience = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        async with open_node_admin(address, cluster_config=patience) as node:
            return await question(node)

    return trio.run(ask)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
