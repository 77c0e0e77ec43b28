"""Actions of the `:` commands and of their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from textual import events, on

from trioha.errors import TriohaError
from trioha.wire.names import dlq_topic
from trioha.words import what_there_is
from trioha_console.arrange import SortOrder
from trioha_console.commands import Command, completions, find_command
from trioha_console.export import FORMATS, table_text, write_file
from trioha_console.replay_actions import ReplayActions
from trioha_console.replay_source import ReplaySource
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.prompt import Prompt


class CommandActions(ReplayActions):
    """Mixin of the program; `self` is a `ConsoleApp`."""

    # The prompt.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A screen without a prompt has no use for the keys that open it."""
        if action in ("filter", "command", "export"):
            # A modal screen does not change the keys of the screen below it.
            screens = [one for one in reversed(self.screen_stack) if not one.is_modal]
            return bool(screens and screens[0].query(Prompt))
        if action == "replay":
            return isinstance(self._console().source, ReplaySource)
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        grid = self._console().front_grid
        if grid is not None:
            self.screen.query_one(Prompt).open("/", grid.filter_text)

    async def action_clear_filter(self) -> None:
        await self._console().go_back()

    def action_command(self) -> None:
        self._open_prompt("")

    def _open_prompt(self, line: str) -> None:
        self.screen.query_one(Prompt).open(":", line, self._completions)

    def on_paste(self, event: events.Paste) -> None:
        """A line that begins as a command or a filter is one; enter is left to who pasted it."""
        kind, line = event.text[:1], (event.text[1:].splitlines() or [""])[0]
        if kind not in (":", "/") or not self.check_action("command", ()) or self.screen.is_modal:
            return
        if kind == ":":
            self.action_command()
        else:
            self.action_filter()
        self.screen.query_one(Prompt).insert(line)

    def action_export(self) -> None:
        self._open_prompt("export csv")

    @on(Prompt.Filtered)
    def _filtered(self, event: Prompt.Filtered) -> None:
        self._filter(event.text)

    @on(Prompt.Closed)
    def _prompt_closed(self) -> None:
        if any(prompt.is_open for prompt in self.screen.query(Prompt)):
            return  # opened again: its line was refused
        # At once: `focus()` would come some messages later, and a key before it.
        self.screen.set_focus(self._console().front)

    @on(Prompt.Commanded)
    async def _commanded(self, event: Prompt.Commanded) -> None:
        event.prompt.close()
        if not event.text.strip():
            return
        try:
            command, rest = find_command(event.text)
            await self._run(command, rest)
        except TriohaError as error:
            self._open_prompt(event.text)
            event.prompt.refuse(str(error))

    def _completions(self, line: str) -> list[str]:
        return completions(line, self._names_of)

    def _names_of(self, command: str, before: str) -> list[str]:
        """Return the words that may follow a command: names in this cluster, columns, themes."""
        if before:
            return self._second_names(command, before)
        app = self._console()
        snapshot = app.frame.snapshot if app.frame is not None else None
        grid = app.front_grid
        names: dict[str, Callable[[], Iterable[str]]] = {
            "sort": lambda: () if grid is None else (one.title for one in grid.shape.columns),
            "theme": lambda: self.available_themes,
            "context": lambda: () if app.contexts is None else app.contexts.contexts,
            "export": lambda: FORMATS,
        }
        if snapshot is not None:
            names |= dict.fromkeys(
                ("drain", "undrain", "set"), lambda: {one.name for one in snapshot.sets}
            )
            names |= dict.fromkeys(
                ("alter-group", "delete-group", "reset-offsets", "dlq", "resend", "purge"),
                lambda: snapshot.groups,
            )
            names |= dict.fromkeys(("alter-topic", "delete-topic"), lambda: snapshot.topics)
            names |= {
                "goto": lambda: {one.name for one in snapshot.replicas},
                "failover": lambda: {one.name for one in snapshot.sets},
                "brokers": lambda: {one.name for one in snapshot.sets},
                "group": lambda: snapshot.groups,
                "groups": lambda: snapshot.groups,
                "topics": lambda: snapshot.topics,
                "queues": lambda: snapshot.topics,
                "messages": lambda: snapshot.topics,
            }
        return sorted(names.get(command, tuple)())

    def _second_names(self, command: str, first: str) -> list[str]:
        """Return the words that may follow a command and a name: topics, settings, nodes."""
        frame = self._console().frame
        if frame is None:
            return []
        snapshot = frame.snapshot
        names: dict[str, Callable[[], Iterable[str]]] = {
            "reset-offsets": lambda: (
                snapshot.groups[first].topics if first in snapshot.groups else ()
            ),
            "set": _setting_names,
            "alter-topic": lambda: ("queues", "perm", "order"),
            "alter-group": lambda: ("retry", "consume"),
            "sort": lambda: ("up", "down"),
            **dict.fromkeys(
                ("drain", "goto", "failover"),
                lambda: (
                    one.own_id if command != "drain" else str(one.number)
                    for one in snapshot.replicas
                    if one.name == first
                ),
            ),
        }
        return sorted(names.get(command, tuple)())

    def run_or_ask(self, command: Command) -> None:
        """Run a command of the palette, or open the prompt with it if it needs an argument."""
        if command.takes and not command.takes.startswith("["):
            self._open_prompt(f"{command.name} ")
            return
        self.call_later(self._run_alone, command)

    async def _run_alone(self, command: Command) -> None:
        try:
            await self._run(command, "")
        except TriohaError as error:
            self.notify(str(error), severity="warning")

    async def _run(self, command: Command, rest: str) -> None:
        if command.action == "operate":
            self.operate(command.name, rest)
        elif command.action == "dlq":
            await self._browse_dead_letters(rest)
        elif command.action == "view":
            await self.command_view(command.name, rest)
        else:
            getattr(self, f"command_{command.action}")(rest)

    def _filter(self, text: str) -> None:
        app = self._console()
        if app.front_grid is not None:
            app.front_grid.set_filter(text)
            app.show_filter()

    # The commands. Errors of all: TriohaError in a sentence.

    async def command_view(self, name: str, rest: str) -> None:
        app = self._console()
        if name == "messages" and rest:
            await app.ask_messages(rest)
            return
        await app.action_view(name)
        if rest:
            self._filter(rest.removeprefix("/"))

    def command_goto(self, rest: str) -> None:
        app = self._console()
        if app.frame is None:
            raise TriohaError("nothing is known yet")
        name, _, number = rest.partition(" ")
        for one in app.frame.snapshot.replicas:
            ids = "", one.own_id, str(one.number)
            if rest == one.address or (name == one.name and number in ids):
                app.action_node(one.address)
                return
        names = ", ".join(sorted({one.name for one in app.frame.snapshot.replicas}))
        raise TriohaError(f"no node {rest!r}; there are {names or 'none'}")

    def command_group(self, rest: str) -> None:
        app = self._console()
        if not rest:
            raise TriohaError("name a group: `:group NAME`")
        groups = app.frame.snapshot.groups if app.frame is not None else {}
        # Tables of groups are asked for once a screen needs them.
        if groups and rest not in groups:
            raise TriohaError(f"no group {rest}{what_there_is(rest, groups, otherwise='')}")
        app.action_group(rest)

    def command_failover(self, rest: str) -> None:
        app = self._console()
        name, _, number = rest.partition(" ")
        if not app.source.live:
            raise TriohaError("this is a recording: nothing can be changed")
        if app.frame is None or not name:
            raise TriohaError("name a broker: `:failover BROKER [ID]`")
        found = app.frame.snapshot.set_of(name)
        if found is None:
            names = ", ".join(sorted(one.name for one in app.frame.snapshot.sets))
            raise TriohaError(f"no broker {name}; there are {names or 'none'}")
        if found.is_raft:
            app.action_transfer(name, number)
            return
        if number and not number.isdecimal():
            raise TriohaError(f"an id is a number, not {number}")
        app.action_failover(name, int(number) if number else None)

    def operate(self, command: str, rest: str) -> None:
        """Show the plan of a change. Errors: TriohaError in a sentence."""
        app = self._console()
        if not app.source.live:
            raise TriohaError("this is a recording: nothing can be changed")
        from trioha_console.operation_lines import parse_operation

        operation = parse_operation(command, rest, time.time_ns() // 1_000_000)
        app.open_operation(operation, f"{command} {rest}".rstrip())

    async def _browse_dead_letters(self, rest: str) -> None:
        if not rest:
            raise TriohaError("name a group: `:dlq GROUP`")
        await self._console().ask_messages(f"{dlq_topic(rest)} last 50")

    def action_type(self, line: str) -> None:
        """Open the prompt with the beginning of a command: what is missing is typed."""
        self._open_prompt(line)

    def action_operate(self, command: str, rest: str) -> None:
        """A change that a key begins."""
        try:
            self.operate(command, rest)
        except TriohaError as error:
            self.notify(str(error), severity="warning")

    def refuse_line(self, line: str, reason: str) -> None:
        """Put a line that could not be done back into the prompt, with the reason."""
        self._open_prompt(line)
        self.screen.query_one(Prompt).refuse(reason)

    def command_filter(self, rest: str) -> None:
        self._filter(rest)

    def command_sort(self, rest: str) -> None:
        grid = self._console().front_grid
        if grid is None:
            raise TriohaError("there is no table here")
        wanted, _, way = rest.rpartition(" ")
        if way.casefold() not in ("up", "down"):
            wanted, way = rest, "up"
        titles = [column.title for column in grid.shape.columns]
        found = [title for title in titles if title.casefold() == wanted.casefold()]
        found += [title for title in titles if title.casefold().startswith(wanted.casefold())]
        if wanted and not found:
            raise TriohaError(f"no column {wanted}; there are {', '.join(titles)}")
        grid.set_order(SortOrder(found[0] if wanted else "", way.casefold() == "down"))

    def command_export(self, rest: str) -> None:
        app = self._console()
        grid = app.front_grid
        form, _, path = rest.partition(" ")
        if form not in FORMATS:
            raise TriohaError(f"export as {' or '.join(FORMATS)}: `:export csv [FILE]`")
        if grid is None or app.frame is None:
            raise TriohaError("there is no table to export yet")
        text = table_text(grid.rows, grid.shape, form)
        written = write_file(text, path.strip(), app.front_name, form, app.frame.wall_ms)
        self.notify(f"{len(grid.rows)} rows are in {written}", title="exported")

    def action_save_screen(self) -> None:
        try:
            self.command_screenshot("")
        except TriohaError as error:
            self.notify(str(error), severity="warning")

    def command_screenshot(self, rest: str) -> None:
        app = self._console()
        wall_ms = app.frame.wall_ms if app.frame is not None else 0
        svg = self.export_screenshot(title="trioha console")
        written = write_file(svg, rest, app.front_name, "svg", wall_ms)
        self.notify(f"the screen is in {written}", title="screenshot")

    def command_theme(self, rest: str) -> None:
        if not rest:
            self.search_themes()
        elif rest in self.available_themes:
            self.theme = rest
        else:
            names = ", ".join(sorted(self.available_themes))
            raise TriohaError(f"no theme {rest}; there are {names}")

    def command_context(self, rest: str) -> None:
        app = self._console()
        contexts = app.contexts
        if contexts is None or not contexts.contexts:
            raise TriohaError("no clusters are named; `trioha context add NAME -n HOST:PORT` does")
        if not rest:
            raise TriohaError(f"name one: {', '.join(contexts.contexts)}")
        context = contexts.of(rest)
        app.follow(app.open_context(context), context.rules)

    def command_pause(self, _: str) -> None:
        self.action_pause()

    def action_pause(self) -> None:
        app = self._console()
        app.paused = not app.paused
        app.show_frame()

    def command_help(self, _: str) -> None:
        self.action_help()

    def action_help(self) -> None:
        from trioha_console.screens.help import HelpScreen

        front = self._console().front_grid
        # A wizard has several tables, and none of them is what `/` means.
        grids = self.screen.query(Grid) if front is None else [front]
        tables = [(one.shape.name, one.titles) for one in grids]
        self.push_screen(HelpScreen(dict(self.screen.active_bindings), tables))

    def command_quit(self, _: str) -> None:
        self.call_later(self._console().action_quit)


def _setting_names() -> Iterable[str]:
    """Return the names of the settings that can be changed from here."""
    from trioha.broker.admin_config import REMOTE_KEYS

    return REMOTE_KEYS
