"""Epochs in `trioha ha status`, and the disagreements that it reports."""

from __future__ import annotations

from typing import Any

import pytest

from trioha.cli.ha_terms import disagreements, problems_of_terms, terms_in_words

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def term(epoch: int, home_id: int, start: int = 0, nonce: str = "") -> dict[str, Any]:
    return {
        "epoch": epoch,
        "home_id": home_id,
        "start_offset": start,
        "nonce": nonce or f"{epoch:016x}",
        "sync": True,
        "began_wall_ms": 1_700_000_000_000 + epoch,
    }


def node(address: str, home_id: int, standing: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "broker-a",
        "address": address,
        "home_id": home_id,
        "standing": standing,
        "epoch": 2,
        "log_epoch": 2,
        "epochs": [term(1, 0), term(2, 1, 500)],
        "follows": "" if standing == "MASTER" else B,
        "fenced_by": "",
        "cuts": [],
        "namesrvs": {"ns:9876": B},
        **changes,
    }


MASTER = node(B, 1, "MASTER")
SLAVE = node(A, 0, "SLAVE")


def test_a_set_that_was_failed_over_shows_who_was_master_when() -> None:
    broker_table, history = terms_in_words([SLAVE, MASTER])
    assert "LOG EPOCH" in broker_table
    assert [line.split()[1] for line in history.splitlines()[1:]] == ["1", "2"]
    assert "500" in history.splitlines()[2]
    assert disagreements([SLAVE, MASTER]) == []


def test_a_set_that_never_was_has_no_history_to_show() -> None:
    first = {"epoch": 1, "log_epoch": 1, "epochs": [term(1, 0)], "namesrvs": {"ns:9876": A}}
    assert len(terms_in_words([node(A, 0, "MASTER", **first)])) == 1
    assert terms_in_words([{"name": "java", "role": "SLAVE"}]) == []


@pytest.mark.parametrize(
    ("brokers", "says"),
    [
        (
            [MASTER, node(A, 0, "MASTER", epoch=1, epochs=[term(1, 0)])],
            "2 nodes take themselves for master: 10.0.0.2:10911 (epoch 2), 10.0.0.1:10911",
        ),
        (
            [node(A, 0, "MASTER", epoch=1), node(C, 2, "SLAVE", epoch=2)],
            "10.0.0.1:10911 is master of epoch 1, and epoch 2 is known to another node",
        ),
        (
            [MASTER, node(C, 2, "SLAVE", epochs=[term(1, 0), term(2, 2, nonce="ff")])],
            "epoch 2 was begun 2 times, by as many operators",
        ),
        (
            [MASTER, node(C, 2, "SLAVE", follows=A)],
            "10.0.0.1:10911: node 2; 10.0.0.2:10911: node 1",
        ),
        (
            [node(B, 1, "MASTER", namesrvs={"ns:9876": A}), SLAVE],
            "10.0.0.1:10911: name server ns:9876",
        ),
    ],
)
def test_nodes_that_contradict_each_other_are_named(
    brokers: list[dict[str, Any]], says: str
) -> None:
    assert says in "\n".join(disagreements(brokers))


def test_sets_are_judged_one_by_one() -> None:
    other = {**MASTER, "name": "broker-b", "address": C, "namesrvs": {"ns:9876": C}}
    assert disagreements([SLAVE, MASTER, other]) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fenced_by": "10.0.0.9:1 holds epoch 7"}, "takes no writes: 10.0.0.9:1 holds epoch 7"),
        ({"standing": "FENCED"}, "knows no master to follow"),
        ({"registered": False}, "is of this set and not registered"),
        (
            {"cuts": [{"path": "/s/cut/1-2-3", "begin": 0, "end": 2048, "wall_ms": 3}]},
            "2.0 KiB that it gave up are in /s/cut/1-2-3; `trioha ha recover`",
        ),
    ],
)
def test_what_a_node_says_of_itself_is_told(changes: dict[str, Any], says: str) -> None:
    assert says in "\n".join(problems_of_terms({**SLAVE, **changes}, "broker-a 0"))
