"""Questions of rocketmq-exporter and rocketmq-dashboard, asked of both makes by Java's client.

Neither is on Maven Central or npm, so their questions are asked in their place: each method of
DefaultMQAdminExt that rocketmq-exporter (22 October 2024) or rocketmq-dashboard 1.0.0 and 2.0.0
calls, with arguments like theirs. The answers of both makes have to have the same keys and kinds of
values, the same offsets, and errors the same codes. Of its state while it runs ours tells more than
Java's, and of its configuration not every setting of Java's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import pytest
from support.clusters.meeting import BOTH, NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, Sent, StockConsumer, StockProducer
from support.peers.java_tools import (
    QUICK_CONSUMER,
    CallFailed,
    JavaCalls,
    eventually,
    java_calls,
)

CLUSTER = "DefaultCluster"
QUEUES = 2
COUNT = 8
TOLD_S = 60.0

CALLS: dict[str, tuple[Any, ...]] = {
    # Name: a method and its arguments; words in capitals stand for what a scene has.
    "cluster": ("examineBrokerClusterInfo",),
    "topics": ("fetchAllTopicList",),
    "offsets of a topic": ("examineTopicStats", "TOPIC"),
    "offsets of no topic": ("examineTopicStats", "nosuchtopic"),
    "route": ("examineTopicRouteInfo", "TOPIC"),
    "route of no topic": ("examineTopicRouteInfo", "nosuchtopic"),
    "readers of a topic": ("queryTopicConsumeByWho", "TOPIC"),
    "configuration of a topic": ("examineTopicConfig", "BROKER", "TOPIC"),
    "all producers": ("getAllProducerInfo", "BROKER"),
    "producers of a group": ("examineProducerConnectionInfo", "producers", "TOPIC"),
    "producers of no group": ("examineProducerConnectionInfo", "nosuchgroup", "TOPIC"),
    "members": ("examineConsumerConnectionInfo", "LIVE"),
    "members at a broker": ("examineConsumerConnectionInfo", "LIVE", "BROKER"),
    "members of an absent group": ("examineConsumerConnectionInfo", "AWAY"),
    "progress": ("examineConsumeStats", "LIVE"),
    "progress in a topic": ("examineConsumeStats", "LIVE", "TOPIC"),
    "progress of an absent group": ("examineConsumeStats", "AWAY", "TOPIC"),
    "progress of no group": ("examineConsumeStats", "nosuchgroup", "TOPIC"),
    "running consumer": ("getConsumerRunningInfo", "LIVE", "CLIENT", False),
    "running consumer with threads": ("getConsumerRunningInfo", "LIVE", "CLIENT", True),
    "no running consumer": ("getConsumerRunningInfo", "LIVE", "nosuchclient", False),
    "groups": ("getAllSubscriptionGroup", "BROKER", 3000),
    "configuration of a group": ("examineSubscriptionGroupConfig", "BROKER", "LIVE"),
    "runtime": ("fetchBrokerRuntimeStats", "BROKER"),
    "configuration": ("getBrokerConfig", "BROKER"),
    "messages with a key": ("queryMessage", "TOPIC", "key-1", 64, 0, "NOW"),
    "messages with no key": ("queryMessage", "TOPIC", "nosuchkey", 64, 0, "NOW"),
    "message": ("viewMessage", "TOPIC", "MESSAGE"),
    "no message": ("viewMessage", "TOPIC", "7F000001000000000000000000000000"),
    "consumed now": ("consumeMessageDirectly", "LIVE", "CLIENT", "TOPIC", "OFFSET_ID"),
    "no such figure": ("viewBrokerStatsData", "BROKER", "TOPIC_PUT_NUMS", "nosuchtopic"),
}
FIGURES: Mapping[str, str] = {
    "TOPIC_PUT_NUMS": "TOPIC",
    "TOPIC_PUT_SIZE": "TOPIC",
    "GROUP_GET_NUMS": "TOPIC@LIVE",
    "GROUP_GET_SIZE": "TOPIC@LIVE",
    "SNDBCK_PUT_NUMS": "TOPIC@LIVE",
    "BROKER_PUT_NUMS": CLUSTER,
    "BROKER_GET_NUMS": CLUSTER,
}
CHANGES: tuple[tuple[Any, ...], ...] = (
    (
        "createAndUpdateTopicConfig",
        "BROKER",
        {"topicName": "OTHER", "readQueueNums": 3, "writeQueueNums": 3},
    ),
    ("examineTopicConfig", "BROKER", "OTHER"),
    (
        "createAndUpdateSubscriptionGroupConfig",
        "BROKER",
        {"groupName": "OTHER", "retryMaxTimes": 3},
    ),
    ("examineSubscriptionGroupConfig", "BROKER", "OTHER"),
    ("resetOffsetByTimestampOld", "AWAY", "TOPIC", 1, True),
    ("resetOffsetByTimestamp", "TOPIC", "LIVE", 1, True),
    ("deleteSubscriptionGroup", "BROKER", "OTHER", True),
    ("deleteTopicInBroker", ["BROKER"], "OTHER"),
    ("deleteTopicInNameServer", ["NAMESRV"], CLUSTER, "OTHER"),
    ("examineTopicConfig", "BROKER", "OTHER"),
)
"""Changes, and questions about them; the last asks for the deleted topic."""
BY_GROUP = {"groups": "subscriptionGroupTable", "all producers": "data"}
"""Answers that are tables of all groups of a broker, and the tables in them."""
ELSEWHERE = ("THERE", "OTHERS", "LEFT")
EXACT = {"minOffset", "maxOffset", "brokerOffset", "consumerOffset", "readQueueNums", "perm"}
"""Values that must be equal, wherever they stand; of other values the kind is compared."""


@attrs.frozen
class Scene:
    """A topic on one master only, a consumer that runs and one that has gone, and calls there."""

    calls: JavaCalls
    words: Mapping[str, Any]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the answer's shape without the names of this scene, or the error."""
        try:
            answer = self.calls.call(method, *(self._put_in(one) for one in arguments))
        except CallFailed as error:
            return str(error)
        return shape(answer, self._taken_out)

    def _put_in(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._put_in(one) for one in value]
        if isinstance(value, dict):
            return {key: self._put_in(one) for key, one in value.items()}
        if isinstance(value, str) and "@" in value:
            return "@".join(self.words[word] for word in value.split("@"))
        return self.words.get(value, value) if isinstance(value, str) else value

    def _taken_out(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(str(value), word)
        return re.sub(r"\d+", "N", text) if "commitLogDiskRatio_" not in text else "ratio of a path"


def shape(value: Any, taken_out: Callable[[str], str], exact: bool = False) -> Any:
    """Return keys and kinds of values without the other scene's; of a list, the shapes in it."""
    if isinstance(value, dict):
        names = {key: taken_out(key) for key in value}
        return {
            name: shape(value[key], taken_out, key in EXACT)
            for key, name in names.items()
            if not any(word in name for word in ELSEWHERE)
        }
    if isinstance(value, list):
        shapes = (shape(one, taken_out, exact) for one in value)
        return sorted({repr(one) for one in shapes})
    return value if exact else type(value).__name__


def committed(calls: JavaCalls, group: str) -> int | None:
    """Return the messages before the group's offsets at its broker; None before its first commit.

    Retries are among them.
    """
    try:
        stats = calls.call("examineConsumeStats", group)
    except CallFailed:
        return None
    return sum(int(one["consumerOffset"]) for one in stats["offsetTable"].values())


@pytest.fixture(scope="module")
def scenes(
    meeting: Meeting, producers: dict[Make, StockProducer], shared_clients: Clients
) -> dict[Make, Scene]:
    begun: dict[Make, tuple[StockConsumer, StockConsumer, list[Sent]]] = {}
    for make in BOTH:
        topic, namesrv = f"tools-{make}", meeting.namesrvs[make].address
        meeting.create_topic(topic, [make], QUEUES)
        live, away = (
            shared_clients.consumer(
                "java",
                namesrv,
                f"{who}-{make}",
                topic,
                wait=False,
                fail_below=fails,
                **QUICK_CONSUMER,
            )
            for who, fails in (("live", 1), ("away", 0))
        )
        live.wait_until_ready()
        away.wait_until_ready()
        sent = [
            producers[make].send(topic, f"body {number}", tags="A", keys=f"key-{number}")
            for number in range(COUNT)
        ]
        begun[make] = (live, away, sent)
    found: dict[Make, Scene] = {}
    for make, (live, away, sent) in begun.items():
        live.wait_for_count(2 * COUNT, within_s=TOLD_S)  # each fails once
        away.wait_for_count(COUNT)
        calls = java_calls(shared_clients, meeting.namesrvs[make].address)
        group, topic = f"live-{make}", f"tools-{make}"
        for who, count in (("away", COUNT), ("live", 2 * COUNT)):
            eventually(partial(committed, calls, f"{who}-{make}"), count, TOLD_S)
        away.stop()
        (member,) = calls.call("examineConsumerConnectionInfo", group)["connectionSet"]
        elsewhere = next(one for one in BOTH if one != make)
        found[make] = Scene(
            calls,
            {
                "OTHER": f"other-{make}",
                "TOPIC": topic,
                "LIVE": group,
                "AWAY": f"away-{make}",
                "CLIENT": member["clientId"],
                "BROKER": meeting.masters[make].address,
                "NAMESRV": meeting.namesrvs[make].address,
                "NAME": NAMES[make],
                "THERE": NAMES[elsewhere],
                "OTHERS": f"live-{elsewhere}",
                "LEFT": f"away-{elsewhere}",
                "MESSAGE": sent[0].msg_id,
                "OFFSET_ID": sent[0].offset_msg_id,
                "NOW": int(time.time() * 1000) + 60_000,
            },
        )
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_question_is_answered_as_java_answers_it(scenes: dict[Make, Scene], name: str) -> None:
    ours, theirs = (scenes[make].ask(*CALLS[name]) for make in BOTH)
    if name == "runtime":
        ours, theirs = ours["table"], theirs["table"]
        ours = {key: kind for key, kind in ours.items() if key in theirs}
    if name in BY_GROUP:
        # Other tests' groups are on these masters, too, and not the same on both.
        ours, theirs = ours[BY_GROUP[name]], theirs[BY_GROUP[name]]
        both = ours.keys() & theirs.keys()
        assert both >= {"LIVE", "AWAY"} or name != "groups", both
        ours, theirs = ({key: one[key] for key in both} for one in (ours, theirs))
    if name == "configuration":
        both = ours.keys() & theirs.keys()
        assert len(both) > 50
        ours, theirs = ({key: one[key] for key in both} for one in (ours, theirs))
    assert ours == theirs


def test_every_figure_is_told(scenes: dict[Make, Scene]) -> None:
    """The exporter lacked five of them: broker's rates, bytes, and messages sent back."""

    def untold() -> list[tuple[Make, str, object]]:
        answers = [
            (make, stats, scenes[make].ask("viewBrokerStatsData", "BROKER", stats, key))
            for make in BOTH
            for stats, key in FIGURES.items()
        ]
        return [one for one in answers if not isinstance(one[2], dict)]

    eventually(untold, [], TOLD_S)
    for stats, key in FIGURES.items():
        ours, theirs = (
            scenes[make].ask("viewBrokerStatsData", "BROKER", stats, key) for make in BOTH
        )
        assert ours == theirs


# Last: it changes the scene.
def test_changes_are_answered_alike(scenes: dict[Make, Scene]) -> None:
    for change in CHANGES:
        ours, theirs = (scenes[make].ask(*change) for make in BOTH)
        assert ours == theirs, change
        assert "Exception" not in str(ours), change
    assert ours == "NoneType", "it is gone"
