"""The command line: one module per command, imported when it is run.

`trioha --version` must stay as quick as click itself, so this module imports click and nothing
else; each command module offers its click command as the attribute ``command``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import click

from trioha.cli.garbage import importing
from trioha.shown import safe_output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Mapping[str, str] = {
    "run": "Start a name server, a broker, or a whole cluster.",
    "demo": "Prove it: a pair or a Raft group, its master killed under load. 10 to 15 s.",
    "dev": "Start a cluster for the tests of another program.",
    "play": "Play a scenario: a cluster that is hurt, in virtual time.",
    "produce": "Send messages.",
    "consume": "Receive messages.",
    "topic": "List, describe, create, alter, delete topics.",
    "group": "List, describe, reset, clone, delete consumer groups.",
    "message": "Find, browse, send, resend, trace messages.",
    "dlq": "List, browse, resend, purge dead letters.",
    "broker": "List, describe, configure, drain, clean brokers.",
    "cluster": "See a whole cluster: what it is made of, its health, its traffic.",
    "namesrv": "List name servers, their settings and their KV configuration.",
    "client": "List producers and consumers; look into one.",
    "check": "Look once, for Nagios, cron and scripts: exit codes 0, 1, 2, 3.",
    "ha": "Look at replication.",
    "console": "Watch a cluster live, fail over, replay what was recorded.",
    "failover": "Make another node of a replica set its master.",
    "raft": "Look at DLEDGER groups, which elect their masters, and change them.",
    "log": "Read, verify and compare commitlogs without a running node.",
    "record": "Keep what a cluster says of itself, to replay it later.",
    "bundle": "Pack what is known of an incident into one file, without secrets.",
    "journal": "Read what a node recorded, or follow it.",
    "user": "List, create, alter, delete users and their policies.",
    "acl": "Show and change the accounts of a cluster's brokers.",
    "transactions": "Look at transactional messages that are still open.",
    "timers": "Look at messages that wait for their time.",
    "node": "Look into one running node: its tasks, its settings.",
    "analyze": "Answer questions about the past from stores and journals.",
    "context": "Name clusters, and choose which one commands speak to.",
    "security": "Make what nodes and operators prove themselves with.",
    "config": "Explain settings and where they come from.",
    "bench": "Measure.",
    "doctor": "Say what this machine lacks, and the cure.",
    "version": "Say exactly what runs here.",
    "completion": "Print what lets a shell complete commands and live names.",
    "help": "Explain a command or a word.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with importing():
            module = importlib.import_module(f"trioha.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from trioha.words import what_there_is

            cure = what_there_is(args[0], COMMANDS, otherwise="")
            raise click.UsageError(f"no such command: {args[0]}{cure}", ctx)
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from trioha import __version__

        click.echo(f"trioha {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """A highly available message broker that stock RocketMQ clients use.

    \b
    See it work:            trioha demo
    Start a name server:    trioha run namesrv --listen 127.0.0.1:9876
    Start a broker:         trioha run broker --listen 127.0.0.1:10911 --namesrv 127.0.0.1:9876 \\
                                --store /var/lib/trioha
    Send and receive:       echo hello | trioha produce -n 127.0.0.1:9876 -t T
                            trioha consume -n 127.0.0.1:9876 -t T -g G --count 1
    Watch replication:      trioha ha status -n 127.0.0.1:9876
    Change masters:         trioha failover broker-a --dry-run -n 127.0.0.1:9876
    They elect themselves:  trioha run cluster 3n-dledger; trioha raft status

    Exit codes: 0 ok, 1 failed, 2 usage, 3 unknown, 4 unreachable, 5 refused, 130 interrupted.
    """
    from trioha.cli.account import use_account_of_context

    use_account_of_context()


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors become one line on stderr."""
    with safe_output():
        try:
            result = cli.main(arguments, prog_name="trioha", standalone_mode=False)
            return result if isinstance(result, int) else 0
        except BaseException as error:
            from trioha.cli.failures import report

            return report(error)


def main() -> NoReturn:
    """The entry point of the `trioha` script."""
    sys.exit(run(sys.argv[1:]))
