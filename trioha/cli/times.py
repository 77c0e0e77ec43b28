"""Moments as people write them on a command line."""

from __future__ import annotations

import time
from typing import Any

import click

from trioha.times import parse_moment as parse_moment


class Moment(click.ParamType[int]):
    """Milliseconds since 1970 from ``2026-11-20T09:31``, ``2h ago``, ``now``, or milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        moment = parse_moment(str(value), int(time.time() * 1000))
        if moment is None:
            self.fail(
                f"{value} is no time; write 2026-11-20T09:31 (UTC), '2h ago', now, or milliseconds"
                " since 1970",
                param,
                ctx,
            )
        return moment
