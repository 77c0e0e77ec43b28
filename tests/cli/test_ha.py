"""`trioha ha status`: what is shown, what is called a problem, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgpack
import pytest
import trio
from click.testing import CliRunner

from trioha.cli import cli, ha
from trioha.cli.ha import cluster_status, status_in_words
from trioha.journal import NullSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import open_listener
from trioha.services.remoting.server import RemotingServer
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

LINK = {
    "peer": "10.0.0.2:40222",
    "slave_ack_offset": 900,
    "gap_bytes": 100,
    "in_sync": True,
    "last_ack_age_s": 0.4,
    "heartbeat_interval_s": 5.0,
    "housekeeping_s": 20.0,
    "transferred_bytes_per_s": 2048,
    "connected_s": 12.0,
    "gap_s": 0.7,
    "reconnects": 3,
    "last_error": "",
    "last_error_age_s": None,
    "doubt": "",
}


def broker(**changes: Any) -> dict[str, Any]:
    return {
        "name": "broker-a",
        "id": 0,
        "role": "SYNC_MASTER",
        "address": "10.0.0.1:10911",
        "ha_address": "10.0.0.1:10912",
        "min_phy_offset": 0,
        "max_phy_offset": 1000,
        "flushed_offset": 1000,
        "connections": [LINK],
        "slave": None,
        "namesrvs": {},
        **changes,
    }


SLAVE = broker(
    id=1,
    role="SLAVE",
    address="10.0.0.2:10911",
    connections=[],
    slave={
        "master": "10.0.0.1:10912",
        "state": "TRANSFER",
        "last_read_age_s": 1,
        "gap_bytes": 100,
        "reconnects": 0,
        "last_error": "",
        "last_error_age_s": None,
        "heartbeat_interval_s": 5.0,
        "housekeeping_s": 20.0,
        "metadata": "stream",
        "metadata_position": 0,
    },
)


def test_a_healthy_pair_is_well() -> None:
    text = status_in_words([broker(), SLAVE])
    assert "All is well." in text
    assert "broker-a → 10.0.0.2:40222" in text
    assert "2.0 KiB/s" in text
    assert len({line.index("ROLE") for line in text.splitlines() if "ROLE" in line}) == 1


def test_nobody_registered_is_said() -> None:
    assert "No broker is registered" in status_in_words([])


def stuck(**changes: Any) -> dict[str, Any]:
    return {**SLAVE, "slave": {"state": "PAUSED", "needs_resync": True}, "home_id": 1, **changes}


@pytest.mark.parametrize(
    ("brokers", "says"),
    [
        (
            [broker(error="connection refused")],
            "! broker-a 0 at 10.0.0.1:10911: connection refused",
        ),
        ([SLAVE], "! broker-a: no master is registered; nothing can be sent to it"),
        ([broker(connections=[])], "SYNC_MASTER without a slave in sync"),
        (
            [broker(connections=[], held_back_bytes=4096)],
            "sends get SLAVE_NOT_AVAILABLE, consumers do not see the last 4.0 KiB",
        ),
        (
            [broker(connections=[{**LINK, "in_sync": False, "gap_s": None}])],
            "10.0.0.2:40222 is 100 B behind",
        ),
        ([broker(connections=[{**LINK, "last_ack_age_s": 16}])], "sent no heartbeat for 16.0 s"),
        (
            [broker(connections=[{**LINK, "in_sync": False, "gap_s": 42.0}])],
            "10.0.0.2:40222 is 100 B, 42.0 s, behind",
        ),
        (
            [broker(connections=[{**LINK, "doubt": "its log may differ"}])],
            "slave 10.0.0.2:40222: its log may differ",
        ),
        (
            [broker(), {**SLAVE, "slave": {"state": "PAUSED", "last_error": "refused"}}],
            "! broker-a 1 at 10.0.0.2:10911: follows nobody now (state PAUSED: refused)",
        ),
        (
            [
                broker(),
                {
                    **SLAVE,
                    "slave": {"state": "PAUSED", "last_error": "no", "last_error_age_s": 3.0},
                },
            ],
            "follows nobody now (state PAUSED, 3.0 s ago: no)",
        ),
        (
            [broker(min_phy_offset=2000, max_phy_offset=9000), SLAVE],
            "its log ends at 1000, its master's begins at 2000: what lies between is gone",
        ),
        (
            [broker(log_epoch=1), stuck(log_epoch=1)],
            "needs `trioha ha resync broker-a --id 1`",
        ),
        (
            [broker(absent=[{"host": "10.0.0.9", "last_error": "reset", "last_error_age_s": 3.0}])],
            "the slave at 10.0.0.9 is gone since 3.0 s: reset",
        ),
        (
            [broker(refusals=[{"peer": "p", "reason": "it is ahead of us", "age_s": 3}])],
            "refused slave p 3.0 s ago: it is ahead of us",
        ),
    ],
)
def test_problems_are_told_in_plain_words(brokers: list[dict[str, Any]], says: str) -> None:
    text = status_in_words(brokers)
    assert says in text
    assert "All is well." not in text


@pytest.mark.parametrize(
    "brokers",
    [
        [broker(max_phy_offset=0, log_epoch=1), stuck(log_epoch=1)],
        [broker(log_epoch=1), stuck(log_epoch=2)],
        [broker(log_epoch=1), stuck(log_epoch=1, max_phy_offset=1001)],
        [
            broker(log_epoch=1, max_phy_offset=9000),
            stuck(slave={"state": "PAUSED", "needs_resync": True, "holds_more": True}),
        ],
        [broker(min_phy_offset=2000, max_phy_offset=9000, log_epoch=1), stuck(log_epoch=2)],
    ],
)
def test_no_advice_sets_the_longer_log_aside(brokers: list[dict[str, Any]]) -> None:
    text = status_in_words(brokers)
    assert "resync" not in text
    assert "may be the only copy" in text
    assert "`trioha failover broker-a --to 1`" in text


def columns(text: str, head: str) -> dict[str, str]:
    """The first line below a table's head, by column."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(head))
    names, cells = (re.split(r"  +", line.strip()) for line in lines[at : at + 2])
    return dict(zip(names, cells, strict=True))


def test_a_link_has_gap_heartbeat_limit_and_reconnects() -> None:
    link = columns(status_in_words([broker()]), "LINK TO SLAVE")
    assert (link["GAP"], link["SECONDS"], link["RECONNECTS"]) == ("100 B", "0.7 s", "3")
    assert (link["HEARD"], link["EVERY"], link["LIMIT"]) == ("0.4 s", "5.0 s", "20.0 s")


def test_a_link_that_works_again_still_tells_why_the_last_one_ended() -> None:
    link = {**LINK, "last_error": "connection reset " * 20, "last_error_age_s": 9.0}
    slave = {**SLAVE["slave"], "last_error": "the master closed the link", "last_error_age_s": 8.0}
    text = status_in_words([broker(connections=[link]), {**SLAVE, "slave": slave}])
    assert "LAST ERROR OF" in text
    assert "9.0 s  connection reset" in text
    assert "8.0 s  the master closed the link" in text
    assert max(map(len, text.splitlines())) < 160
    assert "All is well." in text


def test_a_slave_s_gap_is_what_both_ends_tell_whoever_is_its_master() -> None:
    java = {"error": "not a trioha node (role and offsets from runtime info)"}
    master = broker(**java, role="MASTER", version="RocketMQ V4_9_7", connections=[])
    slave = {**SLAVE, "max_phy_offset": 400, "gap_bytes": 600}
    text = status_in_words([master, slave])
    assert columns(text, "SLAVE  ")["GAP"] == "600 B"
    assert "RocketMQ V4_9_7" in text
    assert "All is well." in text
    java_slave = {**slave, **java, "slave": None}
    assert columns(status_in_words([broker(), java_slave]), "SLAVE  ")["GAP"] == "600 B"


Answer = Callable[[RemotingCommand], RemotingCommand]


@asynccontextmanager
async def serving(answers: Mapping[int, Answer]) -> AsyncIterator[str]:
    """A node that answers these requests; anything else gets code 3."""

    def handler(answer: Answer) -> Handler:
        def handle(_: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
            return answer(request)

        return handle

    handlers = {code: handler(answer) for code, answer in answers.items()}
    server = RemotingServer(RequestTable(handlers, NullSink()).handle, Clock(), NullSink())
    listener = open_listener("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.accept, listener, nursery)
        yield listener.address
        nursery.cancel_scope.cancel()
    listener.close()


def namesrv_of(brokers: Mapping[int, str]) -> dict[int, Answer]:
    info = ClusterInfo({"broker-a": BrokerData("C", "broker-a", brokers)}, {"C": ("broker-a",)})
    return {
        RequestCode.GET_BROKER_CLUSTER_INFO: lambda request: request.response(body=info.encode())
    }


async def test_each_kind_of_node_is_listed_for_what_it_is() -> None:
    status = broker()
    trioha_node: dict[int, Answer] = {
        RequestCode.TRIOHA_NODE_STATUS: lambda r: r.response(body=msgpack.packb(status))
    }
    runtime = {
        "table": {
            "commitLogMinOffset": "5",
            "commitLogMaxOffset": "77",
            "brokerVersionDesc": "V4_9_7",
        }
    }
    java_node: dict[int, Answer] = {
        RequestCode.GET_BROKER_RUNTIME_INFO: lambda r: r.response(body=fastjson.dumps(runtime))
    }
    broken_node: dict[int, Answer] = {
        RequestCode.TRIOHA_NODE_STATUS: lambda r: r.response(body=b"\xc1")
    }
    with trio.fail_after(10):
        async with (
            serving(trioha_node) as ours,
            serving(java_node) as java,
            serving(broken_node) as broken,
            serving(namesrv_of({0: ours, 1: java, 2: broken, 3: "127.0.0.1:1"})) as namesrv,
        ):
            brokers, all_answered = await cluster_status(namesrv, 2.0)
    assert not all_answered
    assert [entry["id"] for entry in brokers] == [0, 1, 2, 3]
    assert brokers[0]["max_phy_offset"] == 1000
    assert brokers[0]["address"] == ours  # where it is registered, whatever it says of itself
    assert "error" not in brokers[0]
    assert brokers[1]["error"] == "not a trioha node (role and offsets from runtime info)"
    assert (brokers[1]["role"], brokers[1]["max_phy_offset"]) == ("SLAVE", 77)
    assert (brokers[1]["version"], brokers[1]["gap_bytes"]) == ("RocketMQ V4_9_7", 923)
    assert "the status is not msgpack" in brokers[2]["error"]
    assert "Connection refused" in brokers[3]["error"]
    keys = set(brokers[0])
    assert all(keys <= set(entry) for entry in brokers)


async def test_a_node_that_never_answers_delays_nothing_beyond_its_deadline() -> None:
    deaf = trio.socket.socket()
    await deaf.bind(("127.0.0.1", 0))
    deaf.listen()
    host, port = deaf.getsockname()
    with deaf, trio.fail_after(5):
        async with serving(namesrv_of({0: f"{host}:{port}"})) as namesrv:
            brokers, all_answered = await cluster_status(namesrv, 0.2)
    assert not all_answered
    assert "did not answer within 0.2 s" in brokers[0]["error"]


def test_a_name_server_without_brokers_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(namesrv: str, timeout_s: float) -> tuple[list[dict[str, Any]], bool]:
        return [], True

    monkeypatch.setattr(ha, "cluster_status", nobody)
    result = CliRunner().invoke(cli, ["ha", "status", "-n", "h:1"])
    assert (result.exit_code, "No broker is registered" in result.output) == (1, True)


def test_an_address_that_is_none_is_a_mistake_in_the_command_line() -> None:
    for namesrv in ("host", "h:1;two"):
        result = CliRunner().invoke(cli, ["ha", "status", "-n", namesrv])
        assert result.exit_code == 2
        assert "is not an address; write HOST:PORT" in result.output


@pytest.mark.parametrize(("all_answered", "code"), [(True, 0), (False, 4)])
def test_the_exit_code_tells_whether_all_answered(
    monkeypatch: pytest.MonkeyPatch, all_answered: bool, code: int
) -> None:
    told = [{**broker(), "registered_id": 0}, {**SLAVE, "registered_id": 1}]

    async def fake(namesrv: str, timeout_s: float) -> tuple[list[dict[str, Any]], bool]:
        assert (namesrv, timeout_s) == ("h:1", 3.0)
        return told, all_answered

    monkeypatch.setattr(ha, "cluster_status", fake)
    invoke = partial(CliRunner().invoke, cli)
    result = invoke(["ha", "status", "-n", "h:1", "-o", "json"])
    assert result.exit_code == code
    assert json.loads(result.output) == {"brokers": told}
    result = invoke(["ha", "status"], env={"NAMESRV_ADDR": "h:1"})
    assert result.exit_code == code
    assert result.output.startswith("BROKER")
