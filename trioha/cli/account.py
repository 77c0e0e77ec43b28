"""The account that commands sign with: the environment's, else the chosen context's.

A context may name an account without its secret; then a command asks for the secret on the
terminal, once.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from trioha.cli.client_options import chosen_context, is_by_address
from trioha.config.tls_files import tls_of_environment
from trioha.credentials import SECRET_KEY_VARIABLE, find_credentials, set_source, set_tls_source
from trioha.errors import ConfigError

if TYPE_CHECKING:
    from trioha.config.tls_files import ClientTls
    from trioha.contexts import Context
    from trioha.security.signature import Credentials

_ASKED = "trioha.secret_of."


def use_account_of_context() -> None:
    """Let clients sign with the account of the command's context, until the command ends."""
    ctx = click.get_current_context(silent=True)
    set_source(_credentials)
    set_tls_source(lambda: _tls(ctx))
    if ctx is not None:
        ctx.call_on_close(lambda: set_source(None))
        ctx.call_on_close(lambda: set_tls_source(None))


def ask_secret(access_key: str) -> str:
    """Ask for an account's secret on the terminal.

    Errors: ConfigError when there is no terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(
            f"the secret of {access_key} is asked for on a terminal, and this is none; "
            f"set {SECRET_KEY_VARIABLE}"
        )
    secret: str = click.prompt(f"Secret key of {access_key}", hide_input=True, err=True)
    return secret


def _credentials() -> Credentials | None:
    context = _context(click.get_current_context(silent=True))
    if context is None:
        return find_credentials(os.environ, ask=_asked_secret)
    return find_credentials(os.environ, context.access_key, context.secret_key, _asked_secret)


def _tls(ctx: click.Context | None) -> ClientTls | None:
    # A benchmark connects in a thread, which has no current click.Context.
    context = _context(ctx)
    return tls_of_environment(os.environ, None if context is None else context.tls)


def _context(ctx: click.Context | None) -> Context | None:
    context = chosen_context(ctx) if ctx is not None else None
    if context is None and (ctx is None or not is_by_address(ctx)):
        # A command that names a node by its address: the cluster that is current.
        from trioha.contexts import load_contexts

        known = load_contexts(os.environ)
        context = known.contexts.get(known.current) if known.current else None
    return context


def _asked_secret(access_key: str) -> str:
    ctx = click.get_current_context(silent=True)
    key = _ASKED + access_key
    if ctx is None:
        return ask_secret(access_key)
    if key not in ctx.meta:
        ctx.meta[key] = ask_secret(access_key)
    asked: str = ctx.meta[key]
    return asked
