"""A stranger throws bombs at a broker and a name server: each is a row, and has the same limits.

Memory is the node's anonymous memory while the connections of the bomb are still open, above what
it was when the node was ready. All bombs go to the same two processes, so what one leaves counts
against the next ones too, and freed memory that an earlier bomb left hides nothing. A turn is
one step of one task of the node's loop, in processor time of the loop's thread. What the node does
when a bomb's connections close counts against that bomb. A busy machine stretches turns as well, so
a bomb that changes nothing is thrown again if a turn was long.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from support.fakes.raw_answers import RawCluster
from support.handlers.namesrv import register_request, topics
from support.processes.admin import Fields, receive_frame, request, topic_command
from support.processes.faults import RawPeer, footprint, set_failpoints
from support.processes.rig import (
    Node,
    running_processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.stores.recordings import BOMBS, record_of

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.namesrv.route_info import BrokerAddress
from trioha.watch.recording import Encoder, FrameKind
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.heartbeat import GROUPS_MAX, ConsumerData, HeartbeatData, SubscriptionData
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

MIB = 1 << 20
RETAINED_MAX = 64 * MIB
TURN_MAX_MS = 100
SUBSCRIPTION = SubscriptionData("T", "*")
ASK = encode(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}))

# Runs in the node before anything else: notes every turn of 5 ms or more in the file {path}.
TURNS = """
import time, trio
class Turns(trio.abc.Instrument):
    def before_task_step(self, task):
        self.began_ns = time.thread_time_ns()
    def after_task_step(self, task):
        ms = (time.thread_time_ns() - self.began_ns) / 1e6
        if ms >= 5:
            with open({path!r}, "a") as file:
                file.write("%.1f %s\\n" % (ms, task.name))
run = trio.run
trio.run = lambda *args, **named: run(*args, **named, instruments=[Turns()])
"""


@attrs.frozen
class Target:
    """One node, its memory when it was ready, and the file with its long turns."""

    node: Node
    ready_bytes: int
    turns: Path

    def retained(self) -> int:
        return footprint(self.node.process.pid).rss_bytes - self.ready_bytes

    def longest_turn(self, position: int) -> tuple[float, str]:
        """Return the longest turn that was noted after this position of the file, and its task."""
        told = [line.split(" ", 1) for line in self.turns.read_text()[position:].splitlines()]
        return max(((float(ms), task) for ms, task in told), default=(0.0, "none"))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    """A name server and a broker with the limits that they have by default."""
    root = tmp_path_factory.mktemp("bombs")
    with running_processes(root) as processes:
        namesrv = trioha_namesrv(processes)
        sizes = {"mappedFileSizeCommitLog": 16 * MIB, "maxHashSlotNum": 500, "maxIndexNum": 2000}
        disk = {"diskMaxUsedSpaceRatio": 99, "diskSpaceWarningLevelRatio": 99}
        broker = trioha_broker(processes, namesrv.address, settings=sizes | disk)
        found = {"broker": broker, "namesrv": namesrv}
        for name, node in found.items():
            (root / f"{name}.turns").touch()
            set_failpoints(
                node, root / f"{name}-site", breakage=TURNS.format(path=str(root / f"{name}.turns"))
            )
        start_all([namesrv, broker])
        assert request(broker.address, topic_command("T")).code == ResponseCode.SUCCESS
        yield {
            name: Target(node, footprint(node.process.pid).rss_bytes, root / f"{name}.turns")
            for name, node in found.items()
        }
        assert [node.stop() for node in found.values()] == [0, 0]
        assert not any("Traceback" in log.read_text() for log in (root / "logs").glob("*.log"))


# Reads a recording as `record --info` does, and prints the memory that the process has then.
HELD = """
import sys
from pathlib import Path
from trioha.cli.record import facts_in_words, recording_facts
from trioha.errors import TriohaError
from trioha.watch.recording import open_recording
path = Path(sys.argv[1])
recording = open_recording(path)
try:
    facts_in_words(recording_facts(recording, path))
except TriohaError as error:
    assert "larger than any recorder writes" in str(error)
lines = [line.split() for line in open("/proc/self/status")]
print(*(line[1] for line in lines if line[0] in ("VmHWM:", "RssAnon:")))
"""


@attrs.frozen
class Stranger:
    """Speaks to one node; its connections stay open until `connections` closes."""

    node: Node
    connections: contextlib.ExitStack

    def says(self, frames: bytes, answers: int = 0, *allowed: int) -> None:
        """Send this on a connection of its own, and read so many answers, each of these codes."""
        peer = self.connections.enter_context(RawPeer(self.node.address))
        sender = threading.Thread(target=peer.send, args=[frames])
        sender.start()
        told = (decode_frame(receive_frame(peer.socket)) for _ in itertools.count())
        replies = (one for one in told if one.is_response)  # others tell of the group's members
        codes = [one.code for one in itertools.islice(replies, answers)]
        sender.join()
        assert len(codes) == answers
        assert set(codes) <= set(allowed), codes

    def is_thrown_out(self, frames: bytes) -> None:
        self.connections.enter_context(RawPeer(self.node.address)).send(frames).wait_closed()

    def takes_descriptors(self) -> None:
        """Open 400 sockets at a limit of 300, then make the store open files and sync them."""
        pid = self.node.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self.connections.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (300, before[1]))
        for _ in range(400):
            self.connections.enter_context(RawPeer(self.node.address))
        for number in range(4):
            for command in (topic_command(f"D{number}"), send_of(b"x", f"D{number}")):
                assert request(self.node.address, command).code == ResponseCode.SUCCESS


def heartbeat(body: bytes) -> bytes:
    return encode(RemotingCommand(RequestCode.HEART_BEAT, body=body))


def dialect(size: int) -> bytes:
    """A heartbeat that only fastjson's dialect has: names without quotes, texts in single ones."""
    begin, group, end = (
        b"{clientID:'c',producerDataSet:[",
        b"{groupName:'one-of-very-many-groups'},",
        b"]}",
    )
    return heartbeat(begin + group * ((size - len(begin + end)) // len(group)) + end)


def many_groups(peer: int) -> bytes:
    """New groups, as many as one connection may have; the fields that may be left out are."""
    groups = b",".join(b'{"groupName":"g%d-%d"}' % (peer, n) for n in range(GROUPS_MAX))
    names = b'{"clientID":"c","producerDataSet":[%b],"consumerDataSet":[%b]}'
    return heartbeat(names % (groups, groups))


def many_codes(peer: int) -> bytes:
    codes = frozenset(range(peer * 30_000, peer * 30_000 + 30_000))
    group = ConsumerData(f"h{peer}", subscriptions=[attrs.evolve(SUBSCRIPTION, code_set=codes)])
    return heartbeat(HeartbeatData(f"d{peer}", [], [group]).encode())


def pull(junk: int, opaque: int = 1) -> bytes:
    """Return a pull at the end of a queue, to be parked, with a field that no node reads."""
    fields: Fields = {
        **{"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32},
        **{"sysFlag": PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND, "commitOffset": 0},
        **{"suspendTimeoutMillis": 60_000, "subscription": "*", "subVersion": 0},
        **{"expressionType": "TAG", "junk": "x" * junk},
    }
    return encode(RemotingCommand(RequestCode.PULL_MESSAGE, fields, opaque=opaque))


def send_of(body: bytes, topic: str = "T") -> RemotingCommand:
    return send_command("g", Message(topic, body), "1", MessageQueue(topic, "", 0), 1)


def without_body(size: int) -> bytes:
    """A send that promises a body of `size` bytes."""
    return encode(send_of(bytes(size)))[:-size]


def registration(count: int, body: bytes | None = None, number: int = 0) -> bytes:
    name = f"stranger-{number}"
    broker = BrokerAddress("C", name, 0, f"10.0.0.{number}:10911")
    command = register_request(broker, topics(*(f"{name}-{at}" for at in range(count))))
    if body is not None:
        command.body = body
        command.ext_fields["compressed"] = "true"
    return encode(command)


def zeros_packed(mib: int) -> bytes:
    """Pack so many MiB of zeros; all after the first become the same bytes."""
    packer = zlib.compressobj(9)
    first, next_one = (
        packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return first + next_one * (mib - 1)


LENGTH_16, LENGTH_4 = without_body(16 * MIB - 500), without_body(4 * MIB)
REJECTED, BUSY = int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.SYSTEM_BUSY)
TOO_LARGE = int(ResponseCode.MESSAGE_ILLEGAL)


def repeat(count: int, one: Callable[[int], None]) -> None:
    for number in range(count):
        one(number)


STRANGERS = itertools.count()
"""Numbers of brokers that are not known yet: a known one is not taken in again."""

ROWS: dict[str, tuple[str, Callable[[Stranger], None]]] = {
    "a heartbeat of 16 MiB in fastjson's dialect": (
        "broker",
        lambda it: it.says(dialect(16 * MIB - 500), 1, REJECTED),
    ),
    "a heartbeat of 64 KiB in the dialect": (
        "broker",
        lambda it: it.says(dialect((1 << 16) - 100), 1, 0),
    ),
    "50 heartbeats of 30,000 codes": (
        "broker",
        lambda it: repeat(50, lambda peer: it.says(many_codes(peer), 1, 0, BUSY)),
    ),
    "20,000 requests in one read": ("broker", lambda it: it.says(ASK * 20_000, 20_000, 0)),
    "300 pulls with a field of 1 MB": (
        "broker",
        lambda it: repeat(300, lambda _: it.is_thrown_out(pull(1_000_000))),
    ),
    "300 parked pulls with a field of 250 KB": (
        "broker",
        lambda it: it.says(b"".join(pull(250_000, n) for n in range(300)) + ASK, 1, 0),
    ),
    "5 heartbeats of 2,048 groups": (
        "broker",
        lambda it: repeat(5, lambda peer: it.says(many_groups(peer), 1, 0)),
    ),
    "300 lengths of 16 MiB": (
        "broker",
        lambda it: repeat(300, lambda _: it.says(LENGTH_16, 1, TOO_LARGE)),
    ),
    "300 lengths of 4 MiB": ("broker", lambda it: repeat(300, lambda _: it.says(LENGTH_4))),
    "400 sockets at a limit of 300 descriptors": ("broker", Stranger.takes_descriptors),
    "a registration of 50,000 topics": (
        "namesrv",
        lambda it: it.says(registration(50_000, number=next(STRANGERS)), 1, 0),
    ),
    "a registration that unpacks to a GiB": (
        "namesrv",
        lambda it: it.says(registration(0, zeros_packed(1024)), 1, REJECTED),
    ),
    "300 lengths of 16 MiB at a name server": (
        "namesrv",
        lambda it: repeat(300, lambda _: it.says(LENGTH_16, 1, TOO_LARGE)),
    ),
}
"""Node that each bomb is thrown at, and function that throws it, by the bomb's name."""
REPEATABLE = {
    "a heartbeat of 16 MiB in fastjson's dialect",
    "a registration of 50,000 topics",
    "a registration that unpacks to a GiB",
}
"""Bombs that cost the node the same again: it rejects them whole, or forgets them when their
connection closes, as the name server does with the topics of a broker."""
ATTEMPTS = 3


@pytest.mark.parametrize("row", list(ROWS))
def test_a_bomb_retains_little_and_holds_no_turn_long(targets: dict[str, Target], row: str) -> None:
    name, throw = ROWS[row]
    target = targets[name]
    for _ in range(ATTEMPTS if row in REPEATABLE else 1):
        position = target.turns.stat().st_size
        with contextlib.ExitStack() as connections:
            throw(Stranger(target.node, connections))
            # By now the node has read what the bomb's connections sent: this one came after them.
            request(target.node.address, decode_frame(ASK))
            retained = target.retained()
        # And by now that they are closed: else that work would count against the next bomb.
        request(target.node.address, decode_frame(ASK))
        turn_ms, task = target.longest_turn(position)
        if turn_ms < TURN_MAX_MS:
            break
    print(f"{row}: {retained / MIB:.1f} MiB, {turn_ms} ms in {task}")
    assert retained < RETAINED_MAX
    assert turn_ms < TURN_MAX_MS, task


def test_a_recording_that_unpacks_to_gigabytes_is_not_kept(tmp_path: Path) -> None:
    """The memory that `trioha record --info` keeps, beyond that for a recording without bombs."""
    bombs = b"".join(
        record_of(FrameKind.KEY, begin + unit * count) for begin, unit, count in BOMBS.values()
    )
    assert len(bombs) < MIB
    cluster, encoder, told = RawCluster(), Encoder(), []
    cluster.add_set("broker-a")
    plain = encoder.begin(0, {}) + encoder.frame(cluster.raw())
    for name, data in (("plain", plain), ("bomb", plain + bombs)):
        (tmp_path / name).write_bytes(data)
        command = [sys.executable, "-c", HELD, str(tmp_path / name)]
        told.append(subprocess.run(command, check=True, capture_output=True).stdout.split())
    (peak_before, before), (peak, after) = ((int(kb) * 1024 for kb in line) for line in told)
    print(f"held {(after - before) / MIB:.1f} MiB, at most {(peak - peak_before) / MIB:.1f} MiB")
    assert after - before < RETAINED_MAX
