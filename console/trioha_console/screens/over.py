"""A screen over the main window, as the program around it sees it."""

from __future__ import annotations

from textual.screen import Screen, ScreenResultType

from trioha_console.frame import Frame


class OverScreen(Screen[ScreenResultType]):
    """It may show frames, and it may be in the middle of a change."""

    @property
    def in_progress(self) -> bool:
        """It changes the cluster at the moment: the console does not leave."""
        return False

    def show(self, frame: Frame) -> None:
        """Draw this moment. Called once it is composed, while it is in front."""
