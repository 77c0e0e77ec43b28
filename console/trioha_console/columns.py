"""Columns that most tables have: a text, a count, a size, an age, a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trioha.words import age_in_words, size_in_words
from trioha_console.cells import NOTHING, Column, cell
from trioha_console.marks import bar

Row = TypeVar("Row")

Number = Callable[[Row], float | int | None]


def text(
    title: str,
    read: Callable[[Row], object],
    width: int,
    *,
    width_max: int = 0,
    importance: int = 0,
    role: str = "",
) -> Column[Row]:
    """Words, at the left; None is a dash."""
    return Column(
        title=title,
        cell=lambda row, _: cell(read(row), role),
        key=read,
        width=width,
        width_max=width_max,
        importance=importance,
    )


def count(
    title: str, read: Callable[[Row], object], width: int = 8, *, importance: int = 0
) -> Column[Row]:
    """A whole number, as it is."""
    return Column(
        title=title,
        cell=lambda row, _: cell(read(row)),
        key=read,
        width=width,
        right=True,
        importance=importance,
    )


def rate(title: str, read: Number[Row], width: int = 8, *, importance: int = 0) -> Column[Row]:
    """How many a second."""

    def words(row: Row) -> str | None:
        value = read(row)
        return None if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"

    return Column(
        title=title,
        cell=lambda row, _: cell(words(row)),
        key=read,
        width=width,
        right=True,
        importance=importance,
    )


def size(title: str, read: Number[Row], width: int = 10, *, importance: int = 0) -> Column[Row]:
    """Bytes in words."""
    return Column(
        title=title,
        cell=lambda row, _: NOTHING if read(row) is None else cell(size_in_words(read(row))),
        key=read,
        width=width,
        right=True,
        importance=importance,
    )


def age(title: str, read: Number[Row], width: int = 8, *, importance: int = 0) -> Column[Row]:
    """Seconds in words."""
    return Column(
        title=title,
        cell=lambda row, _: NOTHING if read(row) is None else cell(age_in_words(read(row))),
        key=read,
        width=width,
        right=True,
        importance=importance,
    )


def share(
    title: str, read: Number[Row], *, warn: float, bad: float, width: int = 10, importance: int = 0
) -> Column[Row]:
    """A part of one, as a bar with its percentage."""

    def show(row: Row, room: int) -> tuple[tuple[str, str], ...]:
        value = read(row)
        if value is None or value < 0:
            return NOTHING
        role = "bad" if value >= bad else "warn" if value >= warn else "good"
        length = room - 5
        filled = bar(value, 1.0, length).rstrip()
        return ((filled, role), ("─" * (length - len(filled)), "dim"), (f"{value:>5.0%}", role))

    return Column(
        title=title, cell=show, key=read, width=width, width_max=width + 6, importance=importance
    )
