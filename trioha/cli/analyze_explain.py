"""`trioha analyze explain`: why one message was late, came twice, or was never seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from trioha.analysis.choice import lacking_packages
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.inputs import Inputs, open_inputs
from trioha.analysis.schema import AnalysisError
from trioha.cli.failures import ExitCode
from trioha.cli.measures import Moment
from trioha.cli.output import output_option, print_json, print_styled
from trioha.cli.progress import TerminalProgress
from trioha.errors import ConfigError
from trioha.shown import shown

_is_message_id = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{34}|[0-9A-Fa-f]{56})").fullmatch
"""An offset id or a unique id has 16 bytes, of IPv6 28; RocketMQ 5's clients write 17."""
_TROUBLES = frozenset(
    {
        "not stored",
        "deleted",
        "stored late",
        "stored twice",
        "not in a replica",
        "lost at a failover",
        "cut",
        "damaged",
        "half message",
        "rolled back",
        "given up",
        "in retry",
        "dead letter",
        "consumed late",
        "skipped",
        "outage",
    }
)
"""Verdicts that are printed in bold."""


@click.command("explain")
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@click.option(
    "--journal",
    "journals",
    multiple=True,
    metavar="DIR",
    help="A journal elsewhere than in a store. Repeatable.",
)
@click.option("--message", "message_id", metavar="ID", help="A message's unique id or offset id.")
@click.option("--key", help="A message's key, or a unique id that is no hexadecimal number.")
@click.option("--group", metavar="GROUP", help="A consumer group; without a message it needs --at.")
@click.option("--at", "at_ms", type=Moment(), metavar="TIME", help="The time to explain it at.")
@output_option
def command(
    stores: Sequence[str],
    journals: Sequence[str],
    message_id: str | None,
    key: str | None,
    group: str | None,
    at_ms: int | None,
    output: str,
) -> int:
    """Explain why a message was late, came twice, or was never seen.

    The answer comes from the logs, queues, offsets and journals in STORE, and from what a deposed
    master cut from its log. Name the stores of all replicas for a full answer. Nothing in them is
    changed. Times are UTC. A store in a directory named explain is written ./explain.

    \b
    trioha analyze explain a/store b/store --message 7F00000100012A9F0000000000000000
    trioha analyze explain a/store b/store --key order-4711 --group billing
    trioha analyze explain a/store --group billing --at 2026-11-20T09:31

    Exit codes: 0 explained; 1 no record, group or time of that name lies in the files; 2 wrong
    arguments, or a path that is no store.
    """
    _check(message_id, key, group, at_ms)
    if lacking := lacking_packages():
        raise ConfigError(
            f"the analysis needs {', '.join(lacking)}; pip install 'trioha[analysis]'"
        )
    try:
        inputs = open_inputs(stores, journals)
    except AnalysisError as error:
        raise ConfigError(str(error)) from error
    answer = _explain(inputs, message_id, key, group, at_ms)
    if output == "json":
        print_json(answer.as_json() | {"notes": inputs.notes})
    else:
        _print(answer)
        for note in inputs.notes:
            click.echo(f"trioha: note: {note}", err=True)
    return ExitCode.OK if answer.is_found else ExitCode.FAILED


def _check(message_id: str | None, key: str | None, group: str | None, at_ms: int | None) -> None:
    """Errors: UsageError unless the options ask one question."""
    if message_id is not None and key is not None:
        raise click.UsageError("--message and --key are two questions; ask one")
    if message_id is None and key is None:
        if group is None or at_ms is None:
            raise click.UsageError(
                "name --message ID, or --key KEY, or --group GROUP with --at TIME"
            )
    elif at_ms is not None:
        raise click.UsageError("--at belongs to --group alone; a message has its own times")
    if message_id is not None and not _is_message_id(message_id):
        raise click.UsageError(
            f"{message_id!r:.80} is no message id: an id has 32, 34 or 56 hexadecimal digits; "
            "--key finds a unique id of another form"
        )
    if key is not None and (not key or any(character.isspace() for character in key)):
        raise click.UsageError("a key is one word: blanks separate the keys of a message")


def _explain(
    inputs: Inputs, message_id: str | None, key: str | None, group: str | None, at_ms: int | None
) -> Explanation:
    from trioha.analysis.explain.case import open_case
    from trioha.analysis.explain.group import explain_group
    from trioha.analysis.explain.message import explain_message

    with open_case(inputs, TerminalProgress()) as case:
        wanted = message_id or key
        if wanted is not None:
            return explain_message(case, wanted, by_id=message_id is not None, group=group)
        assert group is not None, "checked"
        assert at_ms is not None, "checked"
        return explain_group(case, group, at_ms)


def _print(answer: Explanation) -> None:
    for verdict in answer.verdicts:
        print_styled(shown(verdict.text), bold=verdict.code in _TROUBLES)
    if answer.timeline:
        click.echo("\nEvidence (UTC, by the clock of each source):")
    for line in answer.timeline:
        click.echo(f"  {_say_ms(line.wall_ms)}  {shown(line.source)}: {shown(line.text)}")
    if answer.unknown:
        click.echo("\nNot known:")
    for text in answer.unknown:
        click.echo(f"  {shown(text)}")


def _say_ms(wall_ms: int) -> str:
    """A time with its milliseconds; what no calendar has is a number."""
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{wall_ms % 1000:03d}Z"
