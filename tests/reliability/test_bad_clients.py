"""Frames of strangers and broken clients at a live broker; another client never notices."""

from __future__ import annotations

import contextlib
import json
import resource
import struct
from collections.abc import Iterator

import attrs
import pytest
from support.clusters.pair import Cluster
from support.histories.load import undisturbed
from support.processes.admin import Fields, create_topic, put_topic, request, topic_command
from support.processes.faults import Footprint, RawPeer, footprint
from support.processes.rig import Node, running_processes
from support.processes.status import check_sound, journal, node_status, wait_for_event, wait_until
from support.suite.skips import skip_unless

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_batch_command, send_command
from trioha.wire import fastjson
from trioha.wire.bodies import SubscriptionGroupConfig
from trioha.wire.codes import FRAME_BYTES_MAX, PullSysFlag, RequestCode, ResponseCode
from trioha.wire.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from trioha.wire.names import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from trioha.wire.remoting_command import RemotingCommand, encode

FRAME_TIMEOUT_MS = 700
CONNECTIONS = 1000
MIB = 1 << 20

pytestmark = pytest.mark.slow

SETTINGS: dict[str, object] = {
    "frameTimeout": FRAME_TIMEOUT_MS,
    "outboxBytesMax": 4 * MIB,
    "maxTransferBytesOnMessageInMemory": 256 * 1024,
}

FRAMES = {
    "a length beyond the limit": struct.pack(">I", FRAME_BYTES_MAX) + b"x" * 64,
    "a length of 2 GiB": struct.pack(">I", 2**31 - 1) + b"x" * 64,
    "a negative length": struct.pack(">i", -1) + b"x" * 64,
    "a length of zero": struct.pack(">I", 0) + b"x" * 64,
    "a header longer than its frame": struct.pack(">II", 8, 100) + b"{}{}",
    "a header that is no JSON": struct.pack(">II", 4 + 16, 16) + b"\xff" * 16,
    "a header cut in a string": struct.pack(">II", 4 + 12, 12) + b'{"code":10,"',
    "a header nested a thousand deep": struct.pack(">II", 4 + 1000, 1000) + b"[" * 1000,
    "a header that is a list": struct.pack(">II", 4 + 2, 2) + b"[]",
    "an unknown serialization": struct.pack(">II", 4 + 2, 7 << 24 | 2) + b"{}",
    "a binary header of lies": struct.pack(">II", 4 + 21, 1 << 24 | 21) + b"\x7f" * 21,
    "another protocol": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("160301020001") + b"\x00" * 64,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Start one broker for all of these: none of them may do it any harm."""
    root = tmp_path_factory.mktemp("bad-clients")
    with running_processes(root) as processes:
        settings = {
            **{"mappedFileSizeCommitLog": 16 * MIB, "maxHashSlotNum": 500, "maxIndexNum": 2000},
            **{"diskMaxUsedSpaceRatio": 99, "diskSpaceWarningLevelRatio": 99},
        }
        cluster = Cluster(processes, settings={**settings, **SETTINGS}).start()
        create_topic(cluster.master.address, cluster.namesrv, "T")
        yield cluster.master
        assert cluster.master.stop() == 0
        check_sound(cluster.master)
        for log in (root / "logs").glob("*.log"):
            assert "Traceback" not in log.read_text()
        _check_tables(cluster.master)
        assert not journal(cluster.master, "handler_failed")
        assert not journal(cluster.master, "task_failed")


def _check_tables(node: Node) -> None:
    """Check that no illegal name was ever kept."""
    assert node.store is not None
    tables = [path.read_text() for path in (node.store / "config").glob("*.json")]
    assert tables
    for name in {*BAD_NAMES.values(), "t" * 128, "g" * 256} - {"", " ", ".", ".."}:
        assert not any(json.dumps(name)[1:-1] in table for table in tables), name


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_that_is_none_closes_its_connection_alone(broker: Node, frame: bytes) -> None:
    before = len(journal(broker, "connection_closed"))
    with undisturbed(broker, "T"), RawPeer(broker.address) as peer:
        peer.send(frame).wait_closed(within_s=5.0)
    wait_until("told", lambda: len(journal(broker, "connection_closed")) > before)
    told = journal(broker, "connection_closed")[before:]
    assert len(told) == 1, told
    assert told[0].fields["reason"]


def test_half_a_frame_then_silence_closes_after_the_frame_timeout(broker: Node) -> None:
    whole = encode(RemotingCommand(RequestCode.HEART_BEAT, body=b"{}"))
    with undisturbed(broker, "T"), RawPeer(broker.address) as peer:
        elapsed_s = peer.send(whole[: len(whole) // 2]).wait_closed()
    assert elapsed_s + 0.1 >= FRAME_TIMEOUT_MS / 1000


def test_a_thousand_idle_connections_cost_little_and_are_given_back(broker: Node) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    skip_unless(hard >= CONNECTIONS + 200, f"only {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    idle: list[RawPeer] = []
    peaks: list[int] = []

    def served(count: int) -> bool:
        return bool(node_status(broker)["client_connections"] >= count)

    with undisturbed(broker, "T"):
        before = footprint(broker.process.pid)
        try:
            for _ in range(3):
                idle += [RawPeer(broker.address) for _ in range(CONNECTIONS)]
                wait_until("all accepted", lambda: served(CONNECTIONS))
                during = footprint(broker.process.pid)
                # Some of the served connections are of other clients, so a few may still wait.
                assert during.descriptors >= CONNECTIONS
                peaks.append(during.rss_bytes)
                for peer in idle:
                    peer.socket.close()
                idle.clear()
                wait_until("all gone", lambda: not served(CONNECTIONS // 2))
                wait_until("descriptors back", lambda: _returned(broker, before))
        finally:
            for peer in idle:
                peer.socket.close()
    # About 10 KiB each while they last; the second and third thousand cost 3 KiB each anew, until
    # Python searches for cycles. What the allocator keeps after a round differs: peaks do not.
    assert max(peaks) - before.rss_bytes < 60 * MIB, (before, peaks)
    assert peaks[-1] - peaks[0] < 8 * MIB, (before, peaks)


def test_silent_connections_leave_descriptors_to_the_store(broker: Node) -> None:
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    limit = footprint(pid).descriptors + 150
    silent: list[RawPeer] = []
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        with undisturbed(broker, "T"):
            silent += [RawPeer(broker.address) for _ in range(400)]
            for number in range(8):
                put_topic(broker.address, f"D{number}")
                command = send_command(
                    "g", Message(f"D{number}", b"x"), str(number), MessageQueue("D", "", 0), 1
                )
                assert request(broker.address, command).code == ResponseCode.SUCCESS
    finally:
        for peer in silent:
            peer.socket.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    told = wait_for_event(broker, "connection_refused")
    assert "silent, made room" in told["reason"]


def _returned(broker: Node, before: Footprint) -> bool:
    return footprint(broker.process.pid).descriptors <= before.descriptors + 4


def test_a_client_that_never_reads_is_closed_and_costs_a_bounded_outbox(broker: Node) -> None:
    queue = MessageQueue("T", "", 1)
    for number in range(5):
        large = send_command("g", Message("T", bytes(100_000)), f"{number}", queue, 1)
        assert request(broker.address, large).code == ResponseCode.SUCCESS
    before = footprint(broker.process.pid)
    # Answers of 256 KiB each: asked for thousands of times they are a gigabyte.
    asking = encode(pull("T", "g", queue_id=1)) * 20
    with (
        undisturbed(broker, "T"),
        RawPeer(broker.address, receive_bytes=4096) as peer,
    ):
        peer.socket.settimeout(1.0)
        with contextlib.suppress(OSError):  # it takes no more of us, or has closed
            for _ in range(250):
                peer.socket.sendall(asking)
        told = wait_for_event(broker, "connection_closed", peer=_name(peer))
        assert "read" in told["reason"], told
        during = footprint(broker.process.pid)
    assert during.rss_bytes - before.rss_bytes < 24 * MIB, (before, during)


def _name(peer: RawPeer) -> str:
    host, port = peer.socket.getsockname()[:2]
    return f"{host}:{port}"


BAD_NAMES = {
    "a path": "../../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "dots": "..",
    "one dot": ".",
    "a path in the middle": "a/../b",
    "NUL": "a\0b",
    "a newline": "a\nevent=forged",
    "blank": " ",
    "empty": "",
    "other letters": "Thémä",
    "a control character": "a\x1b[31m",
    "a backslash": "..\\..\\x",
}


TABLES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")


def pull(topic: str, group: str, queue_id: int = 0) -> RemotingCommand:
    """A pull of the queue's beginning that is not parked."""
    fields: Fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": PullSysFlag.SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def _files(broker: Node) -> set[str]:
    assert broker.store is not None
    root = broker.store.parent.parent
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.parent.name != "journal"
    }


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_an_illegal_topic_is_refused_everywhere_and_makes_no_file(broker: Node, name: str) -> None:
    _refuse_topic(broker, name)


def test_a_topic_of_300_characters_is_refused(broker: Node) -> None:
    _refuse_topic(broker, "t" * 300)
    _refuse_topic(broker, "t" * (TOPIC_LENGTH_MAX + 1))


def _refuse_topic(broker: Node, name: str) -> None:
    files = _files(broker)
    message, queue = Message(name, b"x"), MessageQueue(name, "", 0)
    commands = [
        send_command("g", message, "1", queue, 1),
        send_batch_command("g", [message, message], ["1", "2"], queue, 1),
        topic_command(name),
        pull(name, "g"),
    ]
    # Nothing to refuse in asking or forgetting, but nothing may come of it either.
    fields: Fields = {"topic": name, "queueId": 0}
    harmless = [
        RemotingCommand(RequestCode.GET_MAX_OFFSET, fields),
        RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, fields),
    ]
    with undisturbed(broker, "T"):
        for command in commands:
            answer = request(broker.address, command)
            assert answer.code != ResponseCode.SUCCESS, (command.code, name)
            assert answer.remark, command.code
        for command in harmless:
            request(broker.address, command)
    assert _files(broker) - files <= _expected(broker)


def _expected(broker: Node) -> set[str]:
    """Files that a bystander's sends make as they go on."""
    assert broker.store is not None
    root, store = broker.store.parent.parent, broker.store
    folders = ("commitlog", "consumequeue/T", "index")
    paths = [path for name in folders for path in (store / name).rglob("*")]
    paths += [path for table in TABLES for path in (store / "config").glob(f"{table}.json*")]
    return {str(path.relative_to(root)) for path in [*paths, store / "config"]}


@pytest.mark.parametrize(
    "group", [*BAD_NAMES.values(), "g" * (GROUP_LENGTH_MAX + 1)], ids=[*BAD_NAMES, "too long"]
)
def test_an_illegal_group_is_refused_and_nothing_is_kept_of_it(broker: Node, group: str) -> None:
    files = _files(broker)
    progress: Fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": 7}
    back: Fields = {"offset": 0, "group": group, "delayLevel": 0, "originTopic": "T"}
    config = SubscriptionGroupConfig(group).to_dict()
    refused = [
        pull("T", group),
        RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, progress),
        RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, back),
        RemotingCommand(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=fastjson.dumps(config)
        ),
    ]
    member = ConsumerData(group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
    member = attrs.evolve(member, subscriptions=[SubscriptionData("T", "*")])
    heartbeat = HeartbeatData("client", [ProducerData(group)], [member])
    with undisturbed(broker, "T"):
        for command in refused:
            answer = request(broker.address, command)
            assert answer.code != ResponseCode.SUCCESS, (command.code, group)
        # One heartbeat speaks of many groups: bad ones are passed over. A producer's group names
        # no file and no table; RocketMQ does not look at it either.
        request(
            broker.address,
            RemotingCommand(RequestCode.HEART_BEAT, body=heartbeat.encode()),
        )
        request(
            broker.address,
            send_command(group, Message("T", b"x"), "1", MessageQueue("T", "", 0), 1),
        )
    assert _files(broker) - files <= _expected(broker)


def test_a_body_beyond_the_limit_is_refused_and_one_of_the_limit_is_not(broker: Node) -> None:
    queue = MessageQueue("T", "", 2)
    with undisturbed(broker, "T"):
        for size, code in (
            (4 * MIB + 1, ResponseCode.MESSAGE_ILLEGAL),
            (15 * MIB, ResponseCode.MESSAGE_ILLEGAL),
            (4 * MIB, ResponseCode.SUCCESS),
        ):
            answer = request(
                broker.address, send_command("g", Message("T", bytes(size)), "1", queue, 1)
            )
            assert answer.code == code, (size, answer.remark)


REPORTS = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a negative offset": struct.pack(">q", -1),
    "an offset far beyond the end": struct.pack(">q", 2**62),
}


@pytest.mark.parametrize("data", REPORTS.values(), ids=REPORTS.keys())
def test_nonsense_on_the_ha_port_is_refused_and_told(broker: Node, data: bytes) -> None:
    assert broker.ha_address is not None
    before = len(journal(broker, "ha_refused"))
    with undisturbed(broker, "T"), RawPeer(broker.ha_address) as peer:
        peer.send(data).wait_closed(within_s=5.0)
    wait_until("told", lambda: len(journal(broker, "ha_refused")) > before)
