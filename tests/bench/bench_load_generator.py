"""Cost of the load generator itself per message: `python tests/bench/bench_load_generator.py`.

Its peer is a process that counts frames by their length words and answers each read in one write,
so next to nothing but the generator is measured. Compare with the broker's cost per message before
believing a figure of `trioha bench`.
"""

from __future__ import annotations

import gc
import multiprocessing
import socket
import struct
import sys

from trioha.bench.frames import OPAQUE_BASE
from trioha.bench.produce import ProduceLoad, ProduceOptions
from trioha.client.message import MessageQueue
from trioha.wire.remoting_command import RemotingCommand, encode

_LENGTH = struct.Struct(">I")
_SECONDS = 3.0


def answer_everything(listener: socket.socket) -> None:
    """Serve one connection until it closes."""
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"}
    response = encode(RemotingCommand(0, dict(fields), opaque=OPAQUE_BASE, flag=1))
    digits = response.index(b"%d" % OPAQUE_BASE)
    before, after = response[:digits], response[digits + 9 :]
    rest = b""
    while data := sock.recv(262_144):
        data = rest + data
        position = 0
        out: list[bytes] = []
        while len(data) - position >= 4:
            end = position + 4 + _LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            opaque = data.index(b'"opaque":', position) + 9
            out += (before, data[opaque : opaque + 9], after)
            position = end
        rest = data[position:]
        if out:
            sock.sendall(b"".join(out))


def measure(concurrency: int, batch: int, rate: float = 0.0) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = multiprocessing.get_context("fork").Process(
            target=answer_everything, args=(listener,), daemon=True
        )
        peer.start()
        address = "{}:{}".format(*listener.getsockname())
        options = ProduceOptions(
            concurrency=concurrency, batch=batch, rate=rate, seconds=_SECONDS, warm_up_s=0.5
        )
        report = ProduceLoad([(MessageQueue("T", "a", 0), address)], options).run()
        peer.join()
    sys.stdout.write(
        f"concurrency {concurrency:3} batch {batch:2} rate {rate:6.0f}: "
        f"{report.messages_per_s:9,.0f} msg/s, {report.client_cpu_us_per_message:6.2f} us each, "
        f"p50 {report.send_latency.p50_ms:.3f} ms\n"
    )


def main() -> None:
    gc.freeze()
    gc.disable()
    for concurrency, batch in ((1, 1), (8, 1), (64, 1), (256, 1), (8, 32)):
        measure(concurrency, batch)
    measure(64, 1, rate=5000)


if __name__ == "__main__":
    main()
