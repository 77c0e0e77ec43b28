"""Stores that Java's 4.9 broker left: stopped in order, killed, and of a DLEDGER group."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.suite.archives import unpack

from trioha.analysis.explain.case import Case, open_case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.group import explain_group
from trioha.analysis.explain.message import explain_message
from trioha.analysis.inputs import open_inputs

GOLDEN = Path(__file__).parents[2] / "store" / "golden"
GROUP = "golden-readers"
SHOWN = 12
"""Messages of each store that are asked for."""


@pytest.fixture(scope="module", params=["java-clean-stop", "java-killed", "java-dledger"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def case(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    root = tmp_path_factory.mktemp(name)
    unpack(GOLDEN / f"{name}.tar.xz", root)
    with open_case(open_inputs([str(root)])) as case:
        yield case


def verdicts(answer: Explanation) -> dict[str, str]:
    return {verdict.code: verdict.text for verdict in answer.verdicts}


def test_messages_are_where_their_consumer_saw_them(name: str, case: Case) -> None:
    told: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())
    keyed = [one for one in told if one["keys"] and "batch" not in one["keys"]]
    assert len(keyed) > 50
    for one in keyed[:: len(keyed) // SHOWN]:
        answer = explain_message(case, one["keys"].split()[0], by_id=False)
        found = verdicts(answer)
        assert list(found) == ["stored", "consumed"]
        place = f"queue {one['queue_id']}, queue offset {one['queue_offset']},"
        assert f"in topic golden, {place}" in found["stored"]
        assert f"Group {GROUP} has consumed it" in found["consumed"]
        assert any("No journal was given" in text for text in answer.unknown)


def test_a_delayed_message_came_a_second_later(case: Case) -> None:
    (row,) = case.engine.query(
        "SELECT unique_key FROM commitlog_full WHERE topic = 'SCHEDULE_TOPIC_XXXX'"
    )
    found = verdicts(explain_message(case, row["unique_key"], by_id=True))
    assert list(found) == ["stored", "delivered after delay", "consumed"]
    assert "level 1, 1.0 s by RocketMQ's default levels" in found["delivered after delay"]
    assert "later than" not in found["delivered after delay"]


def test_the_group_has_consumed_all(case: Case) -> None:
    last_ms = max(bounds.last_ms for bounds in case.bounds.values())
    found = verdicts(explain_group(case, GROUP, last_ms))
    assert "Topic golden had 97 messages" in found["stored until then"]
    assert "The group has consumed all of topic golden" in found["consumed"]
