"""Turns an exception into one line and an exit code. `docs/cli.md` has the table."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from enum import IntEnum

import click

from trioha.errors import (
    CommandError,
    ConfigError,
    LocalProtocolError,
    OutcomeUnknown,
    TriohaError,
    Unreachable,
)


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    """The command failed: what was asked for did not happen."""
    USAGE = 2
    """The command line or the configuration is wrong; nothing was tried."""
    UNKNOWN = 3
    """The change may or may not have happened: an answer did not come in time."""
    UNREACHABLE = 4
    """A node did not answer; nothing happened there."""
    REFUSED = 5
    """A node answered no."""
    INTERRUPTED = 130


LINE_CHARS_MAX = 4_000
"""Limit of an error's line: a peer's remark may be megabytes."""

_CURES = {
    errno.EADDRINUSE: "choose another port (0 picks a free one) or stop the process that holds it",
    errno.EACCES: "choose another path or port, or ask for the permission",
    errno.EPERM: "choose another path or port, or ask for the permission",
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room on that disk",
    errno.EROFS: "choose a path that can be written",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ECONNREFUSED: "is the node running, and is the address right?",
}


def report(error: BaseException) -> int:
    """Say on stderr what went wrong and return the exit code.

    A traceback appears for errors nobody foresaw, and for all with ``TRIOHA_DEBUG=1``.
    """
    leaf = telling_leaf(error)
    if isinstance(leaf, (SystemExit, click.exceptions.Exit)):
        code = leaf.code if isinstance(leaf, SystemExit) else leaf.exit_code
        return code if isinstance(code, int) else int(code is not None)
    if isinstance(leaf, (KeyboardInterrupt, click.Abort)):
        _say("interrupted")
        return ExitCode.INTERRUPTED
    if os.environ.get("TRIOHA_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(leaf, click.exceptions.NoArgsIsHelpError):
        click.echo(leaf.format_message(), err=True)
        return ExitCode.USAGE
    if isinstance(leaf, click.UsageError):
        path = leaf.ctx.command_path if leaf.ctx is not None else "trioha"
        _say(f"{leaf.format_message().rstrip('.')}; try `{path} --help`")
        return ExitCode.USAGE
    if isinstance(leaf, click.ClickException):
        _say(leaf.format_message())
        return ExitCode.FAILED
    if isinstance(leaf, BrokenPipeError):
        # The reader of our output left, as `| head` does. Keep the interpreter from saying so too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    if isinstance(leaf, LocalProtocolError) or not isinstance(leaf, (TriohaError, OSError)):
        if os.environ.get("TRIOHA_DEBUG") != "1":
            traceback.print_exception(error)
        _say(f"a bug of trioha ended this: {type(leaf).__name__}: {leaf}; please report it")
        return ExitCode.FAILED
    _say(in_words(leaf))
    return _exit_code(leaf)


def _exit_code(error: BaseException) -> ExitCode:
    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, OutcomeUnknown):
        return ExitCode.UNKNOWN
    if isinstance(error, Unreachable):
        return ExitCode.UNREACHABLE
    if isinstance(error, CommandError):
        return ExitCode.REFUSED
    return ExitCode.FAILED


def in_words(error: BaseException) -> str:
    """Return an error's message, and the cure if one is known."""
    if not isinstance(error, OSError):
        return str(error)
    what = os.strerror(error.errno) if error.errno else str(error)
    where = f"{error.filename}: " if error.filename else ""
    cure = f"; {_CURES[error.errno]}" if error.errno in _CURES else ""
    return f"{where}{what}{cure}"


def telling_leaf(error: BaseException) -> BaseException:
    """Return the error of a group to report: an interrupt, else a bug, else the first."""
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, KeyboardInterrupt):
            return leaf
    for leaf in leaves:
        if not isinstance(leaf, (TriohaError, OSError)):
            return leaf
    return leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _say(text: str) -> None:
    line = " ".join(text.split())
    if len(line) > LINE_CHARS_MAX:
        line = f"{line[:LINE_CHARS_MAX]}… ({len(line)} characters)"
    click.echo(f"trioha: {line}", err=True)
