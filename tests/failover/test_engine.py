"""Every step of a failover, and everything that can go wrong with it."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import msgpack
import pytest
from support.nodes.failover_set import FakeSet, Fault

from trioha.failover.asking import Answer
from trioha.failover.attempt import TICKET_MS
from trioha.failover.engine import dry_run
from trioha.failover.outcome import Result, Step
from trioha.ha.mastership import Standing
from trioha.ha.quorum import EPOCH_ROOM
from trioha.wire.codes import RequestCode

TICKET, PAUSE, HAND_OVER = (
    RequestCode.FAILOVER_TICKET,
    RequestCode.PAUSE_WRITES,
    RequestCode.HAND_OVER,
)
PROMISE, PROMOTE = RequestCode.PROMISE, RequestCode.PROMOTE
FOLLOW, RELEASE = RequestCode.FOLLOW, RequestCode.RELEASE

PLANNED_STEPS = [
    (1, TICKET, 0),
    (0, TICKET, 0),
    (0, PAUSE, 0),
    (1, TICKET, 1),
    (0, HAND_OVER, 0),
    (1, PROMOTE, 0),
    (0, FOLLOW, 0),
    (1, RELEASE, 0),
    (0, RELEASE, 0),
]
FORCED_STEPS = [
    (1, TICKET, 0),
    (2, TICKET, 0),
    (2, PROMISE, 0),
    (1, PROMOTE, 0),
    (2, FOLLOW, 0),
    (1, RELEASE, 0),
]
KINDS = ["request lost", "answer lost", "refused", "dies before", "dies after"]


def names(steps: tuple[Step, ...]) -> list[str]:
    return [f"{step.name} {step.node[0]}" for step in steps]


def test_a_planned_switch_changes_places_step_by_step() -> None:
    nodes = FakeSet()
    heard: list[str] = []
    outcome = nodes.failover(on_step=lambda step: heard.append(step.name))
    assert outcome.result is Result.DONE, outcome.message
    assert names(outcome.steps) == [
        *("ticket 1", "ticket 0", "pause 0", "catch up 1", "hand over 0", "promote 1"),
        *("follow 0", "verify n", "record 1", "record 0"),
    ]
    assert heard == [step.name for step in outcome.steps]
    assert nodes.masters == [1]
    assert nodes.node(0).mastership.standing is Standing.SLAVE
    assert nodes.node(0).mastership.history == nodes.node(1).mastership.history
    assert [node.audit.records[0]["result"] for node in nodes.nodes.values()] == ["done", "done"]
    assert outcome.as_dict()["result"] == "done"


def test_forth_and_back_begins_a_term_each() -> None:
    nodes = FakeSet(3)
    for epoch, target in enumerate([1, 0, 2, 1], start=2):
        outcome = nodes.failover(nodes.order(to=target))
        assert outcome.result is Result.DONE, outcome.message
        assert nodes.masters == [target]
        assert nodes.node(target).mastership.epoch == epoch


def test_a_dead_master_is_replaced_and_follows_when_it_returns() -> None:
    nodes = FakeSet(3)
    nodes.node(0).alive = False
    outcome = nodes.failover()
    assert outcome.result is Result.DONE, outcome.message
    assert names(outcome.steps)[:4] == ["ticket 1", "ticket 2", "promise 2", "promote 1"]
    assert not any(node.suspended for node in nodes.nodes.values())
    nodes.revive(0)
    assert nodes.masters == [1]
    assert nodes.node(0).mastership.standing is Standing.SLAVE


def test_replicas_acknowledge_nothing_to_the_old_master_while_a_forced_switch_lasts() -> None:
    nodes = FakeSet(3)
    nodes.node(0).alive = False
    outcome = nodes.failover(None, Fault(1, PROMOTE, "refused"))
    assert outcome.result is Result.REFUSED
    assert not any(node.suspended for node in nodes.nodes.values()), "the tickets were given back"
    nodes.failover(None, Fault(1, PROMOTE, "dies before"), Fault(2, RELEASE, "request lost", 9))
    assert nodes.node(2).suspended
    nodes.pass_ms(TICKET_MS)
    assert not nodes.node(2).suspended


@pytest.mark.parametrize(
    ("home_id", "code", "skip", "kind", "times"),
    [(*step, kind, times) for step, kind, times in itertools.product(PLANNED_STEPS, KINDS, (1, 9))],
)
def test_whatever_fails_in_a_planned_switch_the_end_is_known_or_said_to_be_unknown(
    home_id: int, code: RequestCode, skip: int, kind: str, times: int
) -> None:
    nodes = FakeSet()
    outcome = nodes.failover(None, Fault(home_id, code, kind, times, skip))
    nodes.settle()
    assert len(nodes.masters) <= 1
    if outcome.result is Result.DONE:
        assert nodes.node(1).mastership.epoch == 2
        assert nodes.masters in ([1], []), "the new master, unless that has died since"
    elif outcome.result in (Result.REFUSED, Result.UNREACHABLE):
        assert nodes.node(1).mastership.epoch == 1
        assert nodes.masters == [0] or not nodes.node(0).alive
    else:
        assert "ha status" in outcome.message or "asks it by itself" in outcome.message
    _repaired_by_a_second_attempt(nodes)


@pytest.mark.parametrize(
    ("home_id", "code", "skip", "kind", "times"),
    [(*step, kind, times) for step, kind, times in itertools.product(FORCED_STEPS, KINDS, (1, 9))],
)
def test_whatever_fails_in_a_forced_switch_the_end_is_known_or_said_to_be_unknown(
    home_id: int, code: RequestCode, skip: int, kind: str, times: int
) -> None:
    nodes = FakeSet(3)
    nodes.node(0).alive = False
    outcome = nodes.failover(None, Fault(home_id, code, kind, times, skip))
    nodes.settle()
    assert len(nodes.masters) <= 1
    if outcome.result is Result.DONE:
        assert nodes.node(1).mastership.epoch == 1 + EPOCH_ROOM
    elif outcome.result in (Result.REFUSED, Result.UNREACHABLE):
        assert nodes.masters == []
        assert nodes.node(1).mastership.epoch == 1
    _repaired_by_a_second_attempt(nodes)


def _repaired_by_a_second_attempt(nodes: FakeSet) -> None:
    """Bring dead nodes back and fail over again; then there must be one master."""
    for home_id in range(len(nodes.nodes)):
        if not nodes.node(home_id).alive:
            nodes.revive(home_id)
    nodes.settle()
    again = nodes.failover(nodes.order(force=True))
    assert again.result is Result.DONE, again.message
    nodes.settle()
    assert len(nodes.masters) == 1


def test_the_second_operator_is_told_who_is_at_it_before_anything_has_changed() -> None:
    nodes = FakeSet()
    nodes.node(1).answer(
        TICKET,
        _packed(ticket_id="ab" * 8, broker_name="broker-a", operator="anna@ops-1", ttl_ms=30_000),
    )
    outcome = nodes.failover()
    assert outcome.result is Result.REFUSED
    assert "anna@ops-1 has been running a failover for 0 s" in outcome.message
    assert PAUSE not in [code for _, code in nodes.asked]


@pytest.mark.parametrize(
    ("position", "says"),
    [
        ("max_phy_offset", "was still 1 bytes behind"),
        ("metadata_position", "'s last changes of topics, groups or offsets"),
    ],
)
def test_a_target_that_does_not_hold_all_that_the_master_has_is_not_promoted(
    monkeypatch: pytest.MonkeyPatch, position: str, says: str
) -> None:
    nodes = FakeSet()
    answer = type(nodes.node(1)).answer

    def answer_less(node: Any, code: int, body: bytes) -> Answer | None:
        asked = msgpack.unpackb(body) if code == TICKET else {}
        # The node itself would wait for metadata that never come.
        found = answer(
            node, code, msgpack.packb(asked | {"metadata_position": 0}) if asked else body
        )
        if found is None or not found.is_success:
            return found
        if code != PAUSE and "log_offset" not in asked:
            return found
        fields = msgpack.unpackb(found.body) | {"metadata_position": 7}
        if "log_offset" in asked:
            fields[position] -= 1
        return attrs.evolve(found, body=msgpack.packb(fields))

    monkeypatch.setattr(type(nodes.node(1)), "answer", answer_less)
    outcome = nodes.failover()
    assert outcome.result is Result.REFUSED, outcome.message
    assert says in outcome.message
    asked = [code for _, code in nodes.asked]
    assert PAUSE in asked
    assert PROMOTE not in asked
    assert HAND_OVER not in asked
    nodes.settle()
    assert nodes.masters == [0], "the old master takes messages again"


def test_facts_that_have_shifted_since_the_plan_was_shown_change_nothing() -> None:
    nodes = FakeSet(3)
    order = nodes.order(to=1)
    shown = nodes.drive(dry_run(order))
    nodes.failover(nodes.order(to=2))
    outcome = nodes.failover(attrs.evolve(order, confirmed=shown))
    assert outcome.result is Result.REFUSED
    assert "the plan was to begin epoch 2, now it would be 3" in outcome.message
    assert nodes.masters == [2]


def test_without_a_name_server_nothing_is_tried() -> None:
    nodes = FakeSet()
    nodes.namesrv_alive = False
    outcome = nodes.failover()
    assert outcome.result is Result.UNREACHABLE
    assert "10.0.0.9:9876: connection refused" in outcome.message
    assert nodes.asked == []


def _packed(**fields: object) -> bytes:
    return bytes(msgpack.packb(fields))
