"""Runs one node in this process: journal, log lines, signals, ready line, systemd, exit."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
import trio

from trioha import __version__
from trioha.cli.decorators import all_of
from trioha.cli.failures import telling_leaf
from trioha.cli.garbage import keep_freed_memory, tune_garbage_collector
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.sources import Loaded
from trioha.errors import StoreLocked
from trioha.journal import EventLevel, EventSink
from trioha.journal.file import JournalFile
from trioha.log_lines import LineFormat, LogLines, Tee
from trioha.ready_line import ready_line
from trioha.services.admin.introspection import NodeProcess
from trioha.services.admin.journal_flush import serve_journal
from trioha.services.loop.ready_reads import start_ready_reads
from trioha.services.node.sd_notify import notify_ready, notify_stopping
from trioha.services.node.signals import watch_signals

F = TypeVar("F", bound=Callable[..., Any])

Serve = Callable[..., Awaitable[None]]
"""``serve(config, shutdown, events, *, process, task_status)``: started with the addresses that it
serves, returns when down."""
Facts = Callable[[Any], Mapping[str, object]]
"""Returns the facts of the ready line, from those addresses."""


@attrs.frozen
class ProcessOptions:
    """Options of a node's process: its ready line, its end with stdin, its log."""

    ready_json: bool = False
    until_stdin_ends: bool = False
    line_format: LineFormat = LineFormat.AUTO
    level: EventLevel = EventLevel.INFO


process_options = all_of(
    click.option(
        "--log-format",
        type=click.Choice([line_format.value for line_format in LineFormat]),
        default="auto",
        help="auto: console on a terminal, else logfmt.",
    ),
    click.option(
        "--log-level",
        type=click.Choice([level.name.lower() for level in EventLevel]),
        default="info",
        show_default=True,
    ),
    click.option("--ready-json", is_flag=True, help="Print the ready line as JSON."),
    click.option("--until-stdin-ends", is_flag=True, hidden=True),
)
"""The flags of every `run` command that are no settings."""


def process_options_from(flags: dict[str, Any]) -> ProcessOptions:
    """Take the process flags out of a command's keyword arguments."""
    return ProcessOptions(
        ready_json=flags.pop("ready_json"),
        until_stdin_ends=flags.pop("until_stdin_ends"),
        line_format=LineFormat(flags.pop("log_format")),
        level=EventLevel[flags.pop("log_level").upper()],
    )


def run_node(
    serve: Serve,
    loaded: Loaded[BrokerConfig] | Loaded[NamesrvConfig],
    facts: Facts,
    *,
    node: str,
    journal_directory: Path,
    journal_required: bool,
    options: ProcessOptions,
) -> None:
    """Run a node until it is told to stop.

    A broker must own its journal, for it lies in its store. A name server without one goes on
    without: several may run on one host with RocketMQ's default paths.

    Errors: TriohaError, OSError; groups of them.
    """
    # Messages, offsets and addresses are nobody else's business on this machine.
    os.umask(0o077)
    log = LogLines(_wall_ms, node=node, line_format=options.line_format, level=options.level)
    for note in loaded.notes:
        log.write(f"trioha: note: {note}")
    journal: JournalFile | None = None
    try:
        journal = JournalFile(
            journal_directory,
            node,
            _wall_ms,
            bytes_max=loaded.config.journal_bytes_max,
            complain=lambda line: log.write(f"trioha: {line}"),
        )
    except (StoreLocked, OSError) as error:
        if journal_required:
            raise
        log.write(f"trioha: note: no journal: {error}")
    events: EventSink = log if journal is None else Tee(journal, log)
    _raise_descriptor_limit()
    events.event("node_started", node=node, version=__version__, pid=os.getpid())
    process = NodeProcess(journal, loaded.origins)
    start = partial(serve, loaded.config, events=events, process=process)
    reason = "stopped in order"
    try:
        trio.run(_main, start, facts, journal, options)
    except BaseException as error:
        leaf = telling_leaf(error)
        reason = f"{type(leaf).__name__}: {leaf}"
        raise
    finally:
        events.event("node_stopped", reason=reason)
        if journal is not None:
            journal.close()


async def _main(
    serve: Serve, facts: Facts, journal: JournalFile | None, options: ProcessOptions
) -> None:
    shutdown = trio.Event()
    start_ready_reads()
    async with trio.open_nursery() as background:
        await background.start(watch_signals, shutdown, name="signals")
        if options.until_stdin_ends:
            background.start_soon(_watch_stdin, shutdown, name="stdin")
        if journal is not None:
            background.start_soon(serve_journal, journal, name="journal")
        background.start_soon(_tell_stopping, shutdown, name="sd_notify")
        async with trio.open_nursery() as foreground:
            addresses = await foreground.start(serve, shutdown, name="node")
            _announce(facts(addresses), as_json=options.ready_json)
            tune_garbage_collector()
            keep_freed_memory()
        background.cancel_scope.cancel()


async def _watch_stdin(shutdown: trio.Event) -> None:
    """A supervisor holds the other end: when it is gone, so are we."""
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        while await stream.receive_some():
            pass
    shutdown.set()


async def _tell_stopping(shutdown: trio.Event) -> None:
    await shutdown.wait()
    notify_stopping()


def _announce(facts: Mapping[str, object], *, as_json: bool) -> None:
    try:
        sys.stdout.write(ready_line(facts, as_json=as_json) + "\n")
        sys.stdout.flush()
    except OSError:
        pass  # nobody waits for the line
    notify_ready(f"serving on {facts['listen']}")


def _raise_descriptor_limit() -> None:
    """Connections and mapped files take a descriptor each: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _wall_ms() -> int:
    return int(time.time() * 1000)
