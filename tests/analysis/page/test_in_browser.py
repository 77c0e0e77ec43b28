"""The page in a real browser: it is drawn, in light and dark, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fakes.sample_reports import all_kinds, meta
from support.screens.browser import overflows, render, require_browser

from trioha.analysis.page import render_page

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _browser() -> None:
    require_browser()


def test_it_is_drawn_in_light_and_dark_without_a_word_in_the_console(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render_page(all_kinds(), meta()))
    light = render(page, tmp_path / "light")
    dark = render(page, tmp_path / "dark", dark=True)
    assert light.console == []
    assert dark.console == []
    assert light.size == dark.size == (1200, 3000)
    assert light.picture != dark.picture
    assert len(light.picture) > 100_000, "an empty page is some 15 KB"


@pytest.mark.parametrize("width", [500, 700, 1000])
def test_nothing_is_wider_than_the_window(width: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render_page(all_kinds(), meta()))
    measured = overflows(page, tmp_path / "browser", width=width)
    assert measured == {"width": width, "scrolled": width, "wide": []}


def test_what_is_too_wide_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    wide = '<p style="width:600px">wide</p></body>'
    page.write_text(render_page([], meta()).replace("</body>", wide))
    measured = overflows(page, tmp_path / "browser", width=500)
    assert measured["scrolled"] == 600
    assert len(measured["wide"]) == 1


def test_a_page_that_loads_something_would_be_noticed(tmp_path: Path) -> None:
    """The test above trusts the page's policy to forbid, and the console to tell."""
    page = tmp_path / "page.html"
    body = '<img src="http://example.invalid/x.png"><script>1</script></body>'
    page.write_text(render_page([], meta()).replace("</body>", body))
    console = render(page, tmp_path / "browser").console
    assert len(console) == 2
    assert all("Content Security Policy" in line for line in console)
