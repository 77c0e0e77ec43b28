"""Tables of the node screen: tasks as a tree, events, settings, facts about the node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import attrs

from trioha.journal.file import Event
from trioha.times import moment_in_words
from trioha.watch.replica import Replica
from trioha.words import age_in_words, count_in_words, size_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn, cell
from trioha_console.views.raft_facts import own_facts

_BAD_WORDS = ("lost", "refused", "fenced", "failed", "disconnected", "expired", "error", "full")


@attrs.frozen
class TaskLine:
    """A task at its depth in the tree."""

    number: int
    branches: str
    name: str
    waits_in: str
    note: str = ""


def task_lines(tree: Mapping[str, Any]) -> list[TaskLine]:
    """The tree of `trioha.watch.node_inside` from the root down."""
    lines: list[TaskLine] = []

    def walk(task: Mapping[str, Any], lead: str, branch: str) -> None:
        lines.append(TaskLine(len(lines), branch, task["name"], task["waits_in"]))
        nurseries = task["nurseries"]
        children = [child for nursery in nurseries for child in nursery["tasks"]]
        for index, child in enumerate(children):
            last = index == len(children) - 1
            walk(child, lead + ("   " if last else "│  "), lead + ("└─ " if last else "├─ "))
        left_out = sum(nursery["left_out"] for nursery in nurseries)
        if left_out:
            lines.append(TaskLine(len(lines), f"{lead}└─ ", f"… and {left_out} more", ""))

    walk(tree["root"], "", "")
    return lines


def _task(line: TaskLine, _: int) -> Cell:
    return ((line.branches, "dim"), (line.name, ""))


TASKS: Shape[TaskLine] = Shape(
    name="tasks",
    identity=lambda line: (line.branches, line.name, line.number),
    search=lambda line: f"{line.name} {line.waits_in}",
    columns=(
        GridColumn(title="TASK", cell=_task, key=lambda line: line.number, width=40, width_max=70),
        columns.text("WAITS IN", lambda line: line.waits_in, 30, width_max=80, role="dim"),
    ),
)


def event_words(event: Event) -> str:
    return " ".join(f"{key}={value}" for key, value in event.fields.items())


def _event_role(event: Event) -> str:
    return "warn" if any(word in event.name for word in _BAD_WORDS) else "accent"


JOURNAL: Shape[Event] = Shape(
    name="journal",
    identity=lambda event: event.sequence,
    search=lambda event: f"{event.name} {event_words(event)}",
    columns=(
        columns.text("AT (UTC)", lambda event: moment_in_words(event.wall_ms)[11:], 12),
        GridColumn(
            title="EVENT",
            cell=lambda event, _: cell(event.name, _event_role(event)),
            key=lambda event: event.name,
            width=22,
            width_max=30,
        ),
        columns.text("FIELDS", event_words, 40, width_max=400),
        columns.count("NO", lambda event: event.sequence, 8, importance=1),
    ),
)


@attrs.frozen
class Setting:
    key: str
    value: str
    origin: str
    doc: str


def settings_of(rows: Iterable[Mapping[str, Any]]) -> list[Setting]:
    """Every setting of `trioha.watch.node_inside`; those that are not the default come first."""
    found = [
        Setting(row["key"], _as_set(row["value"]), row["origin"] or "default", row["doc"])
        for row in rows
    ]
    found.sort(key=lambda one: (one.origin == "default", one.key))
    return found


def _as_set(value: Any) -> str:
    """Return a value as it is written into a configuration file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


SETTINGS: Shape[Setting] = Shape(
    name="settings",
    identity=lambda one: one.key,
    search=lambda one: f"{one.key} {one.value} {one.origin}",
    columns=(
        columns.text("KEY", lambda one: one.key, 28, width_max=44, role="strong"),
        columns.text("VALUE", lambda one: one.value, 20, width_max=60),
        GridColumn(
            title="FROM",
            cell=lambda one, _: cell(one.origin, "dim" if one.origin == "default" else "accent"),
            key=lambda one: one.origin,
            width=16,
            width_max=50,
        ),
    ),
)


def node_facts(replica: Replica) -> list[tuple[str, Cell]]:
    log = None
    if replica.max_phy_offset is not None and replica.min_phy_offset is not None:
        log = size_in_words(replica.max_phy_offset - replica.min_phy_offset)
    told = replica.answer
    age = "never" if told.age_s is None else f"{age_in_words(told.age_s)} ago"
    facts: list[tuple[str, Cell]] = [
        ("last answer", cell(age, "warn" if told.is_stale else "")),
        *([("error", cell(told.error, "bad"))] if told.error else []),
        ("version", cell(replica.version)),
        ("up for", cell(age_in_words(replica.uptime_s))),
        *(_standing_facts(replica) if replica.raft is None else own_facts(replica.raft)),
        ("dispatched", cell(replica.dispatched_offset)),
        ("log holds", cell(log)),
        ("disk", cell(None if replica.disk_ratio is None else f"{replica.disk_ratio:.0%} full")),
        ("stored", cell(replica.put_total)),
        ("read", cell(replica.get_total)),
        ("clients", cell(replica.client_connections)),
        ("puts waiting", cell(replica.puts_waiting)),
    ]
    return facts


def waits_facts(event: Event | None, wall_ms: int) -> list[tuple[str, Cell]]:
    """Percentiles of the time that sends waited for a slave, of a SYNC_MASTER's newest sample."""
    bins = event.fields.get("bins") if event is not None else None
    if event is None or not _are_counts(bins):
        return [("put waits", cell("no sample", "dim"))]
    shares = ", ".join(f"p{percent} {_percentile(bins, percent)}" for percent in (50, 99))
    age = age_in_words(max(0.0, (wall_ms - event.wall_ms) / 1000))
    sample = f"{count_in_words(sum(bins), 'send')}, {age} ago"
    return [("put waits", cell(f"{shares} ms")), ("sample", cell(sample))]


def _are_counts(bins: object) -> TypeGuard[list[int]]:
    """Return True if a peer told at least two counts, one of them more than zero."""
    return (
        isinstance(bins, list)
        and len(bins) > 1
        and all(isinstance(one, int) and one >= 0 for one in bins)
        and any(bins)
    )


def _percentile(bins: list[int], percent: int) -> str:
    """The bin in which it lies: bins end at 1, 2, 4, 8 … ms, the last one holds the rest."""
    rank, seen = max(1, -(-sum(bins) * percent // 100)), 0
    for power, count in enumerate(bins[:-1]):
        seen += count
        if seen >= rank:
            return f"<{1 << power}"
    return f"≥{1 << (len(bins) - 2)}"


def _standing_facts(replica: Replica) -> list[tuple[str, Cell]]:
    return [
        ("role", cell(replica.role)),
        ("acts as", cell(replica.standing)),
        ("id", cell(replica.number)),
        ("epoch", cell(replica.epoch)),
        ("log begins", cell(replica.min_phy_offset)),
        ("log ends", cell(replica.max_phy_offset)),
        ("flushed", cell(replica.flushed_offset)),
    ]


def terms_of(replica: Replica) -> list[tuple[str, Cell]]:
    """The role history as the node keeps it, newest first."""
    value = replica.answer.value
    epochs = value.get("epochs") if isinstance(value, dict) else None
    if not isinstance(epochs, list) or not epochs:
        return [("", cell("It tells of none.", "dim"))]
    lines: list[tuple[str, Cell]] = []
    for row in reversed(epochs):
        if isinstance(row, dict):
            began_ms = row.get("began_wall_ms")
            when = f", {moment_in_words(began_ms)[:19]} UTC" if began_ms else ""
            where = f"id {row.get('home_id')} from offset {row.get('start_offset')}{when}"
            lines.append((f"epoch {row.get('epoch')}", cell(where)))
    return lines
