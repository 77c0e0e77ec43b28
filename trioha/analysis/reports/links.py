"""Replication links as their two ends wrote them down: sessions, silences, progress.

A link is known twice if both journals are given: the master writes it with the slave's client
address, which is new with every connection, the slave with the master's address. A master's
session and a slave's are one if they began within two seconds of each other, belong to one broker
and no other pair is nearer. Figures then come from the master, who knows the end of the log; a
slave's own are used where its master's journal is missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports.lives import Life, Lives, journal_of, number
from trioha.analysis.reports.log_clock import LogClock

_SAME_LINK_MS = 2_000


@attrs.define(eq=False)
class LinkProgress:
    """Samples of one session: when, up to where the slave, up to where the master. 24 bytes each:
    a journal holds half a million of them."""

    at_ms: array[int] = attrs.field(factory=lambda: array("q"))
    ack: array[int] = attrs.field(factory=lambda: array("q"))
    end: array[int] = attrs.field(factory=lambda: array("q"))

    def add(self, at_ms: int, ack: int, end: int) -> None:
        self.at_ms.append(at_ms)
        self.ack.append(ack)
        self.end.append(end)

    def __len__(self) -> int:
        return len(self.at_ms)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.at_ms, self.ack, self.end, strict=True)


@attrs.define(eq=False)
class Session:
    """One connection, as one end saw it."""

    journal: str
    node: str
    is_master: bool
    peer: str
    begin_ms: int
    offset: int
    """Offset at which the slave's log ended at `begin_ms`."""
    end_ms: int | None = None
    reason: str = ""
    in_sync: list[tuple[int, int | None]] = attrs.field(factory=list)
    """Spans in which the slave was near enough to wait for: from, until."""
    first_gap: int | None = None
    """Bytes that the slave lacked when it came, as far as the master told."""
    progress: LinkProgress = attrs.field(factory=LinkProgress)
    other: Session | None = None
    """The same link at its other end."""

    @property
    def slave(self) -> str:
        """The slave's name, or else its host."""
        if not self.is_master:
            return self.node
        return self.other.node if self.other is not None else self.peer.rpartition(":")[0]

    @property
    def master(self) -> str:
        if self.is_master:
            return self.node
        return self.other.node if self.other is not None else self.peer

    @property
    def link(self) -> str:
        return f"{self.master} → {self.slave}"


@attrs.define(eq=False)
class Silence:
    """A peer that did not say in time what it promised to."""

    node: str
    peer: str
    begin_ms: int
    gap_ms: int
    limit_ms: int | None
    end: str = "lasts"
    """``it spoke again``, ``the link ended`` or ``lasts``."""


@attrs.define(eq=False)
class SyncWaits:
    """Waits of one node's puts for slaves, in one sample's time."""

    journal: str
    node: str
    at_ms: int
    puts: int
    waited_ms: int
    longest_ms: int
    bins: list[int]
    timeouts: int
    unavailable: int


@attrs.define(eq=False)
class CommitStall:
    """The leader of a DLEDGER group had something to commit and no majority that took it."""

    journal: str
    begin_ms: int
    end_ms: int | None = None


@attrs.define(eq=False)
class ReplicationLinks:
    """All that journals tell of replication."""

    lives: Lives = attrs.field(factory=Lives)
    sessions: list[Session] = attrs.field(factory=list)
    silences: list[Silence] = attrs.field(factory=list)
    refusals: list[JournalRow] = attrs.field(factory=list)
    waits: list[SyncWaits] = attrs.field(factory=list)
    stalls: list[CommitStall] = attrs.field(factory=list)
    clocks: dict[str, LogClock] = attrs.field(factory=dict)
    """Growth of the log of a journal's node over time, by journal."""
    _open: dict[tuple[str, str], Session] = attrs.field(factory=dict)
    _silent: dict[tuple[str, str], Silence] = attrs.field(factory=dict)
    _early: dict[tuple[str, str], JournalRow] = attrs.field(factory=dict)
    """In-sync from before the session's own event: the first ack does both."""

    def add(self, row: JournalRow) -> None:
        """Take the next event; each journal's in the order written."""
        journal = journal_of(row)
        self.lives.add(row)
        if row.name in ("broker_progress", "ha_progress"):
            clock = self.clocks.setdefault(journal, LogClock())
            clock.add(row.wall_ms, number(row, "max_phy_offset"))
        key = (journal, row.fields.get("peer", ""))
        at_ms = row.wall_ms
        if row.name == "node_started":
            self._forget(journal)
        elif row.name == "ha_connected":
            self._connect(key, row)
        elif row.name == "ha_disconnected":
            self._disconnect(key, row)
        elif row.name == "ha_refused":
            self.refusals.append(row)
        elif row.name == "ha_heartbeat_late":
            age_ms = number(row, "age_ms")
            limit_ms = self._limit_ms(journal)
            silence = Silence(row.node, key[1], at_ms - age_ms, age_ms, limit_ms)
            self._silent[key] = silence
            self.silences.append(silence)
        elif row.name == "ha_heartbeat_resumed":
            found = self._silent.pop(key, None)
            if found is not None:
                found.gap_ms, found.end = number(row, "gap_ms"), "it spoke again"
        elif row.name == "ha_progress":
            session = self._open.get(key)
            if session is not None:
                if session.first_gap is None:
                    session.first_gap = number(row, "gap_bytes")
                session.progress.add(
                    at_ms, number(row, "ack_offset"), number(row, "max_phy_offset")
                )
        elif row.name == "ha_in_sync":
            self._in_sync(key, row)
        elif row.name == "sync_waits":
            self.waits.append(_waits_of(journal, row))
        elif row.name == "raft_commit_stalled":
            self.stalls.append(CommitStall(journal, at_ms - number(row, "age_ms")))
        elif row.name == "raft_commit_resumed":
            self._end_stalls(journal, at_ms)

    def finish(self) -> None:
        """End sessions that ended with their nodes, and find the pairs, after the last event."""
        self.lives.finish()
        for session in self.sessions:
            life = self.lives.at(session.journal, session.begin_ms)
            session.is_master = _was_master(life, session.begin_ms)
            if session.end_ms is None and life is not None and life.end_ms is not None:
                session.end_ms = max(session.begin_ms, life.end_ms)
                session.reason = _REASONS.get(life.ending, "")
            if session.in_sync and session.in_sync[-1][1] is None:
                session.in_sync[-1] = (session.in_sync[-1][0], session.end_ms)
        self._pair()

    def told(self) -> list[Session]:
        """Return each link's sessions once: the master's, and a slave's where there is no other."""
        return [each for each in self.sessions if each.is_master or each.other is None]

    def _connect(self, key: tuple[str, str], row: JournalRow) -> None:
        session = Session(key[0], row.node, False, key[1], row.wall_ms, number(row, "offset"))
        early = self._early.pop(key, None)
        if early is not None:
            session.in_sync.append((early.wall_ms, None))
            session.first_gap = number(early, "gap_bytes")
        self._open[key] = session
        self.sessions.append(session)

    def _disconnect(self, key: tuple[str, str], row: JournalRow) -> None:
        session = self._open.pop(key, None)
        if session is None:
            # A slave, which has one link, may name its master as its settings do.
            mine = [other for other in self._open if other[0] == key[0]]
            if len(mine) == 1 and mine[0][1].rpartition(":")[2] == key[1].rpartition(":")[2]:
                session = self._open.pop(mine[0])
        if session is not None:
            session.end_ms, session.reason = row.wall_ms, row.fields.get("reason", "")
        silence = self._silent.pop(key, None)
        if silence is not None:
            silence.gap_ms = row.wall_ms - silence.begin_ms
            silence.end = "the link ended"
        self._early.pop(key, None)

    def _in_sync(self, key: tuple[str, str], row: JournalRow) -> None:
        session, at_ms = self._open.get(key), row.wall_ms
        is_in_sync = row.fields.get("in_sync", "").lower() == "true"
        if session is None:
            if is_in_sync:
                self._early[key] = row
        elif is_in_sync:
            session.in_sync.append((at_ms, None))
        elif session.in_sync and session.in_sync[-1][1] is None:
            session.in_sync[-1] = (session.in_sync[-1][0], at_ms)

    def _end_stalls(self, journal: str, at_ms: int) -> None:
        for stall in self.stalls:
            if stall.journal == journal and stall.end_ms is None:
                stall.end_ms = at_ms

    def _forget(self, journal: str) -> None:
        """A new life: links of the one before are gone."""
        for table in (self._open, self._silent, self._early):
            for key in [key for key in table if key[0] == journal]:
                del table[key]

    def _limit_ms(self, journal: str) -> int | None:
        life = self.lives.at(journal, 1 << 62)
        return None if life is None else life.heartbeat_limit_ms

    def _pair(self) -> None:
        """Join the two ends of links, nearest beginnings first."""
        masters = [each for each in self.sessions if each.is_master]
        slaves = [each for each in self.sessions if not each.is_master]
        near = sorted(
            (abs(master.begin_ms - slave.begin_ms), at, at_slave)
            for at, master in enumerate(masters)
            for at_slave, slave in enumerate(slaves)
            if abs(master.begin_ms - slave.begin_ms) <= _SAME_LINK_MS
            and master.journal != slave.journal
            and _broker_of(master) == _broker_of(slave)
        )
        for _, at, at_slave in near:
            master, slave = masters[at], slaves[at_slave]
            if master.other is None and slave.other is None:
                master.other, slave.other = slave, master


def links_of(engine: Engine) -> ReplicationLinks:
    """Return all that the journals tell of replication."""
    links = ReplicationLinks()
    for row in engine.journal():
        links.add(row)
    links.finish()
    return links


_REASONS = {
    "killed": "this node was killed",
    "stopped": "this node stopped",
    "failed": "this node failed",
}


def _broker_of(session: Session) -> str:
    return session.node.rpartition(":")[0]


def _was_master(life: Life | None, at_ms: int) -> bool:
    """Was the node a master then?"""
    stints = [stint for stint in life.stints if stint.begin_ms <= at_ms] if life else []
    return bool(stints) and stints[-1].is_master


def _waits_of(journal: str, row: JournalRow) -> SyncWaits:
    shown = row.fields.get("bins", "")
    bins = [int(part) for part in shown.strip("[] ").split(",") if part.strip().isdigit()]
    return SyncWaits(
        journal=journal,
        node=row.node,
        at_ms=row.wall_ms,
        puts=number(row, "puts"),
        waited_ms=number(row, "waited_ms"),
        longest_ms=number(row, "longest_ms"),
        bins=bins,
        timeouts=number(row, "timeouts"),
        unavailable=number(row, "unavailable"),
    )
