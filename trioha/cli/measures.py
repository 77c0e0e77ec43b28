"""Sizes, durations and moments as people write them on a command line."""

from __future__ import annotations

import time
from typing import Any

import click

from trioha.contexts import number_of
from trioha.times import parse_moment
from trioha.watch.rules import Unit


class Duration(click.ParamType[float]):
    """Seconds from ``1s``, ``500ms``, ``10m``, ``2h``, or a number."""

    name = "duration"

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = number_of(_number_if_any(value), Unit.SECONDS)
        if found is None or found < self._least_s:
            self.fail(
                f"{value} is no duration of {self._least_s:g} s or more; write 500ms, 10s, 5m, 2h",
                param,
                ctx,
            )
        return found


class Size(click.ParamType[int]):
    """Bytes from ``64MiB``, ``1GB``, or a number."""

    name = "size"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = number_of(_number_if_any(value), Unit.BYTES)
        if found is None or found < self._least:
            self.fail(
                f"{value} is no size of {self._least} bytes or more; write 64MiB, 1GB", param, ctx
            )
        return int(found)


def _number_if_any(value: Any) -> Any:
    return value if isinstance(value, int | float) else str(value)


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
