"""`trioha group`: every command against a cluster, what it prints, and its exit codes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.clusters.operated import Operated

from trioha.cli.failures import ExitCode


def offsets(operator: Operated, group: str, topic: str) -> dict[tuple[str, int], int]:
    detail = operator.json("group", "describe", group)
    return {
        (one["broker"], one["queue_id"]): one["offset"]
        for one in detail["queues"]
        if one["topic"] == topic
    }


def read_by(operator: Operated, topic: str, group: str, count: int = 12) -> None:
    operator.ok("topic", "create", topic, "--queues", "2")
    operator.send(topic, count)
    assert operator.consume(topic, group) == count


def test_a_group_is_listed_and_described(operator: Operated) -> None:
    read_by(operator, "listed", "listed-readers")
    operator.send("listed", 4)
    (line,) = [
        one for one in operator.json("group", "list")["groups"] if one["name"] == "listed-readers"
    ]
    assert line == {
        "name": "listed-readers",
        "members": 0,
        "model": "",
        "topics": ["listed"],
        "lag": 4,
    }
    detail = operator.json("group", "describe", "listed-readers")
    assert detail["lag"] == 4
    (topic,) = [one for one in detail["topics"] if one["topic"] == "listed"]
    assert topic["lag"] == 4
    assert topic["lag_s"] > 0
    assert all(one["min_offset"] == 0 for one in detail["queues"])
    assert "nobody is connected" in operator.ok("group", "describe", "listed-readers")
    assert "listed-readers" in operator.ok("group", "list", "--all", "-o", "wide")
    assert operator.json("topic", "describe", "listed")["groups"] == ["listed-readers"]


def test_connected_members_are_shown(operator: Operated) -> None:
    operator.ok("topic", "create", "joined", "--queues", "1")
    with operator.reading("joined", "joiners"):
        detail = operator.json("group", "describe", "joiners")
        assert [one["language"] for one in detail["members"]] == ["PYTHON"]
        assert detail["members"][0]["version"] == "4.9.8"
        assert detail["model"] == "CLUSTERING"
        assert detail["subscriptions"]["joined"] == "*"
        assert "MEMBER" in operator.ok("group", "describe", "joiners", "-o", "wide")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], 0),
        (["--to", "latest"], 3),
        (["--to-offset", "2"], 2),
        (["--by-duration", "1h"], 0),
        (["--to", "2h ago"], 0),
        (["--to", "now"], 3),
    ],
)
def test_offsets_are_set_while_nobody_is_connected(
    operator: Operated, where: list[str], expected: int
) -> None:
    topic, group = f"set-{where[0]}-{where[1]}".replace(" ", "-"), "setters"
    read_by(operator, topic, group)
    arguments = ["group", "reset-offsets", group, "-t", topic, *where]
    planned = operator.json(*arguments, "--dry-run")
    assert not planned["done"]
    assert {one["after"] for one in planned["queues"]} == {expected}
    assert set(offsets(operator, group, topic).values()) == {3}
    assert operator.json(*arguments, "--yes")["done"]
    assert set(offsets(operator, group, topic).values()) == {expected}


def test_one_queue_alone_is_set(operator: Operated) -> None:
    read_by(operator, "single", "singles")
    shown = operator.ok(
        *("group", "reset-offsets", "singles", "-t", "single"),
        *("--queue", "broker-a:1", "--to", "earliest", "--yes"),
    )
    assert "data loss  3 messages consumed again" in shown
    assert offsets(operator, "singles", "single") == {
        ("broker-a", 0): 3,
        ("broker-a", 1): 0,
        ("broker-b", 0): 3,
        ("broker-b", 1): 3,
    }
    operator.ok("group", "skip", "singles", "-t", "single", "--count", "1", "--yes")
    assert offsets(operator, "singles", "single")["broker-a", 1] == 1
    operator.ok("group", "skip", "singles", "-t", "single", "--yes")
    assert set(offsets(operator, "singles", "single").values()) == {3}


def test_offsets_are_pushed_to_connected_members(operator: Operated) -> None:
    """Members would commit their own offsets over what an operator commits for them."""
    operator.ok("topic", "create", "pushed", "--queues", "2")
    operator.send("pushed", 12)
    seen: list[bytes] = []
    again = threading.Event()

    async def note(message: Any) -> None:
        seen.append(message.body)
        if len(seen) == 12 + 8:
            again.set()

    with operator.reading("pushed", "pushees", note):
        operator.call(lambda cluster: cluster.wait_level("pushees"))
        assert len(seen) == 12
        done = operator.json(
            "group", "reset-offsets", "pushees", "-t", "pushed", "--to-offset", "1", "--yes"
        )
        assert len(done["members"]) == 1
        again.wait(20)
        assert len(seen) == 12 + 8


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--to-offset", "300"], 1, "offset 300 is outside queue 0 of broker-a, which holds 0 to"),
        (["--to", "yesterday"], 2, 'Invalid time "yesterday"'),
        (["--by-duration", "soon"], 2, "is not like 30s, 5m, 2h or 1d"),
        (["--to", "latest", "--to-offset", "1"], 2, "give one of --to, --to-offset"),
        (["--to", "latest", "--queue", "broker-a"], 2, "'broker-a' is not BROKER:ID"),
        (["--to", "latest", "--queue", "broker-z:0"], 1, "has no queue broker-z:0; its queues are"),
    ],
)
def test_a_wrong_reset_changes_nothing(
    operator: Operated, arguments: list[str], code: int, says: str
) -> None:
    if "bounds" not in operator.ok("topic", "list"):
        read_by(operator, "bounds", "bounded")
    done = operator.trioha("group", "reset-offsets", "bounded", "-t", "bounds", "--yes", *arguments)
    assert done.code == code
    assert says in done.out + done.err
    assert set(offsets(operator, "bounded", "bounds").values()) == {3}


def test_offsets_are_cloned(operator: Operated) -> None:
    read_by(operator, "cloned", "original")
    assert operator.json("group", "clone-offsets", "original", "copy", "-t", "cloned")["done"]
    assert offsets(operator, "copy", "cloned") == offsets(operator, "original", "cloned")
    assert "copy" in [one["name"] for one in operator.json("group", "list")["groups"]]
    said = operator.refused(ExitCode.FAILED, "group", "clone-offsets", "orignal", "copy")
    assert "no group orignal; did you mean original?" in said
    with operator.reading("cloned", "copy"):
        done = operator.trioha("group", "clone-offsets", "original", "copy", "--yes")
        assert done.code == ExitCode.FAILED
        assert "is connected and would write its own progress" in done.out


def test_a_group_is_created_altered_and_deleted(operator: Operated) -> None:
    assert operator.json("group", "create", "made", "--retry-max", "5")["settings"] == {
        "consume_enable": True,
        "broadcast_enable": True,
        "retry_queues": 1,
        "retry_max_times": 5,
    }
    assert "exists already" in operator.refused(ExitCode.FAILED, "group", "create", "made")
    altered = operator.json("group", "alter", "made", "--no-consume")
    assert altered["before"]["consume_enable"]
    assert altered["settings"]["retry_max_times"] == 5
    assert "nothing to change" in operator.refused(ExitCode.USAGE, "group", "alter", "made")
    operator.ok("topic", "create", "made-for", "--queues", "1")
    operator.ok("group", "alter", "made", "--consume")
    operator.send("made-for", 2)
    assert operator.consume("made-for", "made") == 2
    assert "progress in %RETRY%made, made-for" in operator.ok(
        "group", "delete", "made", "--dry-run"
    )
    with operator.reading("made-for", "made"):
        done = operator.trioha("group", "delete", "made", "--yes")
        assert done.code == ExitCode.FAILED
        assert "is connected; stop it first" in done.out
    operator.ok("group", "delete", "made", "--yes")
    assert "no group made" in operator.refused(ExitCode.FAILED, "group", "describe", "made")
    names = {one["name"] for one in operator.json("topic", "list", "--all")["topics"]}
    assert "%RETRY%made" not in names


def test_each_broker_keeps_the_settings_that_are_not_asked_to_change(operator: Operated) -> None:
    operator.ok("group", "create", "uneven", "--retry-max", "5")
    operator.ok("group", "alter", "uneven", "--retry-max", "7", "--no-broadcast", "-b", "broker-b")
    text = operator.ok("group", "alter", "uneven", "--no-consume")
    assert "broker-a  now     consume no, broadcast yes, retry queues 1, redeliveries 5" in text
    assert "broker-b  now     consume no, broadcast no, retry queues 1, redeliveries 7" in text
    told = operator.json("group", "alter", "uneven", "--consume", "--dry-run")
    assert {name: one["retry_max_times"] for name, one in told["after_each"].items()} == {
        "broker-a": 5,
        "broker-b": 7,
    }
    assert not any(one["consume_enable"] for one in told["before_each"].values())


def test_another_name_typed_changes_nothing(
    operator: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(operator, "typed", "typists")
    monkeypatch.setattr("trioha.cli.confirmation.is_somebody_there", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_, **__: "typist")
    done = operator.trioha("group", "delete", "typists")
    assert (done.code, done.err) == (1, "That is another name; nothing has been done.\n")
    assert set(offsets(operator, "typists", "typed").values()) == {3}
    monkeypatch.setattr("click.prompt", lambda *_, **__: " typists ")
    assert operator.trioha("group", "delete", "typists").code == 0
