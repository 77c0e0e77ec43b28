"""A broker with accounts and one without, in turns: how much the check of signatures costs.

    PYTHONPATH=tests python tests/bench/bench_presigned.py --pairs 9

One connection keeps 64 sends of 128 bytes under way. The sends are made, and signed, before the
clock starts, so the client does the same work for both brokers. A client that signs while it is
measured needs as much time for a signature as the broker does, on the same two cores. A row has
the medians of both brokers, and the medians of the pairs' ratios: at 1, accounts cost nothing.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.bench_tls import Cost, row
from bench.peer.nodes import ReplicaSet, Runtime, open_replica_set
from bench.peer.proc import read_cpu
from bench.peer.protection import APPLICATION, Protection
from bench.peer.rows import Topology

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import LanguageCode, ResponseCode, SerializeType
from trioha.wire.packed_fields import pack_fields
from trioha.wire.remoting_command import decode_frame, encode

TOPIC = "bench"
QUEUES = 4
SENDERS = 64
BODY = bytes(128)
_READ_BYTES = 1 << 18


def frames(count: int, protection: Protection, form: SerializeType) -> list[bytes]:
    """Sends as a Java client of 4.9 makes them, each with a number of its own.

    It writes a packed header twice when it signs.
    """
    made = []
    for number in range(count):
        queue = MessageQueue(TOPIC, "", number % QUEUES)
        command = send_command("bench", Message(TOPIC, BODY), f"{number:032X}", queue, 0)
        command.language = LanguageCode.JAVA
        command.opaque = number
        command.serialize_type = form
        table = pack_fields(command.ext_fields) if form is SerializeType.ROCKETMQ else b""
        if protection is Protection.ACL:
            APPLICATION.sign(command)
            if table:
                command.encoded_fields = table + pack_fields(command.ext_fields)
                command._ext_fields = None
        made.append(encode(command))
    return made


def send_all(address: str, requests: Sequence[bytes]) -> None:
    """Keep `SENDERS` requests under way until all are answered.

    Errors: AssertionError when the last one is not stored; OSError when the broker is gone.
    """
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10.0) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"".join(requests[:SENDERS]))
        sent, answered, data = SENDERS, 0, b""
        last = b""
        while answered < len(requests):
            data += connection.recv(_READ_BYTES)
            position, before = 0, answered
            while len(data) - position >= 4:
                (size,) = struct.unpack_from(">I", data, position)
                if len(data) - position < size + 4:
                    break
                last = data[position : position + size + 4]
                position += size + 4
                answered += 1
            data = data[position:]
            more = requests[sent : sent + answered - before]
            sent += len(more)
            if more:
                connection.sendall(b"".join(more))
        assert decode_frame(last).code == ResponseCode.SUCCESS, decode_frame(last)


def run(replicas: ReplicaSet, requests: Sequence[bytes]) -> Cost:
    pids = {"master": replicas.master.process.pid}
    before, began_s = read_cpu(pids), time.monotonic()
    send_all(replicas.master.address, requests)
    took_s = time.monotonic() - began_s
    spent_s = read_cpu(pids).by_name["master"] - before.by_name["master"]
    return Cost(len(requests) / took_s, spent_s / len(requests) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--messages", type=int, default=100_000, help="of each run")
    options = parser.parse_args()
    print("| load | without accounts | with accounts | rate | messages for a second of CPU |")
    print("|---|---|---|---|---|")
    kinds = (Protection.ACL, Protection.NONE)
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-presigned-") as name,
        open_replica_set(
            "trioha", Topology.ALONE, Path(name, "acl"), Runtime(), {}, kinds[0]
        ) as acl,
        open_replica_set(
            "trioha", Topology.ALONE, Path(name, "none"), Runtime(), {}, kinds[1]
        ) as none,
    ):
        for replicas in (acl, none):
            replicas.namesrv.start()
            replicas.master.start()
            replicas.create_topic(TOPIC)
        for form in SerializeType:
            requests = [frames(options.messages, kind, form) for kind in kinds]
            runs: tuple[list[Cost], list[Cost]] = ([], [])
            for number in range(options.pairs + 1):
                # The order alternates: a neighbour's load hits both alike.
                turns = list(zip((acl, none), requests, runs, strict=True))
                for replicas, made, costs in turns if number % 2 else reversed(turns):
                    cost = run(replicas, made)
                    costs.extend([cost] if number else [])  # the first round warms up
            signed, unsigned = runs
            label = f"{SENDERS} sends at a time, {len(BODY)} bytes, header {form.name}"
            print(row(label, unsigned, signed), flush=True)


if __name__ == "__main__":
    main()
