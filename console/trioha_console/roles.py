"""What a role looks like, as text of the theme's colours, with its mark for who sees none."""

from __future__ import annotations

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
