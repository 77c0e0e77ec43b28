"""The flags of commands that ask a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def namesrv_option(function: F) -> F:
    """``-n HOST:PORT;…`` as the argument `namesrv`; NAMESRV_ADDR stands in for it."""
    return click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT;…",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        show_envvar=True,
        help="Name servers, `;` between them.",
    )(function)


def timeout_option(function: F) -> F:
    """``--timeout SECONDS`` as the argument `timeout_s`."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.01, 300),
        default=3.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for each node.",
    )(function)


class Address(click.ParamType[str]):
    """``HOST:PORT`` of a node, checked before anything is tried."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from trioha.config_values import split_address

        try:
            split_address(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value).strip()


def address_argument(function: F) -> F:
    """A node's ``HOST:PORT`` as the argument `address`."""
    return click.argument("address", type=Address(), metavar="ADDRESS")(function)
