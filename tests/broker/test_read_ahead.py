from __future__ import annotations

import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at, send_v2
from support.handlers.timers import timer

from trioha.broker import read_ahead
from trioha.broker.read_ahead import AHEAD_MS, ReadAhead
from trioha.wire.properties import encode_properties


def both_kinds() -> tuple[ProduceSide, ReadAhead]:
    """Four messages of level 2, and four timer messages, due after 5 s and 6 s."""
    side = ProduceSide(timer_capacity=100)
    for number in range(4):
        properties = encode_properties({"DELAY": "2"}).decode()
        assert side.send(send_v2(properties=properties), at(0)).code == 0
        timer(side, f"K{number}", TIMER_DELAY_SEC=6)
    side.schedule.refresh()
    side.timers.run_due(at(0), 256)
    return side, ReadAhead(side.store, side.schedule, side.timers)


def places(side: ProduceSide) -> list[int]:
    return [result.phy_offset for _, result in side.store.messages]


def test_messages_are_named_two_seconds_before_they_are_due() -> None:
    side, ahead = both_kinds()
    assert ahead.next_look_ms(WALL_MS) == WALL_MS + 5_000 - AHEAD_MS
    assert ahead.look(WALL_MS + 2_999) == []
    levels = {block.begin for block in ahead.look(WALL_MS + 3_000)}
    assert levels == set(places(side)[::2])
    assert ahead.next_look_ms(WALL_MS + 3_000) == WALL_MS + 4_000
    assert {block.begin for block in ahead.look(WALL_MS + 4_000)} == set(places(side))


def test_nothing_is_looked_for_when_nothing_is_due() -> None:
    side = ProduceSide()
    ahead = ReadAhead(side.store, side.schedule, side.timers)
    assert ahead.next_look_ms(WALL_MS) is None
    assert ahead.look(WALL_MS) == []


def test_a_look_is_bounded_and_the_next_one_comes_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "COUNT_MAX", 3)
    _, ahead = both_kinds()
    assert len(ahead.look(WALL_MS + 4_000)) == 6
    assert ahead.next_look_ms(WALL_MS + 4_000) == WALL_MS + 4_050
    # The clock was set back: it does not wait until then.
    assert ahead.next_look_ms(WALL_MS - 60_000) == WALL_MS + 3_000
