"""Text of a role in the colours of the theme, with a mark for operators who see no colours."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter

from trioha.shown import shown, shown_lines
from trioha.watch.alerts import AlertLevel
from trioha.watch.condition import Condition, Level
from trioha_console.cells import Cell, safe_cell

STYLES = {
    "": "",
    "dim": "$foreground 55%",
    "strong": "bold",
    "accent": "$accent",
    "title": "bold $primary",
    "good": "$success",
    "warn": "$warning",
    "bad": "bold $error",
    "unknown": "$foreground 55%",
}
LEVEL_ROLES = {
    Level.GOOD: "good",
    Level.UNKNOWN: "unknown",
    Level.WARN: "warn",
    Level.BAD: "bad",
}
ALERT_ROLES = {AlertLevel.OK: "good", AlertLevel.WARN: "warn", AlertLevel.CRIT: "bad"}
ALERT_MARKS = {AlertLevel.OK: "●", AlertLevel.WARN: "▲", AlertLevel.CRIT: "✖"}
MARKS = {Level.GOOD: "●", Level.UNKNOWN: "○", Level.WARN: "▲", Level.BAD: "✖"}


def content_of(spans: Cell) -> Content:
    return Content.assemble(*((text, STYLES[role]) for text, role in safe_cell(spans)))


def lines_of(text: str) -> Content:
    """Text from a peer with its line breaks, none of it taken for markup."""
    return Content(shown_lines(text))


class ControlFilter(LineFilter):
    """Drops control characters from what is about to be drawn: the last of two nets.

    Texts are made safe where their width is measured; this holds for a widget that forgot.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isprintable() else _without_controls(segment)
            for segment in segments
        ]


def _without_controls(segment: Segment) -> Segment:
    return Segment("".join(one for one in segment.text if shown(one) == one), segment.style)


def condition_cell(condition: Condition) -> Cell:
    """Mark and word: either tells it without the colour."""
    return ((f"{MARKS[condition.level]} {condition.word}", LEVEL_ROLES[condition.level]),)


def theme_styles(variables: Mapping[str, str], *, ansi: bool) -> dict[str, Style]:
    """The same roles for who draws characters itself, and the lines of a table."""

    def colour(name: str) -> Color:
        return Color.parse(variables[name])

    def on(name: str, share: float) -> Style:
        if ansi:
            # The terminal's own palette cannot be mixed.
            return Style(reverse=True)
        return Style(bgcolor=colour("background").blend(colour(name), share).rich_color)

    def in_colour(name: str, *, bold: bool = False) -> Style:
        return Style(color=colour(name).rich_color, bold=bold or None)

    if ansi:
        dim = Style(dim=True)
    else:
        dim = Style(color=colour("background").blend(colour("foreground"), 0.55).rich_color)
    return {
        "": Style(),
        "dim": dim,
        "unknown": dim,
        "strong": Style(bold=True),
        "accent": in_colour("accent"),
        "title": in_colour("primary", bold=True),
        "good": in_colour("success"),
        "warn": in_colour("warning"),
        "bad": in_colour("error", bold=True),
        "head": dim + Style(bgcolor=colour("panel").rich_color),
        "cursor": on("primary", 0.3) + Style(bold=True),
        "blurred-cursor": on("primary", 0.15),
    }
