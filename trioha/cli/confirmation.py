"""Questions before a command changes something, and the refusal if no person could answer."""

from __future__ import annotations

import sys

import click

from trioha.cli.failures import ExitCode


def is_somebody_there() -> bool:
    return sys.stdin.isatty()


def check_confirmable(yes: bool, dry_run: bool, output: str, answer: str = "say yes") -> None:
    """Errors: click.UsageError when a question would be asked that nobody can answer."""
    if output in ("json", "yaml") and not (yes or dry_run):
        raise click.UsageError(f"-o {output} asks no questions: give --yes or --dry-run")
    if not (yes or dry_run or is_somebody_there()):
        raise click.UsageError(f"nobody is here to {answer}: give --yes or --dry-run")


def confirm_by_name(ctx: click.Context, name: str) -> None:
    """Ask for a name to be typed; the command ends with exit code 1 when it is another."""
    typed = click.prompt(f"Type {name} to go on", default="", show_default=False)
    if typed.strip() != name:
        click.echo("That is another name; nothing has been done.", err=True)
        ctx.exit(ExitCode.FAILED)
