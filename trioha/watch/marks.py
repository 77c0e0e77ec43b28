"""Marks on a time line: changes of roles and links, and alerts.

Marks are found by comparing one snapshot with the one before. So live watching, a recorder and the
replay of a recording without marks all find the same. A node that does not answer has not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trioha.watch.alerts import AlertChange, AlertLevel
from trioha.watch.replica import Replica
from trioha.watch.snapshot import ClusterSnapshot

ROLE, LINK, NODE, ALERT = "role", "link", "node", "alert"


@attrs.frozen
class Mark:
    """One event on the time line."""

    wall_ms: int
    kind: str
    """``role``, ``link``, ``node`` or ``alert``."""
    subject: str
    text: str
    level: int
    """0 for good, 1 for a warning, 2 for bad."""


class MarkFinder:
    """Compares each snapshot with the last one's roles, links and nodes."""

    def __init__(self) -> None:
        self._masters: dict[str, str] = {}
        self._linked: dict[str, bool] = {}
        self._answering: dict[str, bool] = {}

    def look(self, snapshot: ClusterSnapshot, changes: Iterable[AlertChange] = ()) -> list[Mark]:
        """Return the marks since the last snapshot; none for the first."""
        at_ms = snapshot.at_wall_ms
        found: list[Mark] = []
        for one in snapshot.sets:
            before = self._masters.get(one.name)
            if len(one.masters) == 1:
                master = one.masters[0].address
                if before is not None and before != master:
                    text = f"{one.name}: {master} is master now, after {before}"
                    found.append(Mark(at_ms, ROLE, one.name, text, AlertLevel.WARN))
                self._masters[one.name] = master
        for replica in snapshot.replicas:
            self._look_at_node(replica, at_ms, found)
            if not replica.is_master:
                self._look_at_link(replica, at_ms, found)
        for change in changes:
            alert = change.alert
            words = alert.text if alert.level else f"over: {alert.text}"
            found.append(Mark(at_ms, ALERT, alert.subject, f"{alert.rule}: {words}", alert.level))
        return found

    def _look_at_node(self, replica: Replica, at_ms: int, found: list[Mark]) -> None:
        if replica.answer.wall_ms is None and not replica.answer.error:
            return  # it was not asked yet
        answers = not replica.answer.error
        before = self._answering.get(replica.address)
        self._answering[replica.address] = answers
        if before is None or before is answers:
            return
        name = replica.full_name
        if answers:
            found.append(Mark(at_ms, NODE, name, f"{name} answers again", AlertLevel.OK))
        else:
            text = f"{name} does not answer: {replica.answer.error}"
            found.append(Mark(at_ms, NODE, name, text, AlertLevel.CRIT))

    def _look_at_link(self, slave: Replica, at_ms: int, found: list[Mark]) -> None:
        linked = _is_linked(slave)
        before = self._linked.get(slave.address)
        if linked is None:
            return
        self._linked[slave.address] = linked
        if before is None or before is linked:
            return
        if linked:
            master = slave.master.address if slave.master else "its master"
            text = f"{slave.full_name} follows {master}"
            found.append(Mark(at_ms, LINK, slave.full_name, text, AlertLevel.OK))
        else:
            reason = slave.follows.last_error if slave.follows is not None else None
            text = f"{slave.full_name} lost its link{f': {reason}' if reason else ''}"
            found.append(Mark(at_ms, LINK, slave.full_name, text, AlertLevel.CRIT))


def _is_linked(slave: Replica) -> bool | None:
    """Return whether the link is up, by the end that answers; None if neither does."""
    if slave.link is not None and slave.master is not None and not slave.master.answer.error:
        return slave.link.is_up
    if slave.master is not None and slave.master.is_trioha and not slave.master.answer.error:
        return False
    if not slave.answer.error and slave.follows is not None:
        return slave.follows.state == "TRANSFER"
    return None


def counted(marks: Iterable[Mark]) -> Mapping[str, int]:
    """Return the count of marks of each kind."""
    counts: dict[str, int] = {}
    for mark in marks:
        counts[mark.kind] = counts.get(mark.kind, 0) + 1
    return counts
