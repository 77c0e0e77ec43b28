"""A store with waiting timer messages changes hands between the makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from support.clusters.pair import SMALL_FILES, Make
from support.handlers.sending import send_v2
from support.peers.java import java_broker
from support.processes.admin import put_topic, request
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.processes.status import wait_until
from support.suite.ports import free_ports

from trioha.analysis.explain.case import open_case
from trioha.analysis.explain.message import explain_message
from trioha.analysis.inputs import open_inputs
from trioha.store.inspect import iter_records
from trioha.wire.codes import RequestCode
from trioha.wire.properties import UNIQ_KEY, encode_properties
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

TOPIC = "T"
COME_S = 30.0
SETTINGS: Mapping[str, object] = {**SMALL_FILES, "timerWheelEnable": True}
JAVA: Mapping[str, object] = {**SETTINGS, "recallMessageEnable": True}


def send(broker: Node, key: str, delay_s: int) -> str:
    """Send one message; returns its recall handle."""
    properties = {UNIQ_KEY: key, "TIMER_DELAY_SEC": str(delay_s)}
    text = encode_properties(properties).decode()
    answer = request(broker.address, send_v2(TOPIC, properties=text, e="0"))
    assert answer.code == 0, answer.remark
    return answer.ext_str("recallHandle")


def cancel(broker: Node, handle: str) -> None:
    fields: dict[str, Any] = {"topic": TOPIC, "recallHandle": handle, "producerGroup": "pg"}
    answer = request(broker.address, RemotingCommand(RequestCode.RECALL_MESSAGE, fields))
    assert answer.code == 0, answer.remark


def delivered_count(broker: Node) -> int:
    fields: dict[str, Any] = {"topic": TOPIC, "queueId": 0}
    answer = request(broker.address, RemotingCommand(RequestCode.GET_MAX_OFFSET, fields))
    return answer.ext_int("offset")


@pytest.mark.slow
def test_waiting_messages_go_on_waiting_through_both_makes(processes: Processes) -> None:
    namesrv = trioha_namesrv(processes).start()
    port, store = free_ports(), processes.root / "store"

    def make(kind: Make) -> Node:
        if kind == "java":
            return java_broker(
                *(processes, namesrv.address),
                port=port,
                store=store,
                settings=JAVA,
                release="5.3",
            )
        return trioha_broker(processes, namesrv.address, port=port, store=store, settings=SETTINGS)

    broker = make("trioha").start()
    put_topic(broker.address, TOPIC, 1)
    send(broker, "done-by-trioha", 1)
    wait_until("the first delivery", lambda: delivered_count(broker) == 1, COME_S)
    # On a slow machine Java's broker takes 13 s to start. A message that is due before it has read
    # the log it delivers at once, recalled or not.
    send(broker, "waits-for-java", 22)
    cancel(broker, send(broker, "taken-back-from-trioha", 22))
    send(broker, "waits-for-trioha", 48)
    cancel(broker, send(broker, "taken-back-from-both", 48))
    broker.stop()
    broker = make("java").start()
    send(broker, "done-by-java", 1)
    wait_until("Java's deliveries", lambda: delivered_count(broker) == 3, COME_S)
    broker.stop()
    broker = make("trioha").start()
    send(broker, "last", 1)

    def keys() -> Counter[str]:
        records = iter_records(store / "commitlog", 0)
        return Counter(
            one.properties[UNIQ_KEY]
            for one in records
            if isinstance(one, Record) and one.topic == TOPIC
        )

    expected = {
        *("done-by-trioha", "waits-for-java", "done-by-java"),
        *("last", "waits-for-trioha"),
    }
    wait_until("the other deliveries", lambda: expected <= keys().keys(), COME_S)
    broker.stop()
    assert keys() == Counter(expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["java", "trioha"])
def test_timer_messages_of_either_make_are_explained(processes: Processes, kind: Make) -> None:
    namesrv = trioha_namesrv(processes).start()
    store = processes.root / "store"
    if kind == "java":
        broker = java_broker(
            processes, namesrv.address, store=store, settings=JAVA, release="5.3"
        ).start()
    else:
        broker = trioha_broker(processes, namesrv.address, store=store, settings=SETTINGS).start()
    put_topic(broker.address, TOPIC, 1)
    send(broker, "delivered", 2)
    send(broker, "waits", 600)
    cancel(broker, send(broker, "recalled", 600))
    wait_until("the delivery", lambda: delivered_count(broker) == 1, COME_S)
    broker.stop()
    with open_case(open_inputs([str(store)])) as case:
        answers = {
            key: {
                verdict.code: verdict.text
                for verdict in explain_message(case, key, by_id=True).verdicts
                if verdict.code != "stored late"  # `send_v2` states a birth of long ago
            }
            for key in ("delivered", "waits", "recalled")
        }
    assert {key: list(answer) for key, answer in answers.items()} == {
        "delivered": ["stored", "delivered after delay", "no offset"],
        "waits": ["stored", "delayed"],
        "recalled": ["stored", "recalled"],
    }
    assert "as waits (delayed) for topic T" in answers["waits"]["stored"]
    assert "a timer" in answers["delivered"]["delivered after delay"]
