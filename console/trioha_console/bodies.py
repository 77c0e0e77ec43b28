"""A message's body as text, as JSON, or as bytes."""

from __future__ import annotations

import enum
import json

from trioha.shown import shown_bytes, shown_lines

SHOWN_BYTES_MAX = 65_536
"""Limit of the bytes shown of a body; the rest is counted."""
_HEX_ROW = 16


class Look(enum.Enum):
    TEXT = "text"
    JSON = "JSON"
    HEX = "hex"

    def next(self) -> Look:
        looks = list(Look)
        return looks[(looks.index(self) + 1) % len(looks)]


def body_text(body: bytes, look: Look) -> str:
    """The body, cut at `SHOWN_BYTES_MAX` with a word about the rest."""
    rest = len(body) - SHOWN_BYTES_MAX
    more = f"\n… and {rest} bytes more" if rest > 0 else ""
    if look is Look.JSON:
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return f"This body is not JSON.\n\n{_text(body[:SHOWN_BYTES_MAX])}{more}"
        text = shown_lines(json.dumps(told, indent=2, ensure_ascii=False))
        return text[:SHOWN_BYTES_MAX] + more
    shown = body[:SHOWN_BYTES_MAX]
    return (_hex(shown) if look is Look.HEX else _text(shown)) + more


def _text(body: bytes) -> str:
    return shown_bytes(body)


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), _HEX_ROW):
        row = body[start : start + _HEX_ROW]
        numbers = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        lines.append(f"{start:08x}  {numbers:<48}  |{letters}|")
    return "\n".join(lines)
