"""`trioha node tasks|config`: what a running node says of its own inside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from trioha.cli.client_options import address_argument, timeout_option
from trioha.cli.output import output_option, print_json, table
from trioha.client import ClusterConfig
from trioha.client.node_admin import NodeAdmin, open_node_admin
from trioha.services.admin.task_tree import tree_lines

T = TypeVar("T")


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
    settings = _ask(address, timeout_s, NodeAdmin.settings)
    if changed:
        settings = [row for row in settings if row["origin"] != "default"]
    if output == "json":
        print_json(
            {row["key"]: {"value": row["value"], "origin": row["origin"]} for row in settings}
        )
    else:
        rows = [(row["key"], _text(row["value"]), row["origin"]) for row in settings]
        click.echo(table(("KEY", "VALUE", "ORIGIN"), rows))


def _ask(
    address: str,
    timeout_s: float,
    question: Callable[[NodeAdmin], Awaitable[T]],
) -> T:
    async def ask() -> T:
        patience = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        async with open_node_admin(address, cluster_config=patience) as node:
            return await question(node)

    return trio.run(ask)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
