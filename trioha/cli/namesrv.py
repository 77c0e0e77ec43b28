"""`trioha namesrv list|config|kv`."""

from __future__ import annotations

from typing import Any

import click

from trioha.cli.documents import (
    change_options,
    loss_options,
    noun_options,
    run_change,
    run_job,
    show,
)
from trioha.cli.failures import ExitCode
from trioha.cli.output import table
from trioha.jobs.namesrvs import (
    KvChange,
    KvEntries,
    NamesrvList,
    NamesrvSettings,
    carry_out_kv,
    kv_entries,
    kv_get,
    list_namesrvs,
    namesrv_settings,
    plan_kv,
)


@click.group("namesrv")
def command() -> None:
    """List name servers, their settings and their KV configuration."""


@command.command("list")
@noun_options
@click.pass_context
def list_(ctx: click.Context, namesrv: str, timeout_s: float, output: str) -> None:
    """List the name servers, and whether they agree.

    \b
    trioha namesrv list -n '10.0.0.1:9876;10.0.0.2:9876'

    Exit codes: 1 they know different brokers, 4 one does not answer.
    """
    found = run_job(list_namesrvs, namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found))
    if any(one.error for one in found.namesrvs):
        ctx.exit(ExitCode.UNREACHABLE)
    ctx.exit(ExitCode.OK if found.agree else ExitCode.FAILED)


@command.command("config")
@noun_options
def config(namesrv: str, timeout_s: float, output: str) -> None:
    """Show the settings of each name server.

    \b
    trioha namesrv config -o yaml
    """
    found = run_job(namesrv_settings, namesrv, timeout_s)
    show(found, output, lambda wide: _settings_in_words(found))


@command.group("kv")
def kv() -> None:
    """Read and change entries kept for clients and tools."""


@kv.command("list")
@click.argument("namespace")
@noun_options
def kv_list(namespace: str, namesrv: str, timeout_s: float, output: str) -> None:
    """List a namespace's entries.

    \b
    trioha namesrv kv list ORDER_TOPIC_CONFIG
    """
    found = run_job(lambda scope: kv_entries(scope, namespace), namesrv, timeout_s)
    show(found, output, lambda wide: _entries_in_words(found))


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@noun_options
def kv_get_(namespace: str, key: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show one entry.

    \b
    trioha namesrv kv get ORDER_TOPIC_CONFIG orders

    Exit codes: 1 there is none.
    """
    found = run_job(lambda scope: kv_get(scope, namespace, key), namesrv, timeout_s)
    show(found, output, lambda wide: found.entries[key])


@kv.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@change_options
def kv_put(ctx: click.Context, namespace: str, key: str, value: str, **flags: Any) -> None:
    """Set an entry at every name server.

    \b
    trioha namesrv kv put shop region eu-1
    """
    run_change(
        ctx,
        key,
        lambda scope: plan_kv(scope, namespace, key, value),
        carry_out_kv,
        _change_in_words,
        **flags,
    )


@kv.command("delete")
@click.argument("namespace")
@click.argument("key")
@loss_options
def kv_delete(ctx: click.Context, namespace: str, key: str, **flags: Any) -> None:
    """Delete an entry at every name server; asks for its key.

    \b
    trioha namesrv kv delete shop region
    """
    run_change(
        ctx,
        key,
        lambda scope: plan_kv(scope, namespace, key, None),
        carry_out_kv,
        _change_in_words,
        **flags,
    )


def _list_in_words(found: NamesrvList) -> str:
    rows = [(one.address, one.brokers, one.nodes, one.error or "answers") for one in found.namesrvs]
    lines = [table(("NAME SERVER", "SETS", "BROKERS", "STATE"), rows)]
    if not found.agree:
        lines.append("! they know different brokers: each broker must name all of them")
    return "\n".join(lines)


def _settings_in_words(found: NamesrvSettings) -> str:
    return "\n\n".join(
        f"{address}\n{table(('SETTING', 'VALUE'), list(settings.items()))}"
        for address, settings in found.settings.items()
    )


def _entries_in_words(found: KvEntries) -> str:
    if not found.entries:
        return f"No entries in {found.namespace}."
    return table(("KEY", "VALUE"), list(found.entries.items()))


def _change_in_words(plan: KvChange) -> str:
    if plan.value is None:
        return f"{plan.namespace} {plan.key} {'is' if plan.done else 'would be'} deleted"
    was = f" (was {plan.before})" if plan.before is not None else ""
    word = "is" if plan.done else "would be"
    return f"{plan.namespace} {plan.key} {word} {plan.value}{was}"
