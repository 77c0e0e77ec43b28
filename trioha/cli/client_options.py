"""The flags of commands that ask a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from trioha.cli.output import output_option
from trioha.config.secret_files import SECRET_FILE_VARIABLE, SECRET_VARIABLE
from trioha.errors import TriohaError

if TYPE_CHECKING:
    from trioha.contexts import Context, Contexts

F = TypeVar("F", bound=Callable[..., Any])


_DEFAULT_NAMESRV = "127.0.0.1:9876"
_CONTEXT = "trioha.context"
_BY_ADDRESS = "trioha.by_address"
_TWO_PLACES = "-n and a context both say where to; give one"


def namesrv_option(function: F) -> F:
    """``-n HOST:PORT;…`` and ``--context NAME`` as the argument `namesrv`.

    In this order: the flags, TRIOHA_CONTEXT, NAMESRV_ADDR, the current context, this machine.
    """
    return _namesrv_option(context_option(function))


def chosen_context(ctx: click.Context) -> Context | None:
    """The context that the command line, TRIOHA_CONTEXT or the file chose.

    None when there is none, and when name servers are given by address.
    """
    found: Context | None = ctx.meta.get(_CONTEXT)
    return found


def is_by_address(ctx: click.Context) -> bool:
    """Return whether the command line names its name servers by address, and so no context."""
    return _BY_ADDRESS in ctx.meta


def _namesrv_option(function: F) -> F:
    return click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT;…",
        is_eager=True,  # before --timeout, whose default the context may change
        callback=_choose_namesrv,
        help=(
            "Name servers, `;` between them.  [env var: NAMESRV_ADDR; default: the current"
            f" context's, else {_DEFAULT_NAMESRV}]"
        ),
    )(function)


def context_option(function: F) -> F:
    """``--context NAME`` alone, for `chosen_context`."""
    # No -c: that is a node's file, as with RocketMQ, and a check's threshold, as with Nagios.
    return click.option(
        "--context",
        "context_name",
        metavar="NAME",
        is_eager=True,
        expose_value=False,
        callback=_note_context,
        shell_complete=complete_contexts,
        help="A cluster by name: see `trioha context`.  [env var: TRIOHA_CONTEXT]",
    )(function)


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of contexts that begin so."""
    try:
        return [name for name in _load().contexts if name.startswith(incomplete)]
    except TriohaError:
        return []  # a shell has no place for an error


def _note_context(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value:
        if _BY_ADDRESS in ctx.meta:
            raise click.UsageError(_TWO_PLACES, ctx)
        ctx.meta[_CONTEXT] = _load().of(value)


def _choose_namesrv(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
    if value:
        if _CONTEXT in ctx.meta:
            raise click.UsageError(_TWO_PLACES, ctx)
        ctx.meta[_BY_ADDRESS] = True
        use_secret(ctx, None)
        return _checked(ctx, value, "-n")
    context = chosen_context(ctx)
    if context is None and (name := os.environ.get("TRIOHA_CONTEXT")):
        context = _load().of(name)
    if context is None and (address := os.environ.get("NAMESRV_ADDR")):
        return _checked(ctx, address, "NAMESRV_ADDR")
    if context is None:
        known = _load()
        context = known.contexts.get(known.current) if known.current else None
    if context is None:
        return _DEFAULT_NAMESRV
    ctx.meta[_CONTEXT] = context
    use_secret(ctx, context)
    return context.namesrv


def _checked(ctx: click.Context, namesrv: str, where: str) -> str:
    from trioha.wire.address import parse_namesrvs

    try:
        parse_namesrvs(namesrv)
    except TriohaError as error:
        raise click.UsageError(f"{where}: {error}", ctx) from None
    return namesrv


def secret_option(function: F) -> F:
    """``--secret-file FILE``: what proves to nodes that this command is an operator's."""
    return click.option(
        "--secret-file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        is_eager=True,  # before the context, whose file counts less
        expose_value=False,
        callback=_note_secret_file,
        help=(
            "The cluster's secret.  [env vars: TRIOHA_CLUSTER_SECRET_FILE, TRIOHA_CLUSTER_SECRET;"
            " default: the context's secret_file]"
        ),
    )(function)


def _note_secret_file(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value and not ctx.resilient_parsing:
        _use_secret_file(ctx, value)


def use_secret(ctx: click.Context, context: Context | None) -> None:
    """Take the secret of a context, unless the environment or an option has named one.

    As with accounts, nodes that are named by their addresses get that of the current context.
    """
    if {SECRET_VARIABLE, SECRET_FILE_VARIABLE} & os.environ.keys():
        return
    if context is None:
        known = _load()
        context = known.contexts.get(known.current or "")
    if context is not None and context.secret_file:
        _use_secret_file(ctx, context.secret_file)


def _use_secret_file(ctx: click.Context, path: str) -> None:
    """Let every connection of this command find the secret there."""
    before = os.environ.get(SECRET_FILE_VARIABLE)
    os.environ[SECRET_FILE_VARIABLE] = path

    def restore() -> None:
        if before is None:
            os.environ.pop(SECRET_FILE_VARIABLE, None)
        else:
            os.environ[SECRET_FILE_VARIABLE] = before

    ctx.call_on_close(restore)


def _load() -> Contexts:
    from trioha.contexts import load_contexts

    return load_contexts(os.environ)


def _choose_timeout(ctx: click.Context, param: click.Parameter, value: float) -> float:
    source = ctx.get_parameter_source(str(param.name))
    context = chosen_context(ctx)
    if source is ParameterSource.DEFAULT and context is not None and context.timeout_s is not None:
        return context.timeout_s
    return value


def timeout_option(function: F) -> F:
    """``--timeout SECONDS`` as the argument `timeout_s`; a context may have another default."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.01, 300),
        default=3.0,
        show_default=True,
        callback=_choose_timeout,
        metavar="SECONDS",
        help="How long to wait for each node.",
    )(function)


def cluster_options(function: F) -> F:
    """``-n``, ``--context``, ``--timeout`` and ``-o`` of a command that asks a cluster."""
    return namesrv_option(timeout_option(output_option(function)))


class Address(click.ParamType[str]):
    """``HOST:PORT`` of a node, checked before anything is tried."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from trioha.wire.address import split_address

        try:
            split_address(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value).strip()


def address_argument(function: F) -> F:
    """A node's ``HOST:PORT`` as the argument `address`."""
    return click.argument("address", type=Address(), metavar="ADDRESS")(function)
