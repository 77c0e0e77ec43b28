"""Columns that most tables have: a text, a count, a size, an age, a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trioha.words import age_in_words, size_in_words
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.marks import bar

Row = TypeVar("Row")
T = TypeVar("T")

Number = Callable[[Row], float | int | None]


def text(
    title: str,
    read: Callable[[Row], object],
    width: int,
    *,
    width_max: int = 0,
    importance: int = 0,
    role: str = "",
) -> GridColumn[Row]:
    """Words, at the left; None is a dash."""
    return GridColumn(
        title=title,
        cell=lambda row, _: cell(read(row), role),
        key=read,
        width=width,
        width_max=width_max,
        importance=importance,
    )


def _number(
    title: str,
    read: Callable[[Row], T | None],
    words: Callable[[T], str],
    width: int,
    importance: int,
) -> GridColumn[Row]:
    """A number in words, at the right; None is a dash."""

    def show(row: Row, _: int) -> Cell:
        value = read(row)
        return NOTHING if value is None else cell(words(value))

    return GridColumn(
        title=title, cell=show, key=read, width=width, right=True, importance=importance
    )


def count(
    title: str, read: Callable[[Row], object], width: int = 8, *, importance: int = 0
) -> GridColumn[Row]:
    """A whole number, as it is."""
    return _number(title, read, str, width, importance)


def rate(title: str, read: Number[Row], width: int = 8, *, importance: int = 0) -> GridColumn[Row]:
    """A rate per second."""
    return _number(title, read, _rate_in_words, width, importance)


def size(title: str, read: Number[Row], width: int = 10, *, importance: int = 0) -> GridColumn[Row]:
    """Bytes in words."""
    return _number(title, read, size_in_words, width, importance)


def age(title: str, read: Number[Row], width: int = 8, *, importance: int = 0) -> GridColumn[Row]:
    """Seconds in words."""
    return _number(title, read, age_in_words, width, importance)


def _rate_in_words(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def share(
    title: str, read: Number[Row], *, warn: float, bad: float, width: int = 10, importance: int = 0
) -> GridColumn[Row]:
    """A part of one, as a bar with its percentage."""

    def show(row: Row, room: int) -> tuple[tuple[str, str], ...]:
        value = read(row)
        if value is None or value < 0:
            return NOTHING
        role = "bad" if value >= bad else "warn" if value >= warn else "good"
        length = room - 5
        filled = bar(value, 1.0, length).rstrip()
        return ((filled, role), ("─" * (length - len(filled)), "dim"), (f"{value:>5.0%}", role))

    return GridColumn(
        title=title, cell=show, key=read, width=width, width_max=width + 6, importance=importance
    )
