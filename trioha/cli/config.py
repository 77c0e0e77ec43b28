"""`trioha config show|keys`: what a node would run with, and what there is to set."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import attrs
import click

from trioha.cli.node_options import broker_from, broker_options, namesrv_from
from trioha.cli.output import output_option, print_json, table
from trioha.config import BrokerConfig, NamesrvConfig, without_secret
from trioha.config.sources import keys_of
from trioha.config.values import allowed

_KINDS: dict[str, type[BrokerConfig] | type[NamesrvConfig]] = {
    "broker": BrokerConfig,
    "namesrv": NamesrvConfig,
}


@click.group("config")
def command() -> None:
    """Explain settings and where they come from.

    Order, later wins: defaults, NAMESRV_ADDR, the file, TRIOHA_* variables, flags, --set.
    """


@command.command("show")
@click.argument("node", type=click.Choice(list(_KINDS)), default="broker")
@broker_options
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@output_option
def show(node: str, origin: bool, changed: bool, output: str, **flags: Any) -> None:
    """Print the settings a node would run with, given the same flags as `trioha run`.

    Secrets are shown as ******; --origin tells where they stand.

    \b
    trioha config show --config broker.conf --origin
    trioha config show namesrv --changed
    TRIOHA_LISTEN_PORT=10921 trioha config show --origin -o json
    """
    if node == "namesrv":
        wrong = [key for key in ("name", "broker_id", "role", "ha_listen", "store") if flags[key]]
        if wrong:
            raise click.UsageError(f"--{wrong[0].replace('_', '-')} does not describe a namesrv")
        common = {key: flags[key] for key in ("listen", "file", "settings")}
        loaded: Any = namesrv_from(**common)
    else:
        loaded = broker_from(**flags)
    rows = []
    for key, field in keys_of(_KINDS[node]).items():
        if not changed or loaded.origins[key] != "default":
            value = without_secret(key, _plain(getattr(loaded.config, field.name)))
            rows.append((key, value, loaded.origins[key]))
    if output == "json":
        print_json(
            {
                key: {"value": value, "origin": place} if origin else value
                for key, value, place in rows
            }
        )
    elif origin:
        click.echo(table(("KEY", "VALUE", "ORIGIN"), [(k, _text(v), o) for k, v, o in rows]))
    else:
        click.echo(table(("KEY", "VALUE"), [(k, _text(v)) for k, v, _ in rows]))
    for note in loaded.notes:
        click.echo(f"note: {note}", err=True)


@command.command("keys")
@click.argument("node", type=click.Choice(list(_KINDS)), default="broker")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="For people, for programs, or for docs/configuration.md.",
)
def keys(node: str, output: str) -> None:
    """List every setting with its default and what it means.

    \b
    trioha config keys
    trioha config keys namesrv -o json
    """
    if output == "markdown":
        click.echo(configuration_page(), nl=False)
        return
    described = list(_described(_KINDS[node]))
    if output == "json":
        print_json(described)
        return
    rows = [(row["key"], _text(row["default"]), row["doc"]) for row in described]
    click.echo(table(("KEY", "DEFAULT", "MEANING"), rows))


def configuration_page() -> str:
    """The text of docs/configuration.md, made from the settings; a test holds it current."""
    parts = [_PAGE_HEAD]
    for title, kind in (("Broker", BrokerConfig), ("Name server", NamesrvConfig)):
        parts.append(f"\n## {title}\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n")
        for row in _described(kind):
            star = " *" if row["ours"] else ""
            default = _text(row["default"]).replace("|", "\\|")
            parts.append(
                f"| `{row['key']}`{star} | {f'`{default}`' if default else ''}"
                f" | {row['allowed']} | {row['doc']} |\n"
            )
    return "".join(parts)


def _described(kind: type[BrokerConfig] | type[NamesrvConfig]) -> Iterator[dict[str, Any]]:
    for key, field in keys_of(kind).items():
        yield {
            "key": key,
            "default": _plain(field.default),
            "allowed": allowed(field),
            "doc": field.metadata["doc"],
            "ours": _is_ours(field),
        }


def _is_ours(field: attrs.Attribute[Any]) -> bool:
    return bool(field.metadata["ours"])


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_PAGE_HEAD = """\
# Configuration

*Made by `just docs` from `trioha/config/settings.py`; a test fails when it is not current.*

Settings come from, later wins:

1. defaults: RocketMQ 4.9.8's where the key is RocketMQ's;
2. `NAMESRV_ADDR`, RocketMQ's own variable;
3. `--config FILE`: TOML if its name ends in `.toml`, else RocketMQ's `broker.conf` (the syntax of
   Java's `.properties`);
4. `TRIOHA_*` variables: `TRIOHA_LISTEN_PORT` or `TRIOHA_LISTENPORT` is `listenPort`;
5. flags (`--listen`, `--role`, …), then `--set key=value`.

`trioha config show --origin` prints each value with the file and line, variable or flag that it
comes from.

In TOML, keys stand alone or under `[broker]`, `[store]`, `[ha]`, `[dledger]` (read by a broker) or
`[namesrv]` (read by a name server), so one file can describe a whole host. Text may carry a unit
there, in variables and in `--set`: sizes `B KB MB GB KiB MiB GiB TiB`, times `ms s m h d`.

An unknown key, a wrong type, a value out of range and settings that contradict each other are
errors that name the line and what is allowed. Keys of RocketMQ 4.9.8 that have no meaning here
(thread pools, queues, buffers) are accepted with one note each. Those that would change what a
broker promises (`useTLS=true`, `enableLmq=true`, …) are refused.

A key marked * is ours, the others are RocketMQ's.
"""
