"""Rebalances of a group, as they are seen: members that came and went, queues that changed hands.

A group's members agree among themselves who reads which queue, and no broker keeps a history of
it. So the history begins when a viewer opens the group. A change of owners is taken once every
member has told its queues: halfway through, a queue seems to have two owners or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import attrs

from trioha.watch.questions import CLIENT, MEMBERS
from trioha.watch.readings import Fields, fields_of, rows_of, words
from trioha.watch.snapshot import ClusterSnapshot

CHANGES_MAX = 1_000

QueueNames = tuple[str, ...]
"""``orders broker-a 0``, in order."""


@attrs.frozen
class Rebalance:
    """A member that came, went, or got other queues."""

    wall_ms: int
    client_id: str
    what: str
    """``came``, ``left`` or ``queues``."""
    before: QueueNames
    after: QueueNames


class RebalanceHistory:
    """Changes of one group since the first look, newest first."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.changes: deque[Rebalance] = deque(maxlen=CHANGES_MAX)
        self._owned: Mapping[str, QueueNames] | None = None

    def look(self, snapshot: ClusterSnapshot) -> None:
        """Compare with the last complete look."""
        owned = _owned(snapshot, self.group)
        if owned is None or owned == self._owned:
            return
        before, self._owned = self._owned, owned
        if before is None:
            return
        for client_id in sorted({*before, *owned}, reverse=True):
            old, new = before.get(client_id), owned.get(client_id)
            if old != new:
                what = "came" if old is None else "left" if new is None else "queues"
                change = Rebalance(snapshot.at_wall_ms, client_id, what, old or (), new or ())
                self.changes.appendleft(change)


def _owned(snapshot: ClusterSnapshot, group: str) -> Mapping[str, QueueNames] | None:
    """Queues of each member; None until every broker and every member has told."""
    answers = fields_of(snapshot.raw.get("answers"))
    members: set[str] = set()
    owned: dict[str, set[str]] = {}
    masters = [one.master.address for one in snapshot.sets if one.master is not None]
    for address in masters:
        told = fields_of(answers.get(address))
        entry = fields_of(told.get(f"{MEMBERS}{group}"))
        if not entry:
            return None
        if entry.get("error") and entry.get("code") is None:
            return None  # it does not answer: whether its members left is not known
        if not entry.get("error"):
            members |= {
                words(row, "client_id") or "?"
                for row in rows_of(fields_of(entry.get("value")).get("clients"))
            }
        place = f"{CLIENT}{group}/"
        for key, answer in told.items():
            if key.startswith(place):
                _add_queues(owned, key.removeprefix(place), fields_of(answer))
    if not masters or members - owned.keys():
        return None
    return {one: tuple(sorted(owned[one])) for one in members}


def _add_queues(owned: dict[str, set[str]], client_id: str, answer: Fields) -> None:
    rows = fields_of(answer.get("value")).get("queues")
    if isinstance(rows, list):
        found = owned.setdefault(client_id, set())
        found |= {" ".join(map(str, row)) for row in rows}
