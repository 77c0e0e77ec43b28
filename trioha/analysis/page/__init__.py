"""The answers as one HTML file: nothing is loaded from anywhere, no script, light and dark."""

from __future__ import annotations

from trioha.analysis.page.render import PageMeta, render_page

__all__ = ["PageMeta", "render_page"]
