"""`trioha group list|describe|history|create|alter|delete|reset-offsets|skip|clone-offsets`."""

from __future__ import annotations

from typing import Any

import click

from trioha.cli.documents import (
    change_options,
    columns,
    force_option,
    loss_options,
    noun_options,
    run_change,
    run_job,
    show,
)
from trioha.cli.group_history import history_command
from trioha.cli.group_offsets import reset_offsets_command, skip_command
from trioha.cli.names import GROUP, TOPIC, group_argument, only_broker_option
from trioha.cli.output import age_in_words, table
from trioha.jobs.group_changes import (
    GroupChange,
    GroupSettings,
    carry_out_group,
    plan_clone,
    plan_delete_group,
    plan_put_group,
)
from trioha.jobs.groups import GroupDetail, GroupList, describe_group, list_groups


@click.group("group")
def command() -> None:
    """List, describe, reset, clone, delete consumer groups."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="The system's own groups too.")
@noun_options
def list_(everything: bool, namesrv: str, timeout_s: float, output: str) -> None:
    """List consumer groups, with their members and their lag.

    \b
    trioha group list
    trioha group list -o wide
    """
    found = run_job(lambda scope: list_groups(scope, everything=everything), namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found, wide))


@command.command("describe")
@group_argument
@noun_options
def describe(group: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show a group's members, subscriptions, lag and owners.

    \b
    trioha group describe billing
    trioha group describe billing -o wide      with the owner of each queue

    Members are asked which queues they hold; one that does not tell is no owner. CAUGHT UP IN is
    the lag by the rates of the last minute, and - where the group does not gain on its topic.
    """
    found = run_job(lambda scope: describe_group(scope, group), namesrv, timeout_s)
    show(found, output, lambda wide: _detail_in_words(found, wide))


_setting_options = (
    click.option("--consume/--no-consume", default=None, help="May it consume at all?"),
    click.option("--broadcast/--no-broadcast", default=None, help="May members broadcast?"),
    click.option("--retry-queues", type=click.IntRange(0, 1024), help="Queues of its retry topic."),
    click.option("--retry-max", type=click.IntRange(-1), help="Redeliveries before the DLQ."),
)


def _settings(function: Any) -> Any:
    for option in reversed(_setting_options):
        function = option(function)
    return function


@command.command("create")
@group_argument
@_settings
@only_broker_option
@change_options
def create(ctx: click.Context, group: str, broker: str, **flags: Any) -> None:
    """Create a group on every master.

    For clusters that do not create groups by themselves.

    \b
    trioha group create billing --retry-max 5
    """
    _put(ctx, group, broker, create=True, flags=flags)


@command.command("alter")
@group_argument
@_settings
@only_broker_option
@change_options
def alter(ctx: click.Context, group: str, broker: str, **flags: Any) -> None:
    """Change a group's settings; what is not given stays as it is.

    \b
    trioha group alter billing --no-consume        stop it, whatever its clients do
    trioha group alter billing --consume --retry-max 3
    """
    names = ("consume", "broadcast", "retry_queues", "retry_max")
    if all(flags[name] is None for name in names):
        raise click.UsageError("nothing to change: give --consume or --retry-max, say", ctx)
    _put(ctx, group, broker, create=False, flags=flags)


def _put(
    ctx: click.Context, group: str, broker: str, *, create: bool, flags: dict[str, Any]
) -> None:
    consume, broadcast = flags.pop("consume"), flags.pop("broadcast")
    retry_queues, retry_max = flags.pop("retry_queues"), flags.pop("retry_max")
    run_change(
        ctx,
        group,
        lambda scope: plan_put_group(
            scope,
            group,
            create=create,
            consume_enable=consume,
            broadcast_enable=broadcast,
            retry_queues=retry_queues,
            retry_max_times=retry_max,
            broker=broker,
        ),
        carry_out_group,
        _change_in_words,
        **flags,
    )


@command.command("delete")
@group_argument
@force_option
@loss_options
def delete(ctx: click.Context, group: str, **flags: Any) -> None:
    """Delete a group, its progress and its dead letters.

    Its redeliveries go, too. The group's name has to be typed.

    \b
    trioha group delete billing --dry-run
    trioha group delete billing

    Exit codes: 1 no such group, or it has connected members (--force deletes it all the same).
    """
    run_change(
        ctx,
        group,
        lambda scope: plan_delete_group(scope, group),
        carry_out_group,
        _change_in_words,
        **flags,
    )


@command.command("clone-offsets")
@click.argument("source", type=GROUP)
@group_argument
@click.option("-t", "--topic", type=TOPIC, default="", help="Only in this topic.")
@loss_options
def clone_offsets(ctx: click.Context, source: str, group: str, topic: str, **flags: Any) -> None:
    """Set GROUP where SOURCE is.

    For a second reader, or a group under a new name.

    \b
    trioha group clone-offsets billing billing-2
    trioha group clone-offsets billing billing-2 -t orders --dry-run

    Exit codes: 1 no such group, SOURCE has read nothing, or GROUP has connected members.
    """
    run_change(
        ctx,
        group,
        lambda scope: plan_clone(scope, source, group, topic),
        carry_out_group,
        _change_in_words,
        **flags,
    )


command.add_command(history_command)
command.add_command(reset_offsets_command)
command.add_command(skip_command)


def _list_in_words(found: GroupList, wide: bool) -> str:
    if not found.groups:
        return "No groups."
    rows: list[tuple[Any, ...]] = [
        (one.name, one.members, one.lag, ", ".join(one.topics) or None, one.model or None)
        for one in found.groups
    ]
    return table(*columns(wide, ("GROUP", "MEMBERS", "LAG", "TOPICS"), ("MODEL",), rows))


def _detail_in_words(one: GroupDetail, wide: bool) -> str:
    model = f"{one.model}, {one.kind}" if one.model else "nobody is connected"
    reads = ", ".join(f"{topic} ({text})" for topic, text in one.subscriptions.items())
    lines = [f"group    {one.name} ({model})", f"reads    {reads or '-'}", f"lag      {one.lag}"]
    lines += [f"! {conflict}" for conflict in one.conflicts]
    if one.members:
        head = ("MEMBER", "ADDRESS", "LANGUAGE", "VERSION")
        rows = [
            (member.client_id, member.address, member.language, member.version)
            for member in one.members
        ]
        lines += ["", table(head, rows)]
    if one.topics:
        topic_head = ("TOPIC", "LAG", "BEHIND", "CONSUMES/S", "ARRIVES/S", "CAUGHT UP IN")
        topic_rows = [
            (
                topic.topic,
                topic.lag,
                age_in_words(topic.lag_s),
                topic.consumes.per_s if topic.consumes else None,
                topic.arrives.per_s if topic.arrives else None,
                "now" if topic.lag == 0 else age_in_words(topic.eta_s),
            )
            for topic in one.topics
        ]
        lines += ["", table(topic_head, topic_rows)]
    if one.queues:
        queue_rows: list[tuple[Any, ...]] = [
            (
                queue.topic,
                queue.broker,
                queue.queue_id,
                queue.offset,
                queue.max_offset,
                queue.lag,
                age_in_words(queue.lag_s),
                queue.owner,
            )
            for queue in one.queues
        ]
        queue_head = ("TOPIC", "BROKER", "QUEUE", "OFFSET", "NEXT", "LAG", "BEHIND")
        lines += ["", table(*columns(wide, queue_head, ("OWNER",), queue_rows))]
    return "\n".join(lines)


_DONE = {"create": "created", "alter": "altered", "delete": "deleted", "clone": "set"}


def _change_in_words(plan: GroupChange) -> str:
    word = f"is {_DONE[plan.action]}" if plan.done else f"would be {_DONE[plan.action]}"
    where = f" where {plan.source} is" if plan.source else ""
    topic = f" in {plan.topic}" if plan.topic else ""
    lines = [f"group {plan.group} {word}{where}{topic} on {', '.join(plan.brokers)}"]
    changes = {
        name: (plan.before_each.get(name), settings) for name, settings in plan.after_each.items()
    }
    is_same = len(set(changes.values())) == 1
    for name, (before, after) in changes.items():
        where = "" if is_same else f"{name}  "
        if before is not None:
            lines.append(f"  {where}before  {_settings_in_words(before)}")
        lines.append(f"  {where}{'now   ' if before else ''}  {_settings_in_words(after)}")
        if is_same:
            break
    return "\n".join(lines)


def _settings_in_words(one: GroupSettings) -> str:
    return (
        f"consume {'yes' if one.consume_enable else 'no'},"
        f" broadcast {'yes' if one.broadcast_enable else 'no'},"
        f" retry queues {one.retry_queues}, redeliveries {one.retry_max_times}"
    )
