"""`trioha check`: the alert rules, looked at once, as monitoring systems want it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import attrs
import click
import trio

from trioha.cli.check_line import UNKNOWN, document, line, status_of
from trioha.cli.client_options import (
    chosen_context,
    namesrv_option,
    timeout_option,
)
from trioha.cli.context import rule_rows
from trioha.cli.decorators import all_of
from trioha.cli.failures import in_words
from trioha.cli.output import print_json, table
from trioha.client.watching import look_once
from trioha.contexts import load_contexts, number_of
from trioha.errors import TriohaError
from trioha.watch.alerts import AlertLevel, Verdict, judge
from trioha.watch.collector import Interest
from trioha.watch.rules import RULES, Area, Reading, Rule, Unit
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import size_in_words, what_there_is

F = TypeVar("F", bound=Callable[..., Any])

_MAIN_RULES = {
    Area.HA: "gap_bytes",
    Area.BROKER: "dispatch_behind",
    Area.NAMESRV: "namesrv_silent",
    Area.DISK: "disk_ratio",
    Area.GROUP: "group_lag",
}
"""Rule of each area that a bare -w or -c sets."""


class CheckGroup(click.Group):
    """Group that reports every failure as UNKNOWN, code 3, on stdout: 1 and 2 are WARN and CRIT."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _say_unknown(ctx, error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.UsageError, TriohaError, OSError) as error:
            _say_unknown(ctx, error)


def _say_unknown(ctx: click.Context, error: Exception) -> NoReturn:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
    else:
        said = error.format_message() if isinstance(error, click.UsageError) else in_words(error)
        click.echo(f"TRIOHA UNKNOWN - {' '.join(said.replace('|', '/').split())}")
    ctx.exit(UNKNOWN)


_check_options = all_of(
    namesrv_option,
    timeout_option,
    click.option(
        "-w",
        "--warning",
        "warnings",
        multiple=True,
        metavar="[RULE=]VALUE",
        help="Warn from here on; `never` for never.",
    ),
    click.option(
        "-c",
        "--critical",
        "criticals",
        multiple=True,
        metavar="[RULE=]VALUE",
        help="Critical from here on; `never` for never.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["line", "json"]),
        default="line",
        show_default=True,
        help="For monitoring systems or for programs.",
    ),
)


def _rules_in_words(area: Area) -> str:
    """Return the rules that -w and -c can name, for --help."""
    ours = [rule for rule in RULES.values() if rule.area is area]
    head = ("RULE", "WARN", "CRIT", "WHEN")
    rows = [(name, warn, crit, doc) for name, warn, crit, _, doc in rule_rows(ours)]
    return "\b\n" + table(head, rows)


_broker_option = click.option("--broker", metavar="NAME", help="Only this broker name.")


@click.group("check", cls=CheckGroup)
def command() -> None:
    """Look once and say OK, WARNING, CRITICAL or UNKNOWN, for Nagios, Icinga, cron and scripts.

    One line with performance data, and exit code 0, 1, 2 or 3. The rules and thresholds are those
    of the console's alerts: `trioha context show` lists them, `[alerts]` in its file changes them,
    -w and -c do for one call. A look is a moment: leave it to the caller to look again before it
    wakes somebody (max_check_attempts). UNKNOWN is also for a wrong command line and for a cluster
    none of whose name servers answers.

    \b
    cron:    * * * * * trioha check ha -n 10.0.0.1:9876 > /tmp/ha || mail -s "ha: $?" me < /tmp/ha
    Nagios:  define command {
               command_name  check_trioha_ha
               command_line  /opt/trioha/bin/trioha check ha -n $ARG1$ -w gap_bytes=$ARG2$
             }
    shell:   trioha check ha -c gap_seconds=0 && systemctl restart trioha-broker
    """


@command.command("ha", epilog=_rules_in_words(Area.HA))
@_check_options
@_broker_option
@click.option(
    "--slaves", type=click.IntRange(0), metavar="N", help="Each set is to have N slaves at least."
)
@click.pass_context
def ha(ctx: click.Context, /, broker: str | None, slaves: int | None, **flags: Any) -> None:
    """Replication: masters, links, heartbeats, gaps, slaves in sync.

    A bare -w or -c is about gap_bytes.

    \b
    trioha check ha -n 127.0.0.1:9876
    trioha check ha --context prod --broker broker-a --slaves 1
    trioha check ha -w 16MiB -c 1GiB -w gap_seconds=10 -c heartbeat_age=80%
    """
    _run(ctx, Area.HA, broker=broker, slaves=slaves, **flags)


@command.command("broker", epilog=_rules_in_words(Area.BROKER))
@_check_options
@_broker_option
@click.pass_context
def broker(ctx: click.Context, /, broker: str | None, **flags: Any) -> None:
    """Brokers: all that are registered answer, masters take writes, queues keep up.

    A bare -w or -c is about dispatch_behind, in bytes.

    \b
    trioha check broker -n 127.0.0.1:9876
    trioha check broker --broker broker-a -c 64MiB
    """
    _run(ctx, Area.BROKER, broker=broker, **flags)


@command.command("namesrv", epilog=_rules_in_words(Area.NAMESRV))
@_check_options
@click.pass_context
def namesrv(ctx: click.Context, /, **flags: Any) -> None:
    """Name servers: each answers, and all say the same masters.

    A bare -w or -c is about namesrv_silent: 1 when one does not answer, 2 when none does.

    \b
    trioha check namesrv -n '10.0.0.1:9876;10.0.0.2:9876'
    trioha check namesrv -n '10.0.0.1:9876;10.0.0.2:9876' -c 1
    """
    _run(ctx, Area.NAMESRV, **flags)


@command.command("disk", epilog=_rules_in_words(Area.DISK))
@_check_options
@_broker_option
@click.pass_context
def disk(ctx: click.Context, /, broker: str | None, **flags: Any) -> None:
    """Disks of the brokers' logs.

    \b
    trioha check disk -n 127.0.0.1:9876 -w 70% -c 80%
    """
    _run(ctx, Area.DISK, broker=broker, **flags)


@command.command("group", epilog=_rules_in_words(Area.GROUP))
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@_check_options
@click.pass_context
def group(ctx: click.Context, /, groups: Sequence[str], **flags: Any) -> None:
    """Consumer groups: how far behind, in messages and seconds. All groups if none is named.

    A bare -w or -c is about group_lag, in messages.

    \b
    trioha check group orders -n 127.0.0.1:9876 -w 1000 -c 10000
    trioha check group orders billing -c group_lag_seconds=5m
    """
    _run(ctx, Area.GROUP, groups=groups, **flags)


def _run(
    ctx: click.Context,
    area: Area,
    *,
    namesrv: str,
    timeout_s: float,
    warnings: Sequence[str],
    criticals: Sequence[str],
    output: str,
    broker: str | None = None,
    slaves: int | None = None,
    groups: Sequence[str] = (),
) -> None:
    context = chosen_context(ctx)
    rules: Mapping[str, Rule] = (
        load_contexts(os.environ).rules if context is None else context.rules
    )
    rules = _changed(rules, area, warnings, criticals)
    interest = Interest(topics=area is Area.GROUP)
    raw = trio.run(_look, namesrv, timeout_s, interest)
    if broker is not None:
        raw["members"] = {
            address: member
            for address, member in raw["members"].items()
            if member["name"] == broker
        }
    snapshot = ClusterSnapshot.of(raw)
    verdicts = list(judge(snapshot, rules, [area]))
    unknown: list[str] = []
    if area is Area.GROUP:
        names = set(groups)
        unknown += [
            f"no broker that answers knows group {name}"
            for name in groups
            if name not in snapshot.groups or snapshot.groups[name].lag is None
        ]
        verdicts = [one for one in verdicts if not names or one.reading.subject in names]
    elif slaves is not None:
        verdicts += _missing_slaves(snapshot, slaves)
    unknown += _unknowns(snapshot, area, broker)
    well = _summary(snapshot, area, verdicts)
    if output == "json":
        print_json(document(area.value, verdicts, unknown, well))
    else:
        click.echo(line(area.value, verdicts, unknown, well))
    ctx.exit(status_of(verdicts, unknown))


async def _look(namesrv: str, timeout_s: float, interest: Interest) -> dict[str, Any]:
    return await look_once(namesrv, timeout_s=timeout_s, interest=interest)


def _changed(
    rules: Mapping[str, Rule], area: Area, warnings: Sequence[str], criticals: Sequence[str]
) -> Mapping[str, Rule]:
    """The rules with what -w and -c say. Errors: click.UsageError."""
    changed = dict(rules)
    ours = [rule.name for rule in rules.values() if rule.area is area]
    for flag, texts in (("-w", warnings), ("-c", criticals)):
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals:
                name, value = _MAIN_RULES[area], text
            if name not in ours:
                cure = what_there_is(name, ours)
                raise click.UsageError(f"{flag} {text}: no rule {name} in check {area.value}{cure}")
            rule = changed[name]
            threshold = None if value == "never" else number_of(value, rule.unit)
            if threshold is None and value != "never":
                raise click.UsageError(
                    f"{flag} {text}: {value!r} is no threshold of {rule.unit.value}"
                )
            if flag == "-w":
                changed[name] = attrs.evolve(rule, warn=threshold)
            else:
                changed[name] = attrs.evolve(rule, crit=threshold)
    for name in ours:
        warn, crit = changed[name].warn, changed[name].crit
        # One of them alone given: the other one's default gives way.
        if warn is not None and crit is not None and warn > crit:
            if changed[name].crit == rules[name].crit:
                changed[name] = attrs.evolve(changed[name], crit=None)
            elif changed[name].warn == rules[name].warn:
                changed[name] = attrs.evolve(changed[name], warn=None)
            else:
                raise click.UsageError(f"{name}: -w {warn:g} is above -c {crit:g}")
    return changed


def _missing_slaves(snapshot: ClusterSnapshot, wanted: int) -> list[Verdict]:
    found = []
    for one in snapshot.sets:
        linked = sum(len(master.links) for master in one.masters)
        text = f"{one.name} has {linked} of {wanted} slaves linked"
        rule = Rule(
            name="slaves_missing",
            area=Area.HA,
            unit=Unit.COUNT,
            warn=None,
            crit=1,
            for_s=0,
            doc="slaves that a set lacks of those it is to have",
            read=lambda _: iter(()),
        )
        missing = max(0, wanted - linked)
        level = AlertLevel.CRIT if missing else AlertLevel.OK
        found.append(Verdict(rule, Reading(rule.name, one.name, missing, text), level))
    return found


def _unknowns(snapshot: ClusterSnapshot, area: Area, broker: str | None) -> list[str]:
    """Return the reasons why a good result cannot be trusted."""
    silent = [one for one in snapshot.namesrvs if one.answer.error]
    if area is Area.NAMESRV:
        return []
    if len(silent) == len(snapshot.namesrvs):
        return [f"no name server answers: {'; '.join(one.answer.error for one in silent)}"]
    if not snapshot.replicas:
        return [f"no broker{f' {broker}' if broker else ''} is registered"]
    if area is Area.BROKER:
        return []  # silence is what it is about
    return [
        f"{one.full_name} does not answer: {one.answer.error}"
        for one in snapshot.replicas
        if one.answer.error
    ]


def _summary(snapshot: ClusterSnapshot, area: Area, verdicts: Sequence[Verdict]) -> str:
    """Return the line that is printed when all is well."""
    values = {
        name: max((one.reading.value or 0 for one in verdicts if one.rule.name == name), default=0)
        for name in ("gap_bytes", "disk_ratio", "group_lag")
    }
    slaves = [one for one in snapshot.replicas if not one.is_master]
    if area is Area.HA:
        level = sum(bool(one.in_sync) for one in slaves)
        return (
            f"{len(snapshot.sets)} sets, {level} of {len(slaves)} slaves in sync,"
            f" largest gap {size_in_words(values['gap_bytes'])}"
        )
    if area is Area.BROKER:
        return f"{len(snapshot.replicas)} brokers answer"
    if area is Area.NAMESRV:
        return f"{len(snapshot.namesrvs)} name servers answer"
    if area is Area.DISK:
        return f"fullest disk {values['disk_ratio']:.0%}"
    count = len({one.reading.subject for one in verdicts})
    return f"{count} groups, largest lag {values['group_lag']:.0f} messages"
