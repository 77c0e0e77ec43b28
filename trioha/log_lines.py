"""Events as log lines: for a person at a terminal, for logfmt, or one JSON object a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TextIO

from trioha.journal import EVENTS, EventKind, EventLevel, EventSink


class LineFormat(Enum):
    AUTO = "auto"
    CONSOLE = "console"
    LOGFMT = "logfmt"
    JSON = "json"


_UNKNOWN = EventKind(EventLevel.INFO)


class LogLines:
    """An `EventSink` that prints events of `level` and above, one line each.

    Errors: none; a closed or full stderr loses lines, never the node.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int],
        *,
        node: str = "",
        stream: TextIO | None = None,
        line_format: LineFormat = LineFormat.AUTO,
        level: EventLevel = EventLevel.INFO,
    ) -> None:
        self._wall_ms = wall_ms
        self._node = node
        self._stream = sys.stderr if stream is None else stream
        self._level = level
        if line_format is LineFormat.AUTO:
            line_format = LineFormat.CONSOLE if _is_terminal(self._stream) else LineFormat.LOGFMT
        self._render = _RENDERERS[line_format]

    def event(self, name: str, **fields: object) -> None:
        level = EVENTS.get(name, _UNKNOWN).level
        if level >= self._level:
            self.write(self._render(self._wall_ms(), level, name, self._node, fields))

    def write(self, line: str) -> None:
        """Print a line that is no event."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads; a broker goes on without an audience


class Tee:
    """An `EventSink` that hands every event to several."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def event(self, name: str, **fields: object) -> None:
        for sink in self._sinks:
            sink.event(name, **fields)


def event_line(
    line_format: LineFormat,
    wall_ms: int,
    level: EventLevel,
    name: str,
    fields: Mapping[str, object],
) -> str:
    """One event as one line, without its node's name."""
    return _RENDERERS[line_format](wall_ms, level, name, "", fields)


def rfc3339(wall_ms: int) -> str:
    """Milliseconds since 1970 as ``2026-11-20T09:31:07.512Z``."""
    seconds, millis = divmod(wall_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def logfmt_value(value: object) -> str:
    """A value as logfmt has it: bare if it is one word, else quoted with JSON's escapes.

    Peers choose some of these values: no line break or control character gets through.
    """
    if value is True or value is False:
        return "true" if value else "false"
    if value is None:
        return "null"
    text = value if isinstance(value, str) else str(value)
    if text and text.isascii() and text.isprintable() and not set(text) & {" ", '"', "=", "\\"}:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _pairs(fields: Mapping[str, object]) -> str:
    return "".join(f" {key}={logfmt_value(value)}" for key, value in fields.items())


def _console(
    wall_ms: int, level: EventLevel, name: str, node: str, fields: Mapping[str, object]
) -> str:
    local = datetime.fromtimestamp(wall_ms // 1000)
    return f"{local:%H:%M:%S}.{wall_ms % 1000:03d} {level.name:<7} {name}{_pairs(fields)}"


def _logfmt(
    wall_ms: int, level: EventLevel, name: str, node: str, fields: Mapping[str, object]
) -> str:
    head = {"ts": rfc3339(wall_ms), "level": level.name.lower(), "event": name, "node": node}
    return _pairs({**head, **fields})[1:]


def _json(
    wall_ms: int, level: EventLevel, name: str, node: str, fields: Mapping[str, object]
) -> str:
    head = {"ts": rfc3339(wall_ms), "level": level.name.lower(), "event": name, "node": node}
    return json.dumps({**head, **fields}, default=str)


_RENDERERS: Mapping[
    LineFormat, Callable[[int, EventLevel, str, str, Mapping[str, object]], str]
] = {
    LineFormat.CONSOLE: _console,
    LineFormat.LOGFMT: _logfmt,
    LineFormat.JSON: _json,
}


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False
