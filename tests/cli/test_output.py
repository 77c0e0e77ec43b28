"""Tables and sizes for people."""

from __future__ import annotations

import pytest

from trioha.cli.output import age_in_words, size_in_words, table


def test_numbers_are_right_and_words_are_left() -> None:
    text = table(("NAME", "SIZE", "OK"), [("a", 5, True), ("long-name", 12345, None)])
    assert text.splitlines() == [
        "NAME        SIZE  OK",
        "a              5  yes",
        "long-name  12345  -",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")],
)
def test_sizes(count: float | None, text: str) -> None:
    assert size_in_words(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.44, "0.4 s"), (180, "3 m"), (86_400, "24 h")]
)
def test_ages(seconds: float | None, text: str) -> None:
    assert age_in_words(seconds) == text
