"""Lives of nodes, as their journals tell them: begin, end, and the roles in between.

Theory of operation. A journal belongs to a store, not to a name: when a slave is made the master
by configuration, its journal goes on under another node's name. So journals are told apart by
their directory. A life begins with `node_started` and ends with `node_stopped`; one that has no
such end was killed, or lasts. It lasts if nothing follows it and no other node tells of its death:

* the same journal has a later life: killed;
* another node noticed after its last word that it was gone (`witnesses`): killed, and that was the
  moment;
* other journals go on for a minute and a half (a broker gives a sign of life every minute): killed.

What a killed node did after its last word (a fifth of a second is never written) is not known;
the earliest witness after it, or else its last word, stands for the moment of its death. Clocks of
different nodes are compared as they are.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Literal

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports.witnesses import Witnesses

SILENCE_MS = 90_000
"""Silence longer than any of a living broker's journal, which has a line each minute."""
Ending = Literal["stopped", "failed", "killed", "open"]
_MASTERS = ("ASYNC_MASTER", "SYNC_MASTER")
_NEWER_TERM = " has term "
"""Part of the reason of a leader that another member relieved while it was heard."""


@attrs.define(eq=False)
class Stint:
    """A role within a life. `end_ms` is None while the life goes on."""

    role: str
    begin_ms: int
    end_ms: int | None = None
    epoch: int | None = None
    left: str = ""
    """Reason why a master was relieved while its node lived on."""
    is_planned: bool = True

    @property
    def is_master(self) -> bool:
        return self.role in _MASTERS


@attrs.define(eq=False)
class Life:
    """One run of one node."""

    journal: str
    """Directory of its journal."""
    node: str
    """``name:id`` of a broker; ``namesrv``."""
    begin_ms: int
    heard_ms: int
    """Time of its last event."""
    is_cut: bool = False
    """The beginning is not in the journal: too old, or before the window."""
    ready_ms: int | None = None
    stopping_ms: int | None = None
    end_ms: int | None = None
    dead_by_ms: int | None = None
    """Latest moment at which a killed node can have died; the earliest is `heard_ms`."""
    ending: Ending = "open"
    reason: str = ""
    listen: str = ""
    ha_listen: str = ""
    heartbeat_interval_ms: int | None = None
    heartbeat_limit_ms: int | None = None
    stints: list[Stint] = attrs.field(factory=list)
    refusals: list[tuple[int, int | None, str]] = attrs.field(factory=list)
    """Writes refused: from, until (None: to the end), reason."""
    epoch: int | None = None
    """The newest term that this node began, in this life or before."""
    paused_ms: int | None = None
    """Since when writes are parked for a planned switch."""
    raft_reason: str = ""
    """Reason of a member's last change of its role in its group."""
    stood_ms: int | None = None
    """Since when a member stands for election, having heard no leader."""
    elections: list[tuple[int, int]] = attrs.field(factory=list)
    """Elections that a member won: since when it had heard no leader, and the term."""

    @property
    def is_broker(self) -> bool:
        return ":" in self.node

    @property
    def is_member(self) -> bool:
        """A member of a DLEDGER group, not a broker of a pair or set."""
        return self.is_broker and not self.node.rpartition(":")[2].isdecimal()

    @property
    def broker(self) -> str:
        return self.node.rpartition(":")[0]

    @property
    def role(self) -> str:
        """Roles of the node, one after the other."""
        return " → ".join(role for role, _ in groupby(stint.role for stint in self.stints))

    def masterships(self) -> list[tuple[int, int | None, Stint]]:
        """Return the spans in which it served as a master: begin, end, role."""
        if self.ready_ms is None:
            return []
        spans = []
        for stint in self.stints:
            ends = [ms for ms in (stint.end_ms, self.stopping_ms, self.end_ms) if ms is not None]
            begin = max(stint.begin_ms, self.ready_ms)
            end = min(ends) if ends else None
            # A killed master may have said nothing after it began to serve.
            is_served = end is None or end > begin or (self.ending == "killed" and end == begin)
            if stint.is_master and is_served:
                spans.append((begin, end, stint))
        return spans

    def spans(self) -> list[tuple[int, int | None, str, int | None]]:
        """Return begin, end, state and term: ``starting``, its roles, and the moment of its end.
        A state without a term has None."""
        spans: list[tuple[int, int | None, str, int | None]] = []
        if self.ready_ms is not None and self.ready_ms > self.begin_ms:
            spans.append((self.begin_ms, self.ready_ms, "starting", None))
        for stint in self.stints:
            begin = max(stint.begin_ms, self.ready_ms or self.end_ms or stint.begin_ms)
            # A killed node may have said nothing after its role began.
            is_last_word = self.ending == "killed" and stint.end_ms == begin == self.end_ms
            if stint.end_ms is None or stint.end_ms > begin or is_last_word:
                spans.append((begin, stint.end_ms, stint.role, stint.epoch))
        if self.end_ms is not None and self.ending != "open":
            spans.append((self.end_ms, self.end_ms, self.ending, None))
        return spans


@attrs.define(eq=False)
class Lives:
    """Every life of every journal, in the order they began."""

    lives: list[Life] = attrs.field(factory=list)
    heard_ms: int | None = None
    """The last word of any of them: what is known ends here."""
    _witnesses: Witnesses = attrs.field(factory=Witnesses)
    _current: dict[str, Life] = attrs.field(factory=dict)

    def add(self, row: JournalRow) -> None:
        """Take the next event; each journal's in the order written."""
        journal = journal_of(row)
        life = self._current.get(journal)
        if life is None or row.name == "node_started" or life.ending != "open":
            if life is not None and life.ending == "open":
                life.ending = "killed"
            is_cut = row.name != "node_started"
            epoch = None if life is None else life.epoch
            life = Life(journal, row.node, row.wall_ms, row.wall_ms, is_cut, epoch=epoch)
            self._current[journal] = life
            self.lives.append(life)
        life.heard_ms = max(life.heard_ms, row.wall_ms)
        self.heard_ms = max(self.heard_ms or 0, row.wall_ms)
        self._apply(life, row)

    def finish(self) -> None:
        """Judge which lives ended by a kill, and when, after the last event."""
        for life in self.lives:
            following = self._following(life)
            if life.ending == "open":
                seen = self._witnesses.seen_dead_at(life, following)
                silent = self.heard_ms is not None and self.heard_ms - life.heard_ms > SILENCE_MS
                if seen is not None or (silent and life.is_broker):
                    life.ending = "killed"
                    life.end_ms = seen
            elif life.ending == "killed":
                life.end_ms = self._witnesses.seen_dead_at(life, following)
            if life.ending == "killed":
                dead_ms = [life.heard_ms + SILENCE_MS, following]
                life.dead_by_ms = life.end_ms or min(ms for ms in dead_ms if ms is not None)
                life.end_ms = life.end_ms or life.heard_ms
            if life.end_ms is not None:
                _close(life, life.end_ms)

    def of_broker(self, broker: str) -> list[Life]:
        return [life for life in self.lives if life.is_broker and life.broker == broker]

    @property
    def brokers(self) -> list[str]:
        return sorted({life.broker for life in self.lives if life.is_broker})

    def at(self, journal: str, wall_ms: int) -> Life | None:
        """The life of a journal in which a moment lies."""
        found = None
        for life in self.lives:
            if life.journal == journal and life.begin_ms <= wall_ms:
                found = life
        return found

    def _apply(self, life: Life, row: JournalRow) -> None:
        name, fields, at_ms = row.name, row.fields, row.wall_ms
        if name == "node_ready":
            life.ready_ms = at_ms
            life.listen, life.ha_listen = fields.get("listen", ""), fields.get("ha_listen", "")
        elif name == "node_stopping":
            life.stopping_ms = at_ms
        elif name == "node_stopped":
            life.end_ms = at_ms
            life.reason = fields.get("reason", "")
            life.ending = "stopped" if life.reason == "stopped in order" else "failed"
        elif name == "role":
            life.heartbeat_interval_ms = number_or_none(row, "heartbeat_interval_ms")
            life.heartbeat_limit_ms = number_or_none(row, "heartbeat_limit_ms")
            role = fields.get("role", "")
            if life.raft_reason and role not in _MASTERS:
                _step_down(life)
            _begin_stint(life, role, at_ms, life.epoch if role in _MASTERS else None)
        elif name == "epoch_began":
            life.epoch = number_or_none(row, "epoch")  # its role is told next
        elif name == "fenced":
            _relieve(life, at_ms, fields.get("reason", ""))
        elif name == "writes_paused":
            life.paused_ms = at_ms
        elif name == "writes_resumed":
            if life.paused_ms is not None:
                life.refusals.append((life.paused_ms, at_ms, f"a switch: {fields.get('reason')}"))
                life.paused_ms = None
        elif name == "write_refused":
            life.refusals.append((at_ms, None, fields.get("reason", "")))
        elif name == "write_resumed":
            if life.refusals and life.refusals[-1][1] is None:
                begin, _, reason = life.refusals[-1]
                life.refusals[-1] = (begin, at_ms, reason)
        elif name == "broker_progress":
            if not life.stints:
                # The journal has forgotten how it began, or never heard; each sample says it.
                _begin_stint(life, fields.get("role", ""), life.begin_ms, None)
                if life.is_cut and life.ready_ms is None:
                    life.ready_ms = life.begin_ms
        elif name == "raft_role":
            life.raft_reason = fields.get("reason", "")
            if fields.get("role") == "LEADER":
                life.epoch = number_or_none(row, "term")
                life.elections.append((life.stood_ms or at_ms, life.epoch or 0))
            if fields.get("role") == "PRE_CANDIDATE":
                life.stood_ms = at_ms
            elif fields.get("role") == "FOLLOWER":
                life.stood_ms = None
        self._witnesses.add(life.journal, life.broker, row)

    def _following(self, life: Life) -> int | None:
        """Return when the same journal's next life began; None if there is none."""
        later = [
            other.begin_ms
            for other in self.lives[self.lives.index(life) + 1 :]
            if other.journal == life.journal
        ]
        return later[0] if later else None


def lives_of(engine: Engine) -> Lives:
    """The lives of every node whose journal was given."""
    lives = Lives()
    # All of them: any event is a sign of life.
    for row in engine.journal():
        lives.add(row)
    lives.finish()
    return lives


def stores_of_journals(engine: Engine, journals: Collection[str]) -> list[str]:
    """Labels of the stores in which these journals lie."""
    wanted = {_resolved(journal) for journal in journals}
    return [
        store.label
        for store in engine.stores
        if store.root is not None and _resolved(str(store.root / "journal")) in wanted
    ]


def _resolved(path: str) -> str:
    return os.path.realpath(path.removeprefix("file://").removeprefix("file:"))


def journal_of(row: JournalRow) -> str:
    """The directory of an event's journal."""
    return row.source.rpartition("/")[0] or row.source


def journal_labels(journals: Iterable[str]) -> dict[str, str]:
    """Short names: the part of each path in which they differ, without ``/journal``."""
    paths = {journal: journal.removesuffix("/journal").split("/") for journal in journals}
    if not paths:
        return {}
    shortest = min(len(parts) for parts in paths.values())
    head = 0
    while head < shortest - 1 and len({tuple(parts[: head + 1]) for parts in paths.values()}) == 1:
        head += 1
    tail = 0
    while tail < shortest - head - 1 and len({p[len(p) - 1 - tail] for p in paths.values()}) == 1:
        tail += 1
    return {
        journal: "/".join(parts[head : len(parts) - tail] or parts[-1:])
        for journal, parts in paths.items()
    }


def number(row: JournalRow, name: str) -> int:
    """A field as a number; 0 where an older node, or damage, left none."""
    return number_or_none(row, name) or 0


def number_or_none(row: JournalRow, name: str) -> int | None:
    try:
        return int(row.fields[name])
    except (KeyError, ValueError):
        return None


def _relieve(life: Life, at_ms: int, reason: str) -> None:
    """A master takes no more writes; those parked before are not its own any more either."""
    if life.stints and life.stints[-1].is_master and life.stints[-1].end_ms is None:
        stint = life.stints[-1]
        stint.is_planned = life.paused_ms is not None
        stint.end_ms = at_ms if life.paused_ms is None else max(life.paused_ms, stint.begin_ms)
        stint.left = reason
    life.paused_ms = None


def _step_down(life: Life) -> None:
    """Note why the leader of a group leads no more; a newer term came by a planned transfer."""
    if life.stints and life.stints[-1].is_master and life.stints[-1].end_ms is None:
        life.stints[-1].left = f"it stepped down: {life.raft_reason}"
        life.stints[-1].is_planned = _NEWER_TERM in life.raft_reason


def _begin_stint(life: Life, role: str, at_ms: int, epoch: int | None) -> None:
    if life.stints and life.stints[-1].end_ms is None:
        life.stints[-1].end_ms = at_ms
    life.stints.append(Stint(role, at_ms, None, epoch))


def _close(life: Life, end_ms: int) -> None:
    if life.stints and life.stints[-1].end_ms is None:
        life.stints[-1].end_ms = end_ms
    life.refusals = [
        (begin, end_ms if end is None else end, reason) for begin, end, reason in life.refusals
    ]
