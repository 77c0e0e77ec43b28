from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.broker.failover_ticket import PAUSE_MS_MAX, TTL_MS_MAX, Phase, TicketDesk
from trioha.errors import CommandError

FIRST, SECOND = "11" * 8, "22" * 8


def test_the_second_is_told_who_has_it_and_for_how_long() -> None:
    desk = TicketDesk()
    desk.grant(FIRST, "anna@ops-1", "10.0.0.5:4711", 30_000, 1000)
    with pytest.raises(CommandError) as refused:
        desk.grant(SECOND, "bob@ops-2", "10.0.0.6:4711", 30_000, 3000)
    assert "anna@ops-1 (from 10.0.0.5:4711)" in refused.value.remark
    assert "for 2.0 s; talk to them, or wait 28.0 s" in refused.value.remark


def test_asked_for_again_it_lasts_longer_and_never_less() -> None:
    desk = TicketDesk()
    ticket = desk.grant(FIRST, "anna", "x", 1000, 0)
    assert desk.grant(FIRST, "anna", "x", 1000, 500) is ticket
    assert ticket.deadline_ms == 1500
    desk.grant(FIRST, "anna", "x", 1, 600)
    assert ticket.deadline_ms == 1500


def test_what_has_ended_is_not_given_out_again() -> None:
    desk = TicketDesk()
    desk.grant(FIRST, "anna", "x", 1000, 0)
    assert desk.expire(999) is None
    ended = desk.expire(1000)
    assert ended is not None
    assert ended.phase is Phase.HELD
    with pytest.raises(CommandError, match="nothing was changed"):
        desk.grant(FIRST, "anna", "x", 1000, 1001)
    with pytest.raises(CommandError, match="nothing was changed"):
        desk.shown(FIRST)
    desk.grant(SECOND, "bob", "y", 1000, 1001)


def test_a_ticket_given_back_before_it_was_taken_is_void() -> None:
    desk = TicketDesk()
    assert desk.end(FIRST) is None
    with pytest.raises(CommandError):
        desk.grant(FIRST, "anna", "x", 1000, 0)


def test_a_pause_ends_before_its_ticket_and_a_used_one_has_none() -> None:
    desk = TicketDesk()
    ticket = desk.grant(FIRST, "anna", "x", 30_000, 0)
    desk.pause(ticket, 5000, 100)
    assert desk.next_deadline_ms == 5100
    desk.use(ticket)
    assert desk.next_deadline_ms == 30_000
    assert ticket.as_dict(1000)["phase"] == "used"


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "pause", "use", "end", "time"]),
        st.sampled_from([FIRST, SECOND, "33" * 8]),
        st.integers(0, 400_000),
    ),
    max_size=40,
)


@given(_ACTIONS)
def test_there_is_one_ticket_at_a_time_and_it_always_ends(
    actions: list[tuple[str, str, int]],
) -> None:
    desk, now_ms = TicketDesk(), 0
    ended: set[str] = set()
    for action, ticket_id, number in actions:
        held = desk.ticket
        try:
            if action == "grant":
                ticket = desk.grant(ticket_id, "x", "y", number, now_ms)
                assert held in (None, ticket)
                assert ticket_id not in ended
            elif action == "pause":
                desk.pause(desk.shown(ticket_id), number, now_ms)
            elif action == "use":
                desk.use(desk.shown(ticket_id))
            elif action == "end":
                desk.end(ticket_id)
                ended.add(ticket_id)
            else:
                now_ms += number
                expired = desk.expire(now_ms)
                if expired is not None:
                    ended.add(expired.ticket_id)
        except CommandError:
            assert desk.ticket is held
        deadline_ms = desk.next_deadline_ms
        assert (deadline_ms is None) == (desk.ticket is None)
        if deadline_ms is not None:
            assert deadline_ms <= now_ms + TTL_MS_MAX + PAUSE_MS_MAX
