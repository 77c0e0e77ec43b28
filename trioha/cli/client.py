"""`trioha client list|describe|consume-directly`: connected clients, and what they do."""

from __future__ import annotations

import click

from trioha.cli.documents import noun_options, run_job, show
from trioha.cli.failures import ExitCode
from trioha.cli.names import GROUP, group_argument, topic_option
from trioha.cli.output import table
from trioha.failover.asking import Flow
from trioha.jobs.clients import (
    ClientList,
    DirectConsumption,
    consume_directly,
    describe_client,
    list_clients,
)
from trioha.jobs.members import RunningInfo
from trioha.jobs.messages import find_messages
from trioha.jobs.telling import JobScope, NotThere


@click.group("client")
def command() -> None:
    """List producers and consumers; look into one."""


@command.command("list")
@click.option("--producers/--no-producers", default=True, help="With or without producers.")
@click.option("--consumers/--no-consumers", default=True, help="With or without consumers.")
@click.option("-g", "--group", type=GROUP, default="", help="Only of this group.")
@noun_options
def list_(
    producers: bool, consumers: bool, group: str, namesrv: str, timeout_s: float, output: str
) -> None:
    """List connected producers and consumers.

    \b
    trioha client list
    trioha client list -g billing -o wide

    Exit codes: 1 a group is named, and none of its clients is connected.
    """
    found = run_job(
        lambda scope: list_clients(scope, producers=producers, consumers=consumers, group=group),
        namesrv,
        timeout_s,
    )
    if group and not found.clients:
        raise NotThere(f"no client of group {group} is connected")
    show(found, output, lambda wide: _list_in_words(found, wide))


@command.command("describe")
@group_argument
@click.argument("client_id", required=False, default="")
@click.option("--stacks", is_flag=True, help="With the stacks of its threads.")
@noun_options
def describe(
    group: str, client_id: str, stacks: bool, namesrv: str, timeout_s: float, output: str
) -> None:
    """Ask a consumer what it is doing.

    It tells its queues, subscriptions and thread stacks.

    \b
    trioha client describe billing
    trioha client describe billing 10.0.0.7@4711 --stacks

    Exit codes: 1 no such client, 5 it does not answer its broker within 10 s, or cannot tell.
    """
    found = run_job(
        lambda scope: describe_client(scope, group, client_id, stacks=stacks), namesrv, timeout_s
    )
    show(found, output, lambda wide: _info_in_words(found, wide, stacks))


@command.command("consume-directly")
@group_argument
@click.argument("msg_id")
@topic_option
@click.option("--client", "client_id", default="", help="By this client; else the only one.")
@noun_options
@click.pass_context
def consume_directly_(
    ctx: click.Context,
    group: str,
    msg_id: str,
    topic: str,
    client_id: str,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Let a connected consumer consume one message now.

    The progress of its group does not change.

    \b
    trioha client consume-directly billing AC1100010001... -t orders

    Exit codes: 1 no such message or client, or the consumer failed it; 5 it does not answer.
    """

    def consume(scope: JobScope) -> Flow[DirectConsumption]:
        found = yield from find_messages(scope, topic=topic, msg_id=msg_id)
        return (yield from consume_directly(scope, found[0], group, client_id))

    done = run_job(consume, namesrv, timeout_s)
    show(done, output, lambda wide: _consumed_in_words(done))
    ctx.exit(ExitCode.OK if done.result == "CR_SUCCESS" else ExitCode.FAILED)


def _list_in_words(found: ClientList, wide: bool) -> str:
    if not found.clients:
        return "No clients."
    rows = [
        (one.kind, one.group, one.client_id, one.address, one.language, one.version)
        for one in found.clients
    ]
    head: tuple[str, ...] = ("KIND", "GROUP", "CLIENT", "ADDRESS", "LANGUAGE", "VERSION")
    if not wide:
        return table(head[:4], [row[:4] for row in rows])
    return table(head, rows)


def _info_in_words(one: RunningInfo, wide: bool, stacks: bool) -> str:
    lines = [f"{one.client_id} of {one.group}"]
    subscriptions = ", ".join(f"{topic} ({text})" for topic, text in one.subscriptions.items())
    lines.append(f"reads  {subscriptions or '-'}")
    if one.queues:
        rows = [
            (held.topic, held.broker, held.queue_id, held.commit_offset, held.cached_messages)
            for held in one.queues
        ]
        head = ("TOPIC", "BROKER", "QUEUE", "OFFSET", "IN HAND")
        lines += ["", table(head, rows)]
    if wide and one.properties:
        lines += ["", table(("PROPERTY", "VALUE"), list(one.properties.items()))]
    if stacks:
        lines += ["", one.stacks or "It tells no stacks."]
    return "\n".join(lines)


def _consumed_in_words(one: DirectConsumption) -> str:
    remark = f": {one.remark}" if one.remark else ""
    return f"{one.client_id} answered {one.result} in {one.spent_ms} ms{remark}"
