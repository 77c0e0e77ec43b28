"""Base class of screens over the main window."""

from __future__ import annotations

from textual.screen import Screen, ScreenResultType

from trioha_console.frame import Frame


class OverScreen(Screen[ScreenResultType]):
    """Screen over the main window, which may show frames and change the cluster."""

    @property
    def in_progress(self) -> bool:
        """The screen changes the cluster at the moment: the console does not leave."""
        return False

    def show(self, frame: Frame) -> None:
        """Draw this moment. Called once it is composed, while it is in front."""
