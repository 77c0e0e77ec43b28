"""`trioha topic`: every command against a cluster, what it prints, and its exit codes."""

from __future__ import annotations

from functools import partial

import pytest
import yaml
from support.clusters.operated import Operated

from trioha.cli import run
from trioha.cli.failures import ExitCode
from trioha.testing import TriohaCluster
from trioha.wire import fastjson
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand


def test_a_topic_is_created_listed_described_altered_and_deleted(operator: Operated) -> None:
    planned = operator.json("topic", "create", "life", "--queues", "2", "--dry-run")
    assert not planned["done"]
    operator.refused(ExitCode.FAILED, "topic", "describe", "life")
    assert operator.ok("topic", "create", "life", "--queues", "2").startswith(
        "topic life is created on broker-a, broker-b\n"
    )
    said = operator.refused(ExitCode.FAILED, "topic", "create", "life")
    assert "exists already on broker-a, broker-b; `trioha topic alter life` changes it" in said
    (line,) = [one for one in operator.json("topic", "list")["topics"] if one["name"] == "life"]
    assert (line["read_queues"], line["write_queues"], line["perm"]) == (4, 4, "rw")

    operator.send("life", 8)
    detail = operator.json("topic", "describe", "life")
    assert (detail["messages"], len(detail["queues"]), detail["order"]) == (8, 4, False)
    assert "life (normal)" in operator.ok("topic", "describe", "life", "-o", "wide")

    altered = operator.json("topic", "alter", "life", "--perm", "r", "--order")
    assert [one["perm"] for one in altered["brokers"]] == ["r", "r"]
    assert operator.json("topic", "describe", "life")["order"]
    assert "ordered: no" in operator.ok("topic", "alter", "life", "--no-order", "--queues", "3")

    shown = operator.ok("topic", "delete", "life", "--dry-run")
    assert "data loss  8 messages in 6 queues" in shown
    operator.ok("topic", "delete", "life", "--yes")
    assert "no topic life" in operator.refused(ExitCode.FAILED, "topic", "delete", "life")
    # Its queues begin anew: no consumer skips what comes under old offsets.
    operator.ok("topic", "create", "life")
    assert operator.json("topic", "describe", "life")["messages"] == 0
    operator.ok("topic", "delete", "life", "--yes")


def order_of(operator: Operated, topic: str) -> str:
    entries = operator.json("namesrv", "kv", "list", "ORDER_TOPIC_CONFIG")["entries"]
    return str(entries.get(topic, ""))


def test_the_entry_of_an_ordered_topic_follows_its_queues(operator: Operated) -> None:
    """A change on one broker leaves the other broker in the entry, as with mqadmin."""
    operator.ok("topic", "create", "steps", "--queues", "2", "--order")
    assert order_of(operator, "steps") == "broker-a:2;broker-b:2"
    operator.ok("topic", "alter", "steps", "--queues", "4")
    assert order_of(operator, "steps") == "broker-a:4;broker-b:4"
    operator.ok("topic", "alter", "steps", "--queues", "6", "--order", "-b", "broker-a")
    assert order_of(operator, "steps") == "broker-a:6;broker-b:4"
    operator.ok("topic", "alter", "steps", "--write-queues", "5", "-b", "broker-b")
    assert order_of(operator, "steps") == "broker-a:6;broker-b:5"
    operator.ok("topic", "alter", "steps", "--no-order", "-b", "broker-a")
    assert order_of(operator, "steps") == "broker-b:5"
    operator.ok("topic", "alter", "steps", "--queues", "3")
    assert order_of(operator, "steps") == "broker-b:3"
    operator.ok("topic", "alter", "steps", "--no-order")
    assert order_of(operator, "steps") == ""
    operator.ok("topic", "alter", "steps", "--perm", "r")
    assert order_of(operator, "steps") == ""


def test_an_alteration_keeps_what_it_is_not_asked_to_change(operator: Operated) -> None:
    operator.ok("topic", "create", "flagged", "--queues", "2")

    async def config(cluster: TriohaCluster, name: str) -> TopicConfig:
        address = cluster.broker(name, 0).address
        asked = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": "flagged"})
        answer = await cluster.observer.request(address, asked)
        return TopicConfig.from_dict(fastjson.loads(answer.body_bytes()))

    async def flag(cluster: TriohaCluster) -> None:
        fields: dict[str, ExtValue] = {
            "topic": "flagged",
            "defaultTopic": "TBW102",
            "perm": 6,
            "topicSysFlag": 2,
        }
        fields |= {"readQueueNums": 2, "writeQueueNums": 2, "topicFilterType": "MULTI_TAG"}
        asked = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        answer = await cluster.observer.request(cluster.broker("broker-b", 0).address, asked)
        assert answer.code == 0

    operator.call(flag)
    operator.ok("topic", "alter", "flagged", "--queues", "3")
    for name, expected in (("broker-a", ("SINGLE_TAG", 0)), ("broker-b", ("MULTI_TAG", 2))):
        found = operator.call(partial(config, name=name))
        assert (found.topic_filter_type, found.topic_sys_flag) == expected
        assert found.read_queue_nums == 3


def test_queues_that_hold_messages_are_not_hidden_without_asking(operator: Operated) -> None:
    operator.ok("topic", "create", "shrink", "--queues", "2")
    operator.send("shrink", 8)
    shown = operator.ok("topic", "alter", "shrink", "--read-queues", "1", "--dry-run")
    assert "2 messages in queue 1 of broker-a: no consumer reads them any more" in shown
    said = operator.refused(ExitCode.USAGE, "topic", "alter", "shrink", "--read-queues", "1")
    assert "nobody is here to type shrink: give --yes or --dry-run" in said
    said = operator.refused(ExitCode.USAGE, "topic", "delete", "shrink", "-o", "json")
    assert "-o json asks no questions" in said
    operator.ok("topic", "alter", "shrink", "--read-queues", "1", "--yes")


def test_a_topic_that_a_connected_group_reads_is_not_deleted(operator: Operated) -> None:
    operator.ok("topic", "create", "busy", "--queues", "1")

    with operator.reading("busy", "busy-readers"):
        done = operator.trioha("topic", "delete", "busy", "--yes")
        assert done.code == ExitCode.FAILED
        assert "! group busy-readers is connected and reads busy; stop it first" in done.out
        # It is empty: nothing is lost but what the group would have got.
        said = operator.refused(ExitCode.USAGE, "topic", "delete", "busy", "--force")
        assert "nobody is here to type busy" in said
        operator.ok("topic", "delete", "busy", "--yes", "--force")


def test_one_broker_alone_is_chosen(operator: Operated) -> None:
    operator.ok("topic", "create", "alone", "-b", "broker-b", "--read-queues", "3")
    (line,) = [one for one in operator.json("topic", "list")["topics"] if one["name"] == "alone"]
    assert (line["brokers"], line["read_queues"], line["write_queues"]) == (["broker-b"], 3, 8)
    said = operator.refused(ExitCode.FAILED, "topic", "create", "other", "-b", "broker-c")
    assert "no broker broker-c; did you mean broker-b?" in said or "broker-a" in said
    said = operator.refused(ExitCode.FAILED, "topic", "create", "x", "--cluster", "DefaultCluter")
    assert "no cluster DefaultCluter; did you mean DefaultCluster?" in said


def test_the_system_s_topics_are_kept(operator: Operated) -> None:
    names = {one["name"] for one in operator.json("topic", "list")["topics"]}
    everything = {one["name"] for one in operator.json("topic", "list", "--all")["topics"]}
    assert "TBW102" in everything - names
    said = operator.refused(ExitCode.FAILED, "topic", "delete", "TBW102", "--yes")
    assert "is a topic of the system's own and can not be deleted" in said
    said = operator.refused(ExitCode.FAILED, "topic", "create", "rmq_sys_x")
    assert "choose another" in said


def test_what_goes_through_a_topic(operator: Operated) -> None:
    operator.ok("topic", "create", "traffic", "--queues", "1")
    assert operator.json("topic", "stats", "traffic")["name"] == "traffic"
    assert operator.ok("topic", "stats", "traffic").startswith("MESSAGES ")
    assert yaml.safe_load(operator.ok("topic", "stats", "traffic", "-o", "yaml"))["groups"] == {}


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a b", "", "x" * 128, "../etc"])
def test_an_illegal_name_is_a_usage_error_without_control_characters(
    operator: Operated, name: str
) -> None:
    said = operator.refused(ExitCode.USAGE, "topic", "describe", name)
    assert "\x1b" not in said


def test_a_wrong_name_suggests_the_nearest(operator: Operated) -> None:
    operator.ok("topic", "create", "invoices")
    said = operator.refused(ExitCode.FAILED, "topic", "describe", "invoises")
    assert said == "trioha: no topic invoises; did you mean invoices?\n"


def test_nothing_to_change_is_a_usage_error(operator: Operated) -> None:
    assert "nothing to change" in operator.refused(ExitCode.USAGE, "topic", "alter", "x")


def test_no_name_server_is_exit_code_4() -> None:
    assert run(["topic", "list", "-n", "127.0.0.1:1"]) == ExitCode.UNREACHABLE
