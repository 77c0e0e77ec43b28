"""The flags and values of commands that work on the store of a stopped broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from trioha.cli.confirmation import check_confirmable
from trioha.cli.decorators import all_of
from trioha.cli.failures import ExitCode
from trioha.cli.node_options import broker_from
from trioha.cli.output import output_option, print_json
from trioha.config import BrokerConfig

F = TypeVar("F", bound=Callable[..., Any])


store_options = all_of(
    click.argument(
        "path", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="STORE"
    ),
    click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The broker's file, where paths or sizes are not the defaults.",
    ),
    click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help="As the broker has it."
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be done, and do none of it."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    output_option,
)
"""STORE, how it is configured, --dry-run, --yes."""


@attrs.frozen(kw_only=True)
class StoppedStore:
    """The store that a command works on, and how the command talks to its operator.

    Making it raises click.UsageError if a question would be asked that nobody can answer.
    """

    path: Path
    file: Path | None
    settings: Sequence[str]
    dry_run: bool
    yes: bool
    output: str

    def __attrs_post_init__(self) -> None:
        check_confirmable(self.yes, self.dry_run, self.output)

    @property
    def config(self) -> BrokerConfig:
        """The store's own configuration; nothing of it is about a group or a port."""
        return broker_from(store=str(self.path), file=self.file, settings=self.settings).config

    def show(self, lines: Sequence[str]) -> None:
        """Print what was found, for people."""
        if self.output == "table":
            click.echo("\n".join(lines))

    def confirm(self, ctx: click.Context, found: attrs.AttrsInstance, **more: object) -> None:
        """End the command with --dry-run, or unless the operator agrees."""
        if self.dry_run:
            self.report(found, (), result="dry-run", **more)
            ctx.exit(ExitCode.OK)
        if not self.yes and not click.confirm("Go on?"):
            ctx.exit(ExitCode.FAILED)

    def report(
        self,
        found: attrs.AttrsInstance,
        lines: Sequence[str],
        *,
        result: str = "done",
        **more: object,
    ) -> None:
        """Print what became of the store: `lines` for people, or findings and result as JSON."""
        if self.output == "json":
            values = {
                name: str(value) if isinstance(value, Path) else value
                for name, value in attrs.asdict(found).items()
            }
            print_json({**values, "result": result, **more})
        elif lines:
            click.echo("\n".join(lines))
