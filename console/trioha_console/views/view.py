"""What every screen of the main window is to the program around it."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical

from trioha.watch.collector import Interest
from trioha.watch.readings import fields_of
from trioha_console.frame import Frame
from trioha_console.widgets.grid import Grid


class View(Vertical):
    """A table of its own kind, and what belongs to it."""

    NAME: ClassVar[str]
    """In `:` commands, in files, as id."""
    TITLE: ClassVar[str]
    DEFAULT_CSS = "View { height: 1fr; }"
    SCOPED_CSS = False
    """Rules name the width of the screen, which is outside of the view."""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    def show(self, frame: Frame) -> None:
        """Draw this moment. Called while the view is in front, and when it comes there."""
        raise NotImplementedError

    @property
    def grid(self) -> Grid[Any]:
        """The table that `/`, sorting and export mean."""
        return self.query_one(Grid)

    @property
    def interest(self) -> Interest:
        """What the collector should ask for it."""
        return Interest()


class SystemView(View):
    """A table in which RocketMQ's own entries are hidden until they are asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("a", "system", "System's too")]

    def __init__(self) -> None:
        super().__init__()
        self.system = False

    def why_empty(self, frame: Frame, things: str, asked: str) -> str:
        """What an empty table says; `asked` is the question whose answers fill it."""
        answers = fields_of(frame.snapshot.raw.get("answers")).values()
        if not any(key.startswith(asked) for told in answers for key in told):
            return f"No {things} yet; the first answers are on their way."
        return f"No {things}." if self.system else f"No {things} but RocketMQ's own: a shows them."

    def action_system(self) -> None:
        """Show them as well, or no longer."""
        self.system = not self.system
        self.app.call_later(self.app.run_action, "redraw")
