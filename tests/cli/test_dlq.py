"""`trioha dlq`: dead letters listed, read, sent again and purged."""

from __future__ import annotations

import pytest
from support.clusters.operated import Operated

from trioha.cli.failures import ExitCode
from trioha.client.delivery import ConsumeLater
from trioha.client.driving import drive
from trioha.client.message import ReceivedMessage
from trioha.jobs.queue_locks import HeldQueues
from trioha.jobs.telling import JobScope
from trioha.testing import TriohaCluster
from trioha.wire.bodies import MessageQueue


def bury(operator: Operated, topic: str, group: str, count: int) -> None:
    """Let a group fail all of a topic at once."""
    operator.ok("topic", "create", topic, "--queues", "1")
    operator.send(topic, count)

    async def fail(message: ReceivedMessage) -> None:
        raise ConsumeLater(-1)

    with operator.reading(topic, group, fail):
        operator.eventually(lambda: count_of(operator, group) == count)


def count_of(operator: Operated, group: str) -> int:
    queues = operator.json("dlq", "list")["queues"]
    return sum(one["messages"] for one in queues if one["group"] == group)


def test_dead_letters_go_back_to_their_group_alone_and_once(operator: Operated) -> None:
    bury(operator, "mail", "mailers", 6)
    assert operator.consume("mail", "others") == 6
    found = operator.json("dlq", "browse", "mailers")["messages"]
    assert sorted(one["body"] for one in found) == list("012345")
    assert "mailers" in operator.ok("dlq", "list")
    assert "ID" in operator.ok("dlq", "browse", "mailers")

    assert operator.json("dlq", "resend", "mailers", "--dry-run")["sent"] == 6
    one = operator.json("dlq", "resend", "mailers", found[0]["msg_id"], "--yes")
    assert (one["found"], one["sent"]) == (1, 1)
    rest = operator.json("dlq", "resend", "mailers", "--yes", "--rate", "1000")
    assert (rest["sent"], rest["present"], rest["done"]) == (5, 1, True)
    assert "0 sent, 6 sent before" in operator.ok("dlq", "resend", "mailers", "--yes")

    seen: list[tuple[str, bytes]] = []

    async def note(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.body))

    with operator.reading("mail", "mailers", note):
        operator.eventually(lambda: len(seen) == 6)
    assert sorted(seen) == [("mail", b"%d" % number) for number in range(6)]
    (progress,) = [
        one for one in operator.json("group", "list")["groups"] if one["name"] == "others"
    ]
    assert progress["lag"] == 0

    assert "data loss  6 dead letters" in operator.ok("dlq", "purge", "mailers", "--dry-run")
    assert operator.json("dlq", "purge", "mailers", "--yes")["done"]
    said = operator.refused(ExitCode.FAILED, "dlq", "browse", "mailers")
    assert "mailers" in said


def test_a_dead_letter_whose_topic_is_gone_is_not_sent_but_named(operator: Operated) -> None:
    bury(operator, "closed", "closers", 2)
    operator.ok("topic", "delete", "closed", "--yes", "--force")
    done = operator.trioha("dlq", "resend", "closers", "--yes")
    assert done.code == ExitCode.FAILED
    assert "its topic closed is gone; --to NAME sends it elsewhere" in done.out
    operator.ok("topic", "create", "reopened", "--queues", "1")
    assert operator.json("dlq", "resend", "closers", "--to", "reopened", "--yes")["sent"] == 2
    assert operator.consume("reopened", "closers") == 2


@pytest.mark.parametrize("verb", ["browse", "resend", "purge"])
def test_a_group_without_dead_letters_is_exit_code_1(operator: Operated, verb: str) -> None:
    flags = [] if verb == "browse" else ["--yes"]
    assert "nosuch" in operator.refused(ExitCode.FAILED, "dlq", verb, "nosuch", *flags)


def test_to_the_origin_means_every_group(operator: Operated) -> None:
    bury(operator, "wide", "widest", 2)
    assert operator.json("dlq", "resend", "widest", "--to-origin", "--yes")["sent"] == 2
    assert operator.json("topic", "describe", "wide")["messages"] == 4


@pytest.mark.parametrize("verb", ["resend", "purge"])
def test_while_another_operator_resends_a_dlq_it_is_left_alone(
    operator: Operated, verb: str
) -> None:
    group = f"{verb}-locked"
    bury(operator, f"mail-of-{group}", group, 2)

    async def lock(cluster: TriohaCluster) -> HeldQueues:
        queues = [MessageQueue(f"%DLQ%{group}", f"broker-{one}", 0) for one in "ab"]
        locks = HeldQueues(JobScope((cluster.namesrv,)), "anna@ops-1", queues)
        await drive(locks.take(), cluster.observer)
        return locks

    locks = operator.call(lock)
    said = operator.refused(ExitCode.FAILED, "dlq", verb, group, "--yes")
    assert f"another operator resends or purges queue 0 of %DLQ%{group} at broker-" in said
    assert count_of(operator, group) == 2
    operator.call(lambda cluster: drive(locks.give_back(), cluster.observer))
    operator.ok("dlq", verb, group, "--yes")


def test_a_purge_deletes_no_dead_letter_that_its_plan_did_not_know(
    operator: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(operator, "growing", "growers", 2)

    def grow(*_: object, **__: object) -> str:
        operator.send("%DLQ%growers", 1)
        return "growers"

    monkeypatch.setattr("trioha.cli.confirmation.is_somebody_there", lambda: True)
    monkeypatch.setattr("click.prompt", grow)
    done = operator.trioha("dlq", "purge", "growers")
    assert done.code == ExitCode.FAILED
    assert "1 dead letter of growers came after the plan was made" in done.err
    assert count_of(operator, "growers") == 3


def test_two_targets_are_a_wrong_command_line(operator: Operated) -> None:
    arguments = ("dlq", "resend", "any", "--to", "x", "--to-origin", "--yes")
    assert "give --to or --to-origin, not both" in operator.refused(ExitCode.USAGE, *arguments)
