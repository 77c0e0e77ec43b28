"""`trioha message`: every command against a cluster, what it prints, and its exit codes."""

from __future__ import annotations

import json

import pytest
from support.clusters.operated import Operated

from trioha.cli.failures import ExitCode


def bodies(operator: Operated, *arguments: str) -> list[str]:
    return [one["body"] for one in operator.json("message", "browse", *arguments)["messages"]]


def test_a_message_is_sent_and_found_by_each_of_its_names(operator: Operated) -> None:
    operator.ok("topic", "create", "found", "--queues", "1")
    sent = operator.json(
        *("message", "send", "found", "hello", "--tag", "paid", "--key", "order-1"),
        *("--property", "who=anna"),
    )
    assert (sent["status"], sent["queue_offset"]) == ("SEND_OK", 0)
    place = f"{sent['broker']}:{sent['queue_id']}"
    for way in (
        [sent["offset_msg_id"]],
        ["-t", "found", sent["msg_id"]],
        ["-t", "found", "--key", "order-1"],
        ["-t", "found", "--queue", place, "--offset", "0"],
    ):
        (one,) = operator.json("message", "get", *way)["messages"]
        assert (one["body"], one["tags"], one["keys"]) == ("hello", "paid", ["order-1"])
        assert (one["msg_id"], one["broker"]) == (sent["msg_id"], sent["broker"])
        assert one["properties"]["who"] == "anna"
    text = operator.ok("message", "get", "-t", "found", sent["msg_id"])
    assert "order-1" in text
    assert text.endswith("\nhello\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["get", "nonsense"], 1, "no message nonsense; a client's id is found with -t TOPIC"),
        (["get", "-t", "missing", "X"], 1, "no message X in missing"),
        (["get", "-t", "missing", "--key", "X"], 1, "has the key X"),
        (["get", "-t", "nosuch", "--key", "X"], 1, "no topic nosuch"),
        (["get", "-t", "missing"], 2, "give MSG_ID, or --key, or --queue and --offset"),
        (["get", "--key", "X"], 2, "need -t TOPIC"),
        (
            ["get", "-t", "missing", "--queue", "broker-a:0", "--offset", "9"],
            1,
            "queue 0 of broker-a has no message at offset 9 of missing; it holds 0 to 0",
        ),
        (["browse", "nosuch"], 1, "no topic nosuch"),
        (["browse", "missing", "--body", "("], 2, "is no regular expression"),
        (["browse", "missing", "--from", "soon"], 2, 'Invalid time "soon"'),
        (["browse", "missing", "--queue", "broker-z:0"], 1, "has no queue broker-z:0"),
        (["send", "nosuch", "x"], 1, "no topic nosuch"),
        (["send", "missing", "x", "--queue", "broker-a:7"], 1, "takes no messages; these do:"),
        (["send", "missing", "x", "--property", "novalue"], 2, "--property is NAME=VALUE"),
        (["send", "missing", "x", "--tag", "a\x01b"], 1, "the bytes 1 and 2 separate properties"),
        (["resend", "-t", "missing", "--all", "--yes"], 1, "no message of missing matches"),
        (["resend", "-t", "missing", "--yes"], 2, "give MSG_ID, or filters, or --all"),
        (["resend", "X", "-t", "missing", "--queue", "broker-a:0"], 2, "MSG_ID names one message"),
        (["resend", "X", "-t", "missing", "--from", "1h ago"], 2, "MSG_ID names one message"),
        (["trace", "X", "-t", "missing"], 1, "no message X in missing"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    operator: Operated, arguments: list[str], code: int, says: str
) -> None:
    operator.trioha("topic", "create", "missing", "--queues", "1")
    assert says in operator.refused(code, "message", *arguments)


def test_messages_are_browsed_by_tag_key_body_place_and_time(operator: Operated) -> None:
    operator.ok("topic", "create", "browsed", "--queues", "1")
    operator.send("browsed", 4, tags="new", keys="a")
    operator.send("browsed", 4, tags="old", keys="b")
    assert len(bodies(operator, "browsed")) == 8
    assert len(bodies(operator, "browsed", "--count", "3")) == 3
    assert bodies(operator, "browsed", "--tag", "new || other", "--body", "[12]") == ["1", "2"]
    assert len(bodies(operator, "browsed", "--key", "b")) == 4
    assert len(bodies(operator, "browsed", "--from", "1h ago")) == 8
    assert bodies(operator, "browsed", "--from", "now") == []
    assert len(bodies(operator, "browsed", "--queue", "broker-a:0")) == 4
    assert len(bodies(operator, "browsed", "--offset", "3")) == 2
    assert operator.ok("message", "browse", "browsed", "-o", "wide").startswith("QUEUE ")
    # No progress: no group has read the topic.
    assert operator.json("topic", "describe", "browsed")["groups"] == []


def test_a_tail_begins_now_and_ends_at_its_count(operator: Operated) -> None:
    operator.ok("topic", "create", "tailed", "--queues", "1")
    operator.send("tailed", 2)
    with operator.sending("tailed", every_s=0.05):
        done = operator.trioha("message", "tail", "tailed", "--count", "2", "-o", "json")
        text = operator.ok("message", "tail", "tailed", "--count", "1")
    assert done.code == ExitCode.OK
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert len(lines) == 2
    assert {line["body"] for line in lines} == {"tick"}
    assert text.endswith("tick\n")


def test_a_message_is_sent_again_once(operator: Operated) -> None:
    operator.ok("topic", "create", "again", "--queues", "1")
    ids = operator.send("again", 4, keys="k")
    planned = operator.json("message", "resend", "-t", "again", ids[0], "--dry-run")
    assert (planned["sent"], planned["done"], planned["dry_run"]) == (1, False, True)
    first = operator.json("message", "resend", "-t", "again", ids[0], "--yes")
    assert (first["sent"], first["present"], first["done"]) == (1, 0, True)
    every = operator.json("message", "resend", "-t", "again", "--key", "k", "--yes")
    assert (every["found"], every["sent"], every["present"]) == (4, 3, 1)
    once_more = operator.json("message", "resend", "-t", "again", "--all", "--yes")
    assert (once_more["found"], once_more["sent"], once_more["present"]) == (4, 0, 4)
    assert len(bodies(operator, "again")) == 8
    operator.ok("topic", "create", "elsewhere", "--queues", "1")
    shown = operator.ok(
        *("message", "resend", "-t", "again", "--all", "--to", "elsewhere", "--yes"),
        *("--rate", "1000", "--from", "1h ago", "--until", "now"),
    )
    assert "8 sent, 0 sent before" in shown
    assert len(bodies(operator, "elsewhere")) == 8
    said = operator.trioha("message", "resend", "-t", "again", "--all", "--to", "gone", "--yes")
    assert said.code == ExitCode.FAILED
    assert "the target gone does not exist" in said.out


def test_a_trace_says_which_groups_have_passed_the_message(operator: Operated) -> None:
    operator.ok("topic", "create", "traced", "--queues", "1")
    ids = operator.send("traced", 2)
    assert operator.consume("traced", "tracers") == 2
    operator.ok("group", "reset-offsets", "tracers", "-t", "traced", "--to", "latest")
    found = operator.json("message", "trace", ids[0], "-t", "traced")
    assert [(one["group"], one["state"]) for one in found["groups"]] == [("tracers", "consumed")]
    text = operator.ok("message", "trace", ids[0], "-t", "traced")
    assert "No client told of it: tracing is off" in text
