"""`trioha topic list|describe|create|alter|delete|stats`."""

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
from trioha.cli.names import only_broker_option, only_cluster_option, topic_argument
from trioha.cli.output import table
from trioha.jobs.permissions import PERMISSIONS
from trioha.jobs.topic_changes import TopicChange, carry_out, plan_alter, plan_create, plan_delete
from trioha.jobs.topics import (
    TopicDetail,
    TopicList,
    TopicStats,
    Traffic,
    describe_topic,
    list_topics,
    topic_stats,
)
from trioha.times import moment_in_words

_QUEUES = click.IntRange(1, 16_384)
_PERM = click.Choice(PERMISSIONS)


@click.group("topic")
def command() -> None:
    """List, describe, create, alter, delete topics."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Retry, DLQ and system topics too.")
@noun_options
def list_(everything: bool, namesrv: str, timeout_s: float, output: str) -> None:
    """List topics.

    \b
    trioha topic list
    trioha topic list --all -o wide
    """
    found = run_job(lambda scope: list_topics(scope, everything=everything), namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found, wide))


@command.command("describe")
@topic_argument
@noun_options
def describe(topic: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show a topic's settings, queues, traffic and groups.

    \b
    trioha topic describe orders
    """
    found = run_job(lambda scope: describe_topic(scope, topic), namesrv, timeout_s)
    show(found, output, lambda wide: _detail_in_words(found, wide))


@command.command("create")
@topic_argument
@click.option("--queues", type=_QUEUES, default=8, show_default=True, help="Queues per broker.")
@click.option("--read-queues", type=_QUEUES, help="Queues to read, where they differ.")
@click.option("--write-queues", type=_QUEUES, help="Queues to write, where they differ.")
@click.option("--perm", type=_PERM, default="rw", show_default=True, help="Read, write, both.")
@click.option("--order", is_flag=True, help="Its messages are ordered: keep queues where they are.")
@only_cluster_option
@only_broker_option
@change_options
def create(
    ctx: click.Context,
    topic: str,
    queues: int,
    read_queues: int | None,
    write_queues: int | None,
    perm: str,
    order: bool,
    cluster: str,
    broker: str,
    **flags: Any,
) -> None:
    """Create a topic.

    On every master, or on those of one cluster or one broker.

    \b
    trioha topic create orders --queues 16
    trioha topic create orders -b broker-a --dry-run

    Exit codes: 1 the topic exists already.
    """
    run_change(
        ctx,
        topic,
        lambda scope: plan_create(
            scope,
            topic,
            read_queues=read_queues or queues,
            write_queues=write_queues or queues,
            perm=perm,
            order=order,
            cluster=cluster,
            broker=broker,
        ),
        carry_out,
        _change_in_words,
        **flags,
    )


@command.command("alter")
@topic_argument
@click.option("--queues", type=_QUEUES, help="Queues per broker, to read and to write.")
@click.option("--read-queues", type=_QUEUES, help="Queues to read.")
@click.option("--write-queues", type=_QUEUES, help="Queues to write.")
@click.option("--perm", type=_PERM, help="Read, write, both or none.")
@click.option("--order/--no-order", default=None, help="Whether its messages are ordered.")
@only_broker_option
@loss_options
def alter(
    ctx: click.Context,
    topic: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    order: bool | None,
    broker: str,
    **flags: Any,
) -> None:
    """Change a topic; what is not given stays as it is.

    \b
    trioha topic alter orders --queues 32
    trioha topic alter orders --perm r           stop sends, let consumers finish
    trioha topic alter orders --write-queues 4   first this, then, once they are read:
    trioha topic alter orders --read-queues 4

    Where queues with messages could not be read any more, the topic's name has to be typed.
    """
    if all(one is None for one in (queues, read_queues, write_queues, perm, order)):
        raise click.UsageError("nothing to change: give --queues, --perm or --order", ctx)
    run_change(
        ctx,
        topic,
        lambda scope: plan_alter(
            scope,
            topic,
            read_queues=read_queues or queues,
            write_queues=write_queues or queues,
            perm=perm,
            order=order,
            broker=broker,
        ),
        carry_out,
        _change_in_words,
        **flags,
    )


@command.command("delete")
@topic_argument
@force_option
@loss_options
def delete(ctx: click.Context, topic: str, **flags: Any) -> None:
    """Delete a topic, its messages and its groups' progress.

    The topic's name has to be typed.

    \b
    trioha topic delete orders --dry-run
    trioha topic delete orders

    Exit codes: 1 no such topic, or a connected group reads it (--force deletes it all the same).
    """
    run_change(
        ctx, topic, lambda scope: plan_delete(scope, topic), carry_out, _change_in_words, **flags
    )


@command.command("stats")
@topic_argument
@noun_options
def stats(topic: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show how many messages went in, and out by each group.

    \b
    trioha topic stats orders
    """
    found = run_job(lambda scope: topic_stats(scope, topic), namesrv, timeout_s)
    show(found, output, lambda wide: _stats_in_words(found))


def _list_in_words(found: TopicList, wide: bool) -> str:
    if not found.topics:
        return "No topics."
    rows: list[tuple[Any, ...]] = [
        (one.name, one.read_queues, one.write_queues, one.perm, one.order, one.kind, *_in(one))
        for one in found.topics
    ]
    head = ("TOPIC", "READ QUEUES", "WRITE QUEUES", "PERM", "ORDERED")
    return table(*columns(wide, head, ("KIND", "BROKERS"), rows))


def _in(one: Any) -> tuple[str]:
    return (", ".join(one.brokers),)


def _detail_in_words(one: TopicDetail, wide: bool) -> str:
    lines = [
        f"topic     {one.name} ({one.kind}{', ordered' if one.order else ''})",
        f"messages  {one.messages}",
        f"sends     {traffic_in_words(one.puts)}",
        f"read by   {', '.join(one.groups) or 'no group'}",
        "",
        table(
            ("BROKER", "ADDRESS", "READ QUEUES", "WRITE QUEUES", "PERM"),
            [
                (on.broker, on.address, on.read_queues, on.write_queues, on.perm)
                for on in one.brokers
            ],
        ),
    ]
    rows = [
        (
            queue.broker,
            queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            queue.messages,
            moment_in_words(queue.last_stored_ms) if queue.last_stored_ms else None,
        )
        for queue in one.queues
    ]
    if rows:
        head = ("BROKER", "QUEUE", "FIRST", "NEXT", "MESSAGES", "LAST STORED (UTC)")
        lines += ["", table(head, rows)]
    return "\n".join(lines)


def _stats_in_words(one: TopicStats) -> str:
    rows = [_traffic_row(f"into {one.name}", one.puts)]
    rows += [_traffic_row(f"out, by {group}", traffic) for group, traffic in one.groups.items()]
    return table(("MESSAGES", "MINUTE", "HOUR", "DAY", "PER SECOND"), rows)


def _traffic_row(name: str, one: Traffic | None) -> tuple[object, ...]:
    if one is None:
        return name, None, None, None, None
    return name, one.minute, one.hour, one.day, one.per_s


def traffic_in_words(one: Traffic | None) -> str:
    """Return ``5.0/s, 300 in the last minute``; ``-`` while no broker has counted."""
    if one is None:
        return "-"
    return f"{one.per_s:g}/s; last minute {one.minute}, hour {one.hour}, day {one.day}"


_DONE = {"create": "created", "alter": "altered", "delete": "deleted"}


def _change_in_words(plan: TopicChange) -> str:
    word = f"is {_DONE[plan.action]}" if plan.done else f"would be {_DONE[plan.action]}"
    lines = [f"topic {plan.topic} {word} on {', '.join(one.broker for one in plan.brokers)}"]
    if plan.action != "delete":
        for one in plan.brokers:
            new = f"{one.read_queues} read, {one.write_queues} write, {one.perm}"
            change = f"{one.before} → {new}" if one.before else new
            lines.append(f"  {one.broker}  {change}")
        if plan.order is not None:
            lines.append(f"  ordered: {'yes' if plan.order else 'no'}")
    return "\n".join(lines)
