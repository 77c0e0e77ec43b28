"""The lines of the replication screen: one per set, one per replica, and their columns."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import attrs

from trioha.watch.condition import Condition, Level, condition_of, condition_of_set
from trioha.watch.history import ReplicaHistory
from trioha.watch.replica import Replica
from trioha.watch.replica_set import ReplicaSet
from trioha.words import age_in_words, size_in_words
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.marks import heartbeat_cell, sparkline
from trioha_console.roles import LEVEL_ROLES, MARKS

STEP_MS = 1000


@attrs.frozen
class ReplicationLine:
    """A set's own line, or one of its replicas'."""

    set: ReplicaSet
    replica: Replica | None
    condition: Condition
    history: ReplicaHistory | None
    wall_ms: int

    @property
    def identity(self) -> tuple[str, str, str]:
        address = self.replica.address if self.replica is not None else ""
        return self.set.cluster, self.set.name, address


def lines_of(frame: Frame) -> list[ReplicationLine]:
    lines = []
    for one in frame.snapshot.sets:
        lines.append(ReplicationLine(one, None, condition_of_set(one), None, frame.wall_ms))
        lines += [
            ReplicationLine(
                one,
                replica,
                condition_of(replica),
                frame.history.of(replica.address),
                frame.wall_ms,
            )
            for replica in one.replicas
        ]
    return lines


def why_empty(frame: Frame) -> str:
    """Return the text of a table without brokers."""
    namesrvs = frame.snapshot.namesrvs
    silent = [one.answer.error for one in namesrvs if one.answer.error]
    if namesrvs and len(silent) == len(namesrvs):
        return f"No name server answers: {'; '.join(silent)}. Asking on; q leaves."
    if any(one.answer.wall_ms is None for one in namesrvs):
        return "Asking the name servers…"
    return "No broker is registered with these name servers."


def _name(line: ReplicationLine, _: int) -> Cell:
    replica = line.replica
    if replica is None:
        return (
            (MARKS[line.condition.level], LEVEL_ROLES[line.condition.level]),
            (f" {line.set.name}", "strong"),
            (f"  {line.set.cluster}", "dim"),
        )
    gone = "" if replica.registered else "dim"
    return (
        ("  ", ""),
        (MARKS[line.condition.level], LEVEL_ROLES[line.condition.level]),
        (f" {replica.own_id} ", "strong"),
        (replica.address, gone),
    )


def _role(line: ReplicationLine, _: int) -> Cell:
    replica = line.replica
    if replica is None:
        return ()
    if replica.standing is not None:
        return cell(replica.standing, "accent" if replica.is_master else "")
    if replica.raft is not None or replica.answer.error:
        return NOTHING  # another may have its role by now
    return cell("MASTER" if replica.is_master else "SLAVE", "accent" if replica.is_master else "")


def _state(line: ReplicationLine, _: int) -> Cell:
    return cell(line.condition.word, LEVEL_ROLES[line.condition.level])


def _gap(line: ReplicationLine, _: int) -> Cell:
    replica = line.replica
    if replica is None or replica.is_master:
        return ()
    gap = replica.gap_bytes
    role = "dim" if gap is None else "" if gap == 0 else "warn" if replica.in_sync is False else ""
    return cell(size_in_words(gap), role)


def _eta(line: ReplicationLine, _: int) -> Cell:
    if line.replica is None or line.replica.is_master or line.history is None:
        return ()
    eta_s = line.history.eta_s
    if eta_s == 0:
        return cell("caught up", "dim")
    return NOTHING if eta_s is None else cell(age_in_words(eta_s))


def _rate(line: ReplicationLine, _: int) -> Cell:
    if line.replica is None or line.history is None:
        return ()
    rate = line.history.end.per_second()
    return (
        NOTHING if rate is None or line.replica.answer.error else cell(f"{size_in_words(rate)}/s")
    )


def _heard(line: ReplicationLine, width: int) -> Cell:
    replica = line.replica
    if replica is None or replica.is_master:
        return ()
    return heartbeat_cell(
        replica.heard_age_s, replica.heartbeat_interval_s, replica.housekeeping_s, width
    )


def _since(line: ReplicationLine, _: int) -> Cell:
    if line.replica is None or line.history is None:
        return ()
    seconds = (line.wall_ms - line.history.since_ms) / 1000
    return cell(f"{'' if line.history.since_is_known else '>'}{age_in_words(seconds)}", "dim")


def _trend(line: ReplicationLine, width: int) -> Cell:
    if line.replica is None or line.history is None or line.replica.is_master:
        return ()
    return cell(sparkline(line.history.gap.last(width, STEP_MS, line.wall_ms)), "accent")


def _error(line: ReplicationLine, _: int) -> Cell:
    if line.replica is None:
        return cell(line.condition.why, "bad") if line.condition.why else ()
    if line.condition.why and line.condition.level > Level.GOOD:
        return cell(line.condition.why, LEVEL_ROLES[line.condition.level])
    replica = line.replica
    for end in (replica.link, replica.follows):
        if end is not None and end.last_error:
            return cell(f"{age_in_words(end.last_error_age_s)} ago: {end.last_error}", "dim")
    return ()


def _number(
    title: str,
    read: Callable[[Replica], float | None],
    width: int,
    importance: int,
    *,
    words: Callable[[float], str] = str,
    of_slaves: bool = False,
) -> GridColumn[ReplicationLine]:
    """A number of each replica, or of slaves only."""

    def key(line: ReplicationLine) -> float | None:
        replica = line.replica
        return None if replica is None or (of_slaves and replica.is_master) else read(replica)

    def show(line: ReplicationLine, _: int) -> Cell:
        if line.replica is None or (of_slaves and line.replica.is_master):
            return ()
        value = key(line)
        return NOTHING if value is None else cell(words(value))

    return GridColumn(
        title=title, cell=show, key=key, width=width, right=True, importance=importance
    )


def _acked(replica: Replica) -> int | None:
    return None if replica.link is None else replica.link.slave_ack_offset


def _reconnects(replica: Replica) -> int | None:
    counts = [end.reconnects for end in (replica.link, replica.follows) if end is not None]
    return max((one for one in counts if one is not None), default=None)


def _search(line: ReplicationLine) -> str:
    if line.replica is None:
        return f"{line.set.name} {line.set.cluster}"
    replica = line.replica
    return f"{replica.address} {replica.standing or ''} {replica.role or ''} {line.condition.word}"


def _reason(line: ReplicationLine) -> tuple[str, Cell] | None:
    """Return the reason a set is not well, in place of the columns that only members have."""
    if line.replica is not None or not line.condition.why:
        return None
    return "ROLE", cell(line.condition.why, LEVEL_ROLES[line.condition.level])


SHAPE: Shape[ReplicationLine] = Shape(
    name="replication",
    identity=lambda line: line.identity,
    over=_reason,
    search=_search,
    group=lambda line: line.identity[:2],
    columns=(
        GridColumn(
            title="REPLICA", cell=_name, width=22, width_max=34, key=lambda line: line.identity
        ),
        GridColumn(
            title="STATE",
            cell=_state,
            width=12,
            width_max=15,
            key=lambda line: (int(line.condition.level), line.condition.word),
        ),
        GridColumn(title="ROLE", cell=_role, width=8, width_max=13),
        _number("EPOCH", attrgetter("epoch"), 5, 1),
        _number("BEGINS", attrgetter("min_phy_offset"), 12, 8),
        _number("ENDS", attrgetter("max_phy_offset"), 12, 5),
        _number("FLUSHED", attrgetter("flushed_offset"), 12, 7),
        _number("ACKED", _acked, 12, 6, of_slaves=True),
        GridColumn(
            title="GAP",
            cell=_gap,
            key=lambda line: None if line.replica is None else line.replica.gap_bytes,
            width=9,
            right=True,
        ),
        _number("BEHIND", attrgetter("gap_s"), 7, 2, words=age_in_words, of_slaves=True),
        GridColumn(
            title="RATE",
            cell=_rate,
            key=lambda line: None if line.history is None else line.history.end.per_second(),
            width=11,
            right=True,
            importance=3,
        ),
        GridColumn(
            title="ETA",
            cell=_eta,
            key=lambda line: None if line.history is None else line.history.eta_s,
            width=9,
            right=True,
            importance=2,
        ),
        GridColumn(
            title="HEARTBEAT",
            cell=_heard,
            key=lambda line: None if line.replica is None else line.replica.heard_age_s,
            width=14,
            width_max=28,
        ),
        _number("RECON", _reconnects, 5, 5, of_slaves=True),
        GridColumn(title="SINCE", cell=_since, width=8, right=True, importance=4),
        GridColumn(title="GAP TREND", cell=_trend, width=10, width_max=30, importance=4),
        GridColumn(title="WHY", cell=_error, width=20, width_max=80, importance=6),
    ),
)
