"""Numbers, and names that there are not, as people read them."""

from __future__ import annotations

from collections.abc import Iterable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_in_words(count: float | None) -> str:
    """Bytes as ``0 B``, ``1.5 MiB``; ``-`` when not known."""
    if count is None:
        return "-"
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def age_in_words(seconds: float | None) -> str:
    """Seconds as ``0.4 s``, ``3 m``, ``2 h``; ``-`` when not known."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} m" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def count_in_words(count: int, thing: str) -> str:
    """``1 set``, ``2 sets``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def what_there_is(wanted: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The end of a sentence that says there is no `wanted`: the nearest of `known`, or all.

    `otherwise` is said in place of them all.
    """
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(wanted, known, 1)
    if near:
        return f"; did you mean {near[0]}?"
    if otherwise is not None:
        return otherwise
    return f"; there are: {', '.join(known)}" if known else ""
