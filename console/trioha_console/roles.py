"""What a role looks like, as text of the theme's colours, with its mark for who sees none."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color
from textual.content import Content

from trioha.watch.condition import Condition, Level
from trioha_console.cells import Cell

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
MARKS = {Level.GOOD: "●", Level.UNKNOWN: "○", Level.WARN: "▲", Level.BAD: "✖"}


def content_of(spans: Cell) -> Content:
    return Content.assemble(*((text, STYLES[role]) for text, role in spans))


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
