"""The pure core, against the obvious model: a dictionary of when each message is visible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trioha.broker.pop.in_flight import AckOutcome, CheckpointKey, InFlight, PopCheckpoint

KEY = CheckpointKey("T", "g", 0, 10, 1_000)


def checkpoint(start: int, pop_time: int, invisible_ms: int, count: int) -> PopCheckpoint:
    key = CheckpointKey("T", "g", 0, start, pop_time)
    return PopCheckpoint(key, invisible_ms, tuple(range(start, start + count)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pop"), st.integers(1, 4), st.integers(1, 50)),
        st.tuples(st.just("ack"), st.integers(0, 30), st.integers(0, 4)),
        st.tuples(st.just("time"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("postpone"), st.integers(1, 20), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_message_is_due_once_at_its_time_unless_it_was_acknowledged(
    steps: list[tuple[str, int, int]],
) -> None:
    table = InFlight()
    model: dict[int, int] = {}  # offset -> when it is due
    keys: list[tuple[CheckpointKey, int]] = []
    now_ms, next_offset, postpone_ms = 1_000, 0, 0
    for kind, first, second in [*steps, ("time", 1_000, 0), ("time", 1_000, 0)]:
        if kind == "pop":
            one = checkpoint(next_offset, now_ms, second, first)
            table.add(one)
            for offset in one.offsets:
                model[offset] = now_ms + second
                keys.append((one.key, offset))
            next_offset += first
        elif kind == "ack" and keys:
            key, offset = keys[first % len(keys)]
            outcome = table.ack(key, offset + 100 * (second == 0))
            if second == 0:
                assert outcome is AckOutcome.UNKNOWN
            elif offset in model:
                assert outcome is AckOutcome.TAKEN
                del model[offset]
            else:
                assert outcome is not AckOutcome.TAKEN
        elif kind == "postpone":
            postpone_ms = first
        else:
            now_ms += first
            while (due := table.take_due(now_ms)) is not None:
                if postpone_ms:
                    for offset in due.open_offsets:
                        model[offset] = now_ms + postpone_ms
                    table.postpone(due, now_ms + postpone_ms)
                    postpone_ms = 0
                    continue
                for offset in due.open_offsets:
                    assert model.pop(offset) <= now_ms
                due.acked = 0
                table.finish(due)
            assert all(due_ms > now_ms for due_ms in model.values())
        assert table.next_due_ms == min(model.values(), default=None)
    assert not model
    assert len(table) == 0


def test_a_repeated_acknowledgement_is_known_as_such_and_one_that_came_too_late_is_not() -> None:
    table = InFlight()
    one = PopCheckpoint(KEY, 5, (10, 11))
    table.add(one)
    assert table.ack(KEY, 10) is AckOutcome.TAKEN
    assert table.ack(KEY, 10) is AckOutcome.REPEATED
    assert table.ack(KEY, 12) is AckOutcome.UNKNOWN
    assert table.ack(KEY, 11) is AckOutcome.TAKEN
    assert len(table) == 0
    assert table.ack(KEY, 10) is AckOutcome.REPEATED
    assert table.ack(KEY._replace(group="other"), 10) is AckOutcome.UNKNOWN
    late = PopCheckpoint(KEY._replace(pop_time=2_000), 5, (10,))
    table.add(late)
    table.finish(late)
    assert table.ack(late.key, 10) is AckOutcome.UNKNOWN


def test_a_full_table_says_so_and_forgets_the_queues_of_a_topic() -> None:
    table = InFlight(checkpoints_max=2)
    full = []
    for start in range(2):
        table.add(checkpoint(start, 1, 5, 1))
        full.append(table.is_full)
    assert full == [False, True]
    assert [one.key.start_offset for one in table.forget_queues("T", "g")] == [0, 1]
    assert table.next_due_ms is None
    assert not table.forget_queues("T", "g")
