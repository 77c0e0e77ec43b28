"""Sections of a Markdown page that a recipe makes, each between two comments."""

from __future__ import annotations


def marks(recipe: str) -> tuple[str, str]:
    """Return the comments around the section that `just RECIPE` makes."""
    return f"<!-- {recipe}: begin. Made by `just {recipe}`. -->", f"<!-- {recipe}: end -->"


def replace_section(page: str, section: str, begin: str, end: str) -> str:
    """Return the page with `section` between the marks, at its end if it has none yet.

    Errors: ValueError when only one mark is there, or if they stand the wrong way round.
    """
    start, stop = page.find(begin), page.find(end)
    block = f"{begin}\n\n{section.strip()}\n\n{end}"
    if start < 0 and stop < 0:
        return f"{page.rstrip() or '# Benchmarks'}\n\n{block}\n"
    if start < 0 or stop < start or page.count(begin) > 1 or page.count(end) > 1:
        raise ValueError("the page needs one begin marker with one end marker below it, or none")
    return page[:start] + block + page[stop + len(end) :]
