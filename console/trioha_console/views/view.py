"""Base classes of the views in the main window."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, ClassVar, Generic, cast

import attrs
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from trioha.watch.collector import Interest
from trioha.watch.history import History
from trioha.watch.readings import fields_of
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.names import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)
from trioha_console.cells import Row
from trioha_console.frame import Frame
from trioha_console.program import Program
from trioha_console.widgets.grid import Grid


@attrs.define(eq=False)
class SharedByRows:
    """Values that all rows of a table share, so that rows need not be made anew each second."""

    frame: Frame | None = None

    @property
    def wall_ms(self) -> int:
        return 0 if self.frame is None else self.frame.wall_ms

    @property
    def history(self) -> History:
        assert self.frame is not None, "rows are drawn of a frame"
        return self.frame.history


class KeptRows(Generic[Row]):
    """The rows of a table, kept until what they are made of has changed."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[object, ...], list[Row]] = ((), [])

    def of(self, parts: tuple[object, ...], make: Callable[[], list[Row]]) -> list[Row]:
        """Return the same list as long as `parts` are the same objects. Thread: any."""
        kept_of, kept = self._kept
        if len(kept_of) == len(parts) and all(map(is_, kept_of, parts)):
            return kept
        made = make()
        self._kept = parts, made
        return made


class Changes(Widget):
    """Something whose keys change what is under the cursor: only where that is allowed."""

    @property
    def subject(self) -> str:
        """Name of what is under the cursor; "" for nothing."""
        return ""

    @property
    def console(self) -> Program:
        """The program around it."""
        return cast("Program", self.app)

    def action_begin(self, command: str, more: str = "") -> None:
        """Open the prompt with a command and the name; what is missing is typed."""
        line = f"{command} {self.subject} {more}" if more or self.subject else command
        self.console.action_type(f"{line.rstrip()} ")

    def action_change(self, command: str) -> None:
        """Show the plan of a command for what is under the cursor."""
        if self.subject:
            self.console.action_operate(command, self.subject)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A console that only looks, and a recording, offer no change."""
        if action in ("begin", "begin_new", "change"):
            return self.console.armed and self.console.source.live
        return super().check_action(action, parameters)


class View(Changes, Vertical):
    """A table of its own kind, and what belongs to it."""

    NAME: ClassVar[str]
    """Name in `:` commands and of exported files, and the id of the widget."""
    DEFAULT_CSS = "View { height: 1fr; }"
    SCOPED_CSS = False
    """Rules name the width of the screen, which is outside of the view."""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        """Make the rows of a snapshot that is shown next, if that takes long.

        Thread: another than the screen's, so that no key waits for it.
        """

    def show(self, frame: Frame) -> None:
        """Draw this moment. Called while the view is in front, and when it comes there."""
        raise NotImplementedError

    def entered(self) -> None:
        """Called when the view comes to the front."""

    async def left(self) -> None:
        """Called when another view comes to the front."""

    @property
    def grid(self) -> Grid[Any]:
        """The table that `/`, sorting and export mean."""
        return self.query_one(Grid)

    def narrow(self, topic: str) -> None:
        """Look closely at this topic; "" is at none, and takes the filter away."""
        self.grid.set_filter(topic)

    @property
    def interest(self) -> Interest:
        """Questions that the collector asks for this view."""
        return Interest()


class SystemView(View):
    """A table in which RocketMQ's own entries are hidden until they are asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("a", "system", "System's too")]

    def __init__(self) -> None:
        super().__init__()
        self.system = False

    def why_empty(self, frame: Frame, things: str, asked: str) -> str:
        """Return the text of an empty table; `asked` is the question whose answers fill it."""
        answers = fields_of(frame.snapshot.raw.get("answers")).values()
        if not any(key.startswith(asked) for told in answers for key in told):
            return f"No {things} yet; the first answers are on their way."
        return f"No {things}." if self.system else f"No {things} but RocketMQ's own: a shows them."

    def action_system(self) -> None:
        """Show them as well, or no longer."""
        self.system = not self.system
        self.app.call_later(self.app.run_action, "redraw")


class SystemNames:
    """Topics and groups that are RocketMQ's own: hidden until `a` shows them.

    They are those of one snapshot: topics are also named after brokers and clusters.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._names = {one.name for one in snapshot.sets} | {one.cluster for one in snapshot.sets}

    def has_topic(self, name: str) -> bool:
        if is_dlq_topic(name):
            return False  # what lies there is somebody's
        return (
            is_retry_topic(name)
            or is_system_topic(name)
            or name.removesuffix("_REPLY_TOPIC") in self._names
        )

    def has_group(self, name: str) -> bool:
        return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)
