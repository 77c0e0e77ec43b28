"""The filter behind ``/``: words that must be there, ``!word`` must not."""

from __future__ import annotations

from collections.abc import Callable


def matcher(text: str) -> Callable[[str], bool]:
    """Does a row's text hold every word of the filter? Case does not matter."""
    wanted, unwanted = [], []
    for word in text.casefold().split():
        if word.startswith("!"):
            if word[1:]:
                unwanted.append(word[1:])
        else:
            wanted.append(word)

    def matches(row: str) -> bool:
        folded = row.casefold()
        return all(one in folded for one in wanted) and not any(one in folded for one in unwanted)

    return matches
