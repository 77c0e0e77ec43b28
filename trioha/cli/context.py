"""`trioha context list|show|use|add`: clusters by name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from trioha.cli.account import ask_secret
from trioha.cli.client_options import complete_contexts
from trioha.cli.output import output_option, print_json, table
from trioha.contexts import (
    Context,
    Contexts,
    add_context,
    contexts_path,
    load_contexts,
    use_context,
)
from trioha.credentials import SECRET_KEY_VARIABLE
from trioha.errors import ConfigError
from trioha.watch.rules import Rule, Unit
from trioha.words import age_in_words, size_in_words


@click.group("context")
def command() -> None:
    """Name clusters, and choose which one commands speak to.

    Contexts are in ~/.config/trioha/config.toml ($XDG_CONFIG_HOME, TRIOHA_CONFIG), shared with the
    console. A command takes -n first, then --context NAME, TRIOHA_CONTEXT, NAMESRV_ADDR, and the
    current context last.
    """


@command.command("list")
@output_option
def list_(output: str) -> None:
    """List the contexts; the current one has a star.

    \b
    trioha context list
    trioha context list -o json
    """
    known = load_contexts(os.environ)
    if output == "json":
        print_json(
            {
                "file": str(known.path),
                "current": known.current,
                "contexts": {name: _plain(one) for name, one in known.contexts.items()},
            }
        )
    elif not known.contexts:
        click.echo(
            f"No contexts in {known.path}; `trioha context add NAME -n HOST:PORT` makes one."
        )
    else:
        rows = [
            ("*" if name == known.current else "", name, one.namesrv)
            for name, one in known.contexts.items()
        ]
        click.echo(table(("", "NAME", "NAME SERVERS"), rows))


@command.command("show")
@click.argument("name", required=False, shell_complete=complete_contexts)
@output_option
def show(name: str | None, output: str) -> None:
    """Show one context, the current one if none is named, with its alert rules.

    \b
    trioha context show
    trioha context show prod -o json
    """
    known = load_contexts(os.environ)
    one = known.of(name) if name else _current(known)
    if output == "json":
        print_json(
            _plain(one) | {"alerts": {rule.name: _rule(rule) for rule in one.rules.values()}}
        )
        return
    click.echo(f"{one.name}: {one.namesrv}   ({one.origin})\n")
    click.echo(table(("ALERT", "WARN", "CRIT", "FOR", "WHEN"), rule_rows(one.rules.values())))


@command.command("use")
@click.argument("name", shell_complete=complete_contexts)
def use(name: str) -> None:
    """Make a context the current one.

    \b
    trioha context use prod
    """
    path = contexts_path(os.environ)
    use_context(path, name)
    click.echo(f"{name} is the current context now ({path})")


@command.command("add")
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT;…", help="Name servers.")
@click.option(
    "--access-key",
    default="",
    metavar="NAME",
    help="Account that signs what the tools ask; its secret is asked for, or TRIOHA_SECRET_KEY.",
)
@click.option("--tls-ca", default="", metavar="FILE", help="CA of the cluster: connect over TLS.")
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate to show to its nodes.")
@click.option("--tls-key", default="", metavar="FILE", help="Private key of that certificate.")
@click.option(
    "--secret-file",
    default="",
    metavar="FILE",
    help="The cluster's secret, which proves that a command is an operator's.",
)
@click.option("--ask-each-time", is_flag=True, help="Do not keep the account's secret.")
def add(name: str, namesrv: str, access_key: str, ask_each_time: bool, **named: str) -> None:
    """Add a context; the first one becomes the current one.

    \b
    trioha context add prod -n '10.0.0.1:9876;10.0.0.2:9876'
    trioha context add prod -n 10.0.0.1:9876 --access-key operator-anna
    trioha context add prod -n 10.0.0.1:9876 --tls-ca /etc/trioha/ca.pem
    trioha context add prod -n 10.0.0.1:9876 --secret-file cluster.secret
    """
    path = contexts_path(os.environ)
    secret_key = ""
    if access_key and not ask_each_time:
        secret_key = os.environ.get(SECRET_KEY_VARIABLE) or ask_secret(access_key)
    files = {key: str(Path(file).absolute()) for key, file in named.items() if file}
    add_context(path, name, namesrv, access_key, secret_key, files)
    click.echo(f"added {name} to {path}")


def rule_rows(rules: Iterable[Rule]) -> list[tuple[str, str, str, str, str]]:
    """Name, both thresholds, patience and meaning of each, in words."""
    return [
        (
            rule.name,
            _threshold(rule, rule.warn),
            _threshold(rule, rule.crit),
            f"{rule.for_s:g} s",
            rule.doc,
        )
        for rule in rules
    ]


def _current(known: Contexts) -> Context:
    if known.current is None:
        raise ConfigError(
            f"{known.path}: no context is current; `trioha context use NAME` makes one"
        )
    return known.of(known.current)


def _plain(one: Context) -> dict[str, object]:
    return {
        "namesrv": one.namesrv,
        "timeout_s": one.timeout_s,
        "access_key": one.access_key,
        "tls": one.tls is not None,
        "origin": one.origin,
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "area": rule.area.value,
        "unit": rule.unit.value,
        "warn": rule.warn,
        "crit": rule.crit,
        "for_s": rule.for_s,
        "doc": rule.doc,
    }


def _threshold(rule: Rule, value: float | None) -> str:
    if value is None:
        return "never"
    if rule.unit is Unit.FLAG:
        return "yes"
    if rule.unit is Unit.BYTES:
        return size_in_words(value)
    if rule.unit is Unit.SECONDS:
        return age_in_words(value)
    return f"{value:.0%}" if rule.unit is Unit.RATIO else f"{value:,.10g}"
