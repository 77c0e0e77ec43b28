"""Names on the command line: checked before anything is tried, completed from the live cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from trioha.errors import CommandError, TriohaError
from trioha.wire.names import check_group, check_topic

if TYPE_CHECKING:
    from trioha.failover.asking import Flow
    from trioha.jobs.telling import JobScope

_PATIENCE_S = 1.0
"""A shell waits for its completions: rather none than late."""


class LiveName(click.ParamType[str]):
    """A name; `names_of` asks the cluster for those that there are."""

    def __init__(
        self,
        kind: str,
        check: Callable[[str], None],
        names_of: Callable[[JobScope], Flow[list[str]]],
    ) -> None:
        self.name = kind
        self._check = check
        self._names_of = names_of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "" and isinstance(param, click.Option):
            return ""  # its default: not given
        try:
            self._check(str(value))
        except CommandError as error:
            self.fail(error.remark.removeprefix("The specified "), param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from trioha.cli.account import use_account_of_context
        from trioha.cli.documents import run_job

        namesrv = ctx.params.get("namesrv") or os.environ.get("NAMESRV_ADDR") or "127.0.0.1:9876"
        try:
            use_account_of_context()
            names = run_job(self._names_of, namesrv, _PATIENCE_S)
        except (TriohaError, click.ClickException, OSError, ExceptionGroup):
            return []  # a shell has no place for an error
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _topic_names(scope: JobScope) -> Flow[list[str]]:
    from trioha.jobs.topics import topic_names

    return topic_names(scope)


def _group_names(scope: JobScope) -> Flow[list[str]]:
    from trioha.jobs.groups import group_names

    return group_names(scope)


def _broker_names(scope: JobScope) -> Flow[list[str]]:
    from trioha.jobs.cluster_map import read_map

    return list((yield from read_map(scope)).brokers)


def _cluster_names(scope: JobScope) -> Flow[list[str]]:
    from trioha.jobs.cluster_map import read_map

    return list((yield from read_map(scope)).clusters)


def _check_broker(name: str) -> None:
    if not name.strip() or any(not sign.isprintable() for sign in name):
        raise CommandError(1, f"broker {name!r:.80} is blank or contains control characters")


TOPIC = LiveName("topic", check_topic, _topic_names)
GROUP = LiveName("group", check_group, _group_names)
BROKER = LiveName("broker", _check_broker, _broker_names)
CLUSTER = LiveName("cluster", _check_broker, _cluster_names)

topic_argument = click.argument("topic", type=TOPIC)
topic_option = click.option("-t", "--topic", type=TOPIC, required=True, help="The topic.")
group_argument = click.argument("group", type=GROUP)
broker_argument = click.argument("broker", type=BROKER)
only_broker_option = click.option(
    "-b", "--broker", type=BROKER, default="", help="Only on this broker."
)
only_cluster_option = click.option("--cluster", type=CLUSTER, default="", help="Only here.")
