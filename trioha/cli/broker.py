"""`trioha broker list|describe|config|drain|stats|clean`."""

from __future__ import annotations

from typing import Any

import click

from trioha.cli.broker_drain import drain_command
from trioha.cli.documents import (
    change_options,
    columns,
    noun_options,
    run_change,
    run_job,
    show,
)
from trioha.cli.names import broker_argument, only_broker_option, only_cluster_option
from trioha.cli.output import size_in_words, table
from trioha.jobs.brokers import (
    CLEANINGS,
    BrokerDetail,
    BrokerList,
    BrokerSettings,
    BrokerStats,
    CleanResult,
    SettingChange,
    broker_stats,
    carry_out_setting,
    clean,
    describe_broker,
    get_settings,
    list_brokers,
    plan_setting,
)

id_option = click.option(
    "--id", "broker_id", type=click.IntRange(0), metavar="N", help="This node; else the master."
)


@click.group("broker")
def command() -> None:
    """List, describe, configure, drain, clean brokers."""


@command.command("list")
@only_cluster_option
@noun_options
@click.pass_context
def list_(ctx: click.Context, cluster: str, namesrv: str, timeout_s: float, output: str) -> None:
    """List brokers with their role, version, traffic and disk.

    \b
    trioha broker list
    trioha broker list -o wide

    Exit codes: 4 a registered broker does not answer.
    """
    found = run_job(lambda scope: list_brokers(scope, cluster=cluster), namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found, wide))
    if any(one.error for one in found.brokers):
        ctx.exit(4)


@command.command("describe")
@broker_argument
@id_option
@noun_options
def describe(
    broker: str, broker_id: int | None, namesrv: str, timeout_s: float, output: str
) -> None:
    """Show what a broker tells of itself.

    -o wide adds RocketMQ's runtime table.

    \b
    trioha broker describe broker-a
    trioha broker describe broker-a --id 1 -o json
    """
    found = run_job(lambda scope: describe_broker(scope, broker, broker_id), namesrv, timeout_s)
    show(found, output, lambda wide: _detail_in_words(found, wide))


@command.command("stats")
@broker_argument
@id_option
@noun_options
def stats(broker: str, broker_id: int | None, namesrv: str, timeout_s: float, output: str) -> None:
    """Show how much goes through a broker.

    \b
    trioha broker stats broker-a
    """
    found = run_job(lambda scope: broker_stats(scope, broker, broker_id), namesrv, timeout_s)
    show(found, output, lambda wide: _stats_in_words(found))


@command.group("config")
def config_group() -> None:
    """Read the settings of a running broker, or change one."""


@config_group.command("get")
@broker_argument
@click.argument("key", required=False, default="")
@id_option
@noun_options
def config_get(
    broker: str, key: str, broker_id: int | None, namesrv: str, timeout_s: float, output: str
) -> None:
    """Show a broker's settings, or one. Secrets are not shown.

    \b
    trioha broker config get broker-a
    trioha broker config get broker-a longPollingEnable
    """
    found = run_job(lambda scope: get_settings(scope, broker, broker_id, key), namesrv, timeout_s)
    show(found, output, lambda wide: _settings_in_words(found, key))


@config_group.command("set")
@broker_argument
@click.argument("key")
@click.argument("value")
@click.option("--id", "broker_id", type=click.IntRange(0), metavar="N", help="Only on this node.")
@change_options
def config_set(
    ctx: click.Context, broker: str, key: str, value: str, broker_id: int | None, **flags: Any
) -> None:
    """Change a setting of a running broker, on all its nodes.

    \b
    trioha broker config set broker-a slaveReadEnable true
    trioha broker config set broker-a longPollingEnable false --id 1 --dry-run

    A trioha broker keeps the value in its store, where it counts more than its configuration
    file, and notes the change in its journal (setting_changed). The others need its file and a
    restart.

    Exit codes: 1 no such key, 5 the broker does not let this key be set at run time: it says which.
    """
    run_change(
        ctx,
        broker,
        lambda scope: plan_setting(scope, broker, broker_id, key, value),
        carry_out_setting,
        _setting_in_words,
        **flags,
    )


@command.command("clean")
@click.option(
    "--what",
    type=click.Choice(list(CLEANINGS)),
    multiple=True,
    default=list(CLEANINGS),
    show_default=True,
    help="Expired queue files, queues of deleted topics, expired log files.",
)
@only_cluster_option
@only_broker_option
@noun_options
def clean_(
    what: tuple[str, ...],
    cluster: str,
    broker: str,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Let masters delete now what they would delete later. Nothing that is kept is lost.

    \b
    trioha broker clean
    trioha broker clean -b broker-a --what log
    """
    done = run_job(
        lambda scope: clean(scope, list(what), cluster=cluster, broker=broker), namesrv, timeout_s
    )
    show(done, output, lambda wide: _clean_in_words(done))


command.add_command(drain_command)


def _list_in_words(found: BrokerList, wide: bool) -> str:
    if not found.brokers:
        return "No broker is registered."
    rows: list[tuple[Any, ...]] = [
        (
            one.name,
            one.id,
            one.role,
            one.address,
            one.in_per_s,
            one.out_per_s,
            None if one.disk_ratio is None else f"{one.disk_ratio:.0%}",
            one.version or None,
            one.cluster,
        )
        for one in found.brokers
    ]
    head = ("BROKER", "ID", "ROLE", "ADDRESS", "IN/S", "OUT/S", "DISK")
    lines = [table(*columns(wide, head, ("VERSION", "CLUSTER"), rows))]
    lines += [f"! {one.name} {one.id}: {one.error}" for one in found.brokers if one.error]
    return "\n".join(lines)


def _detail_in_words(one: BrokerDetail, wide: bool) -> str:
    lines = [
        f"broker   {one.name} {one.id} ({one.role})",
        f"address  {one.address}",
        f"cluster  {one.cluster}",
        f"version  {one.version}",
    ]
    plain = {key: value for key, value in one.status.items() if not isinstance(value, (dict, list))}
    if plain:
        lines += ["", table(("STATUS", "VALUE"), [(key, str(plain[key])) for key in sorted(plain)])]
    if wide or not plain:
        lines += ["", table(("RUNTIME", "VALUE"), list(one.runtime.items()))]
    return "\n".join(lines)


def _stats_in_words(one: BrokerStats) -> str:
    def rates(values: list[float]) -> list[float | None]:
        return [values[index] if index < len(values) else None for index in range(3)]

    rows = [
        ("in", *rates(one.put_per_s), one.put_today, one.put_yesterday),
        ("out", *rates(one.get_per_s), one.get_today, one.get_yesterday),
    ]
    head = ("MESSAGES", "/S 10 S", "/S 1 MIN", "/S 10 MIN", "TODAY", "YESTERDAY")
    disk = "-" if one.disk_ratio is None else f"{one.disk_ratio:.0%}"
    return (
        f"{one.name} {one.id} at {one.address}: commitlog {size_in_words(one.commitlog_bytes)},"
        f" disk {disk}, dispatch {size_in_words(one.dispatch_behind_bytes)} behind\n"
        f"{table(head, rows)}"
    )


def _settings_in_words(found: BrokerSettings, key: str) -> str:
    if key:
        return found.settings[key]
    return table(("SETTING", "VALUE"), list(found.settings.items()))


def _setting_in_words(plan: SettingChange) -> str:
    word = "is" if plan.done else "would be"
    return "\n".join(
        f"{name}  {plan.key} {word} {plan.value} (was {before})"
        for name, before in plan.before.items()
    )


def _clean_in_words(done: CleanResult) -> str:
    return f"{', '.join(done.brokers)}: {', '.join(done.cleaned)} are cleaned"
