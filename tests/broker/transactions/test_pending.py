"""The table of open transactions against a model: the log and nothing else."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trioha.broker.transactions.pending import (
    CheckAction,
    HalfCopy,
    PendingTransactions,
    action_of,
)

HOUR_MS = 3_600_000


def copy(origin: int = 0, queue_offset: int = 0, *, due_ms: int = 0, checks: int = 0) -> HalfCopy:
    return HalfCopy(
        origin=origin,
        queue_offset=queue_offset,
        phy_offset=queue_offset * 100,
        end_offset=queue_offset * 100 + 100,
        check_times=checks,
        born_ms=0,
        due_ms=due_ms,
    )


def test_actions() -> None:
    new, asked, last = copy(), copy(checks=1), copy(checks=15)
    assert action_of(new, 0, 99, 15, HOUR_MS) is CheckAction.WAIT
    assert action_of(new, 0, 100, 15, HOUR_MS) is CheckAction.CHECK
    # However old it is, its producer is asked once.
    assert action_of(new, 2 * HOUR_MS, 100, 15, HOUR_MS) is CheckAction.CHECK
    assert action_of(asked, HOUR_MS, 100, 15, HOUR_MS) is CheckAction.CHECK
    assert action_of(asked, HOUR_MS + 1, 100, 15, HOUR_MS) is CheckAction.DISCARD
    assert action_of(last, 0, 100, 15, HOUR_MS) is CheckAction.DISCARD


class PendingMachine(RuleBasedStateMachine):
    """Adds, copies, postpones, takes and finishes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PendingTransactions()
        self.open: dict[int, HalfCopy] = {}
        self.end = 0

    @rule(due_ms=st.integers(0, 50))
    def prepare(self, due_ms: int) -> None:
        self.put(copy(self.end, self.end, due_ms=due_ms))

    def put(self, one: HalfCopy) -> None:
        assert self.table.add(one) == self.open.pop(one.origin, None)
        self.open[one.origin] = one
        self.end += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data(), due_ms=st.integers(0, 50))
    def copy_one(self, data: st.DataObject, due_ms: int) -> None:
        origin = data.draw(st.sampled_from(sorted(self.open)))
        self.put(copy(origin, self.end, due_ms=due_ms))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        origin = data.draw(st.sampled_from(sorted(self.open)))
        self.table.finish(origin)
        self.table.finish(origin)
        del self.open[origin]

    @rule(wall_ms=st.integers(0, 50), later_ms=st.integers(1, 20))
    def take(self, wall_ms: int, later_ms: int) -> None:
        found = self.table.take_due(wall_ms)
        due = [one for one in self.open.values() if one.due_ms <= wall_ms]
        if found is None:
            assert due == []
            return
        assert found.due_ms == min(one.due_ms for one in due)
        self.table.postpone(found, found.due_ms + later_ms)
        self.open[found.origin] = found._replace(due_ms=found.due_ms + later_ms)

    @invariant()
    def agrees(self) -> None:
        table, offsets = self.table, sorted(one.queue_offset for one in self.open.values())
        assert [one.queue_offset for one in table] == offsets
        assert table.progress == (offsets[0] if offsets else self.end)
        assert table.next_due_ms == min((one.due_ms for one in self.open.values()), default=None)
        assert len(table) == len(self.open)
        assert all(table.get(origin) == one for origin, one in self.open.items())


TestPending = PendingMachine.TestCase
