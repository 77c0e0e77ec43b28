"""Sections that recipes make, and what stands around them."""

from __future__ import annotations

import pytest
from bench.page import marks, replace_section

BEGIN, END = marks("bench-peer")


def replaced(page: str, section: str) -> str:
    return replace_section(page, section, BEGIN, END)


def test_a_new_page_gets_a_title_and_the_section() -> None:
    assert replaced("", "text") == f"# Benchmarks\n\n{BEGIN}\n\ntext\n\n{END}\n"


def test_the_section_goes_to_the_end_of_a_page_without_markers() -> None:
    page = replaced("# Benchmarks\n\n## trioha bench\n\nours\n", "text")
    assert page == f"# Benchmarks\n\n## trioha bench\n\nours\n\n{BEGIN}\n\ntext\n\n{END}\n"


def test_what_others_wrote_around_the_section_stays() -> None:
    before = f"# Title\n\nabove\n\n{BEGIN}\n\nold\n\n{END}\n\nbelow\n"
    after = replaced(before, "new")
    assert after == f"# Title\n\nabove\n\n{BEGIN}\n\nnew\n\n{END}\n\nbelow\n"


def test_replacing_twice_changes_nothing() -> None:
    once = replaced("# Title\n", "text")
    assert replaced(once, "text") == once


@pytest.mark.parametrize(
    "page", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{END}"]
)
def test_a_page_with_broken_markers_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="marker"):
        replaced(page, "text")
