"""The flags and values of commands that work on the store of a stopped broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from trioha.cli.decorators import all_of
from trioha.cli.node_options import broker_from
from trioha.cli.output import output_option
from trioha.config import BrokerConfig

F = TypeVar("F", bound=Callable[..., Any])


store_options = all_of(
    click.argument(
        "store", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="STORE"
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


def store_config(store: Path, file: Path | None, settings: Sequence[str]) -> BrokerConfig:
    """The store's own configuration; nothing of it is about a group or a port."""
    return broker_from(store=str(store), file=file, settings=settings).config


def plain_values(found: attrs.AttrsInstance) -> dict[str, object]:
    """Findings of a command in a store, for ``-o json``."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in attrs.asdict(found).items()
    }
