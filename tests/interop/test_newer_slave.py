"""A slave of RocketMQ 5 behind a trioha master: it copies the log and every table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.clusters.pair import SMALL_FILES
from support.handlers.sending import send_v2
from support.histories.commitlog import wait_for_equal_logs
from support.peers.java import java_broker
from support.processes.admin import put_topic, request
from support.processes.rig import Processes, trioha_broker, trioha_namesrv
from support.processes.status import wait_until

from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.properties import encode_properties
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.timers import TimerCheckpoint

COPIED_S = 100.0
"""The slave copies tables once a minute, the first time within a minute."""
MODE = {"topic": "T", "consumerGroup": "readers", "mode": "POP", "popShareQueueNum": 2}


def ask(address: str, code: RequestCode, body: object) -> None:
    answer = request(address, RemotingCommand(code, body=fastjson.dumps(body)))
    assert answer.code == 0, answer.remark


def commit(address: str, offset: int) -> None:
    fields: dict[str, ExtValue] = {
        "consumerGroup": "readers",
        "topic": "T",
        "queueId": 0,
        "commitOffset": offset,
    }
    answer = request(address, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    assert answer.code == 0, answer.remark


def _table(path: Path) -> Any:
    """Read a table as Java writes it: with numbers for keys."""
    return fastjson.loads(path.read_bytes() or b"{}") if path.exists() else {}


@pytest.mark.slow
def test_a_slave_of_rocketmq_5_copies_every_table(processes: Processes) -> None:
    namesrv = trioha_namesrv(processes).start()
    master = trioha_broker(processes, namesrv.address, settings=SMALL_FILES).start()
    put_topic(master.address, "T", 2)
    group = {"groupName": "readers"}
    ask(master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
    slave = java_broker(
        processes,
        namesrv.address,
        broker_id=1,
        role="SLAVE",
        release="5.3",
        settings=SMALL_FILES,
    ).start()
    assert slave.store is not None
    for properties in ({}, {}, {"TIMER_DELAY_SEC": "3600"}):
        send = send_v2("T", properties=encode_properties(properties).decode(), e="0")
        assert request(master.address, send).code == 0
    commit(master.address, 1)
    ask(master.address, RequestCode.SET_MESSAGE_REQUEST_MODE, MODE)

    wait_for_equal_logs(master.commitlog, slave.commitlog, COPIED_S)
    config = slave.store / "config"

    def copied_offset() -> int:
        offsets = _table(config / "consumerOffset.json").get("offsetTable", {})
        return int(offsets.get("T@readers", {}).get("0", 0))

    wait_until("the tables", lambda: copied_offset() == 1, COPIED_S)
    copied_ms = time.time() * 1000

    def checkpoint() -> TimerCheckpoint:
        found = TimerCheckpoint.decode((config / "timercheck").read_bytes())
        return found or TimerCheckpoint(0, 0)

    # One thread copies all of them in turn, the checkpoint every three seconds.
    wait_until("a later checkpoint", lambda: checkpoint().read_time_ms > copied_ms, COPIED_S)
    assert checkpoint().queue_offset == 0, "the message that waits"
    assert "T" in _table(config / "topics.json")["topicConfigTable"]
    assert "readers" in _table(config / "subscriptionGroup.json")["subscriptionGroupTable"]
    modes = _table(config / "messageRequestMode.json")["messageRequestModeMap"]
    assert modes["T"]["readers"] == MODE
    (log,) = (processes.root / "java-broker-a-1").glob("**/broker.log")
    assert "Exception" not in log.read_text()
