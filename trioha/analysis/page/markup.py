"""Text into HTML and SVG: everything that comes from data goes through `text` or `element`.

Topic names, hosts and keys are chosen by strangers. Besides the five characters of HTML, those
that cannot be seen or that turn the reading direction are spelled out, lone surrogates too, so
that what is read on the page is what the bytes say.
"""

from __future__ import annotations

import html
import re

TEXT_MAX = 400
"""Characters of one value; the data sets have the whole of it."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)

Attribute = str | int | float | None


def text(value: object) -> str:
    """A value as harmless text."""
    said = str(value)
    if len(said) > TEXT_MAX:
        said = said[: TEXT_MAX - 1] + "…"
    return _escape(said)


def element(tag: str, *content: str, **attributes: Attribute) -> str:
    """An element around markup. ``class_`` and ``data_x`` give ``class`` and ``data-x``; None is
    left out; numbers are written short."""
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            label = name.rstrip("_").replace("_", "-")
            shown = number(value) if isinstance(value, float) else _escape(str(value))
            parts.append(f'{label}="{shown}"')
    return f"<{' '.join(parts)}>{''.join(content)}</{tag}>"


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _escape(said: str) -> str:
    return html.escape(_UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", said))
