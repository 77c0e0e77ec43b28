"""What sends and pulls cost in a broker without sockets: this tree and another, in turns.

    python tests/bench/bench_core.py --before DIR --pairs 7

`DIR` is a checkout of an older commit, compiled if this one is. Each run is a process of its own that
imports one tree. It drives frames through connection, gate, processors, store and outbox, and reads
its own processor time: no client and no kernel's network is in the figures. A row has the best of
each tree in microseconds a message, and the median of the pairs' ratios: above 1, this tree is
better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

REPO = Path(__file__).resolve().parents[2]
SENDERS = (1, 8, 64)
SENT = 16_000
DRAINED = 96_000
PULLED = 32
QUEUES = 4
RECENT_BYTES = 1 << 20
"""All of a drain but its end counts as old, and memory is asked whether it holds it."""


class Channel:
    """A connection that keeps its answers in an outbox."""

    peer = "127.0.0.1:5555"
    peer_host = bytes([127, 0, 0, 1, 0, 0, 0x15, 0xB3])
    closed = False

    def __init__(self, outbox: Any) -> None:
        self._outbox = outbox

    def send_nowait(self, command: Any) -> None:
        self._outbox.add(command)


class Broker:
    """Connection, gate, core and store of the tree that is imported."""

    def __init__(self, root: Path, role: str, recent_bytes: int) -> None:
        import attrs

        from trioha.broker.core import BrokerCore
        from trioha.config import BrokerConfig, BrokerRole
        from trioha.remoting.channel import Instant
        from trioha.remoting.connection import RemotingConnection
        from trioha.remoting.outbox import Outbox
        from trioha.store.message_store import FileMessageStore, StoreConfig

        self.instant = Instant(0, time.time_ns() // 1_000_000)
        config = attrs.evolve(
            BrokerConfig(),
            store_path_root_dir=str(root),
            broker_role=BrokerRole[role],
            broker_ip1="127.0.0.1",
        )
        store_config = StoreConfig.of(config)
        more: dict[str, Any] = {}
        if hasattr(store_config, "recent_bytes"):
            from trioha.store.page_cache import missing_bytes

            more["missing_bytes"] = missing_bytes
            store_config = attrs.evolve(store_config, recent_bytes=recent_bytes)
        events = SimpleNamespace(event=lambda *_, **__: None)
        self.store: Any = FileMessageStore.open(
            store_config, events, wall_ms=self.instant.wall_ms, **more
        )
        self.replicas = SimpleNamespace(
            push2slave_max_offset=0,
            push2slave_max_metadata=1 << 60,
            by_quorum=False,
            metadata_available=True,
            slave_available=lambda _: True,
        )
        self.core: Any = BrokerCore(
            config, self.store, self.replicas, events, Random(1), self.instant, lambda _: {}
        )
        self.machine, self.outbox = RemotingConnection(), Outbox(1 << 26)
        self.channel = Channel(self.outbox)
        try:
            from trioha.broker.request_gate import RequestGate
        except ImportError:  # the tree before the redesign of the node
            from trioha.remoting.requests import Requests

            self.store.on_dispatch = self.core.on_dispatch
            self.on_acked: Callable[[], Any] = lambda: self.core.on_acked(self.store.max_phy_offset)
            self.handle_all = Requests(
                self.machine, self.outbox, self.core.handlers, events
            ).handle_all
            return
        from trioha.remoting.requests import Requests

        self.store.tell_dispatches(self.core.on_dispatch)
        self.on_acked = lambda: self.core.on_acked(0)
        gate = RequestGate(
            [self.core.handlers], SimpleNamespace(close=lambda: None), events, lambda *_: None
        )
        self.handle_all = Requests(
            self.machine,
            self.outbox,
            gate.handle,
            lambda: time.monotonic_ns() // 1_000_000,
            lambda: None,
            self.core.waits,
        ).handle_all

    def turn(self, data: bytes) -> list[Any]:
        """What a link and its node do with one read; returns what would leave."""
        self.machine.receive_data(data)
        self.handle_all(self.channel, self.instant)
        self.replicas.push2slave_max_offset = self.store.max_phy_offset
        self.on_acked()
        self.core.after_batch(self.instant)
        buffers: list[Any] = self.outbox.take()
        self.outbox.sent([])
        return buffers


def send_frame(topic: str, queue_id: int, number: int, size: int) -> bytes:
    from trioha.wire.codes import RequestCode
    from trioha.wire.remoting_command import RemotingCommand, encode

    fields = {
        "a": "bench",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02",
        "j": 0,
        "k": "false",
        "m": "false",
    }
    return encode(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, bytes(size), opaque=number))


def pull_frame(topic: str, queue_id: int, offset: int) -> bytes:
    from trioha.wire.codes import RequestCode
    from trioha.wire.remoting_command import RemotingCommand, encode

    fields = {
        "consumerGroup": "bench",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": PULLED,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return encode(RemotingCommand(RequestCode.PULL_MESSAGE, fields, opaque=offset))


def spent_us(broker: Broker, reads: list[bytes], messages: int) -> float:
    """Processor time for a message, when all these reads come in."""
    turn = broker.turn
    begin = time.process_time_ns()
    for data in reads:
        turn(data)
    return (time.process_time_ns() - begin) / messages / 1000


def child() -> dict[str, float]:
    costs = {}
    for role in ("SYNC_MASTER", "ASYNC_MASTER"):
        with tempfile.TemporaryDirectory(prefix="trioha-bench-core-") as name:
            broker = Broker(Path(name), role, 256 << 20)
            for senders in SENDERS:
                frames = [send_frame("sent", n % QUEUES, n, 128) for n in range(SENT)]
                reads = [b"".join(frames[n : n + senders]) for n in range(0, SENT, senders)]
                broker.turn(reads[0])
                costs[f"send, {senders} a read, {role}"] = spent_us(broker, reads, SENT)
            broker.store.close()
    for label, recent_bytes in (("recent", 256 << 20), ("old", RECENT_BYTES)):
        with tempfile.TemporaryDirectory(prefix="trioha-bench-core-") as name:
            broker = Broker(Path(name), "ASYNC_MASTER", recent_bytes)
            for begin in range(0, DRAINED, PULLED):
                queue_id = begin // PULLED % QUEUES
                numbers = range(begin, begin + PULLED)
                broker.turn(b"".join(send_frame("drained", queue_id, n, 1024) for n in numbers))
            reads = [
                pull_frame("drained", queue_id, offset)
                for offset in range(0, DRAINED // QUEUES, PULLED)
                for queue_id in range(QUEUES)
            ]
            answered = sum(len(buffer) for buffer in broker.turn(reads[0]))
            assert answered > PULLED * 1024, "a pull finds what was sent"
            costs[f"drain, {label}"] = spent_us(broker, reads, DRAINED)
            broker.store.close()
    return costs


def run(tree: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", str(tree)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tree)
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, metavar="DIR")
    parser.add_argument("--after", type=Path, default=REPO, metavar="DIR", help="this tree")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        sys.path.insert(0, str(options.child))
        print(json.dumps(child()))
        return
    trees = [tree.resolve() for tree in (options.before or REPO, options.after)]
    runs: list[list[dict[str, float]]] = [[], []]
    for number in range(options.pairs):
        # The order alternates: a neighbour's load hits both alike.
        for index in (0, 1) if number % 2 else (1, 0):
            runs[index].append(run(trees[index]))
    print("| load | before | after | messages for a second of the processor |")
    print("|---|---|---|---|")
    for label in runs[0][0]:
        best = [min(costs[label] for costs in tree) for tree in runs]
        ratios = sorted(b[label] / a[label] for b, a in zip(*runs, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {label} | {best[0]:.2f} us | {best[1]:.2f} us | {spread} |")


if __name__ == "__main__":
    main()
