"""Processor time of the check of a signed send.

    PYTHONPATH=tests python tests/bench/bench_signed_requests.py

A send of 128 bytes as Java's client makes it, signed and unsigned, is decoded from its frame and
given to a handler that reads its header: with and without the check before it, in turns. There is
no connection and no Trio. Signing makes the request longer as well: Java's client writes a packed
header twice then, once as an object and once as the table that it has signed.
"""

from __future__ import annotations

import argparse
import statistics
import time

from support.handlers.sending import FakeChannel, at

from trioha.broker.send_header import read_send_header
from trioha.compiled import this_build
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.security.accounts import AclRules
from trioha.security.acl_file import parse_acl_file, rules_of
from trioha.security.guard import Guard
from trioha.security.requirements import Port
from trioha.security.signature import Credentials
from trioha.wire.codes import LanguageCode, RequestCode, SerializeType
from trioha.wire.packed_fields import pack_fields
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

SECRET = "at-least-seven"
FILE = f"""
accounts:
- accessKey: shop-orders
  secretKey: {SECRET}
  topicPerms: [orders=PUB|SUB]
"""
FIELDS: dict[str, ExtValue] = {
    "a": "bench-producer",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1764054795123",
    "h": "0",
    "i": "UNIQ_KEY\x017F0000011D4C18B4AAC2123456780001\x02WAIT\x01true\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


class Source:
    """Implements `trioha.security.guard.RulesSource`."""

    def __init__(self) -> None:
        self.rules: AclRules = rules_of([parse_acl_file("plain_acl.yml", FILE)])


def send_frame(form: SerializeType, *, signed: bool) -> bytes:
    """Return a send as Java's client 4.9.8 makes it."""
    request = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2,
        dict(FIELDS),
        bytes(128),
        language=LanguageCode.JAVA,
        serialize_type=form,
    )
    if signed:
        Credentials("shop-orders", SECRET).sign(request)
    if signed and form is SerializeType.ROCKETMQ:
        packed = pack_fields(FIELDS) + pack_fields(request.ext_fields)
        request = RemotingCommand(
            request.code,
            body=request.body,
            language=request.language,
            serialize_type=form,
            encoded_fields=packed,
        )
    return encode(request)


def serve(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
    """Read the header, as the handler of sends does; nothing else."""
    read_send_header(request)


def measure(data: bytes, handler: Handler, count: int) -> float:
    """Microseconds a request."""
    channel, instant = FakeChannel(), at()
    began = time.process_time_ns()
    for _ in range(count):
        handler(channel, decode_frame(data), instant)
    return (time.process_time_ns() - began) / count / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    checked = Guard(Port.BROKER, Source()).guarded(RequestCode.SEND_MESSAGE_V2, serve)
    print(f"{this_build()}: us of processor time a request, medians (and the least)")
    for form in SerializeType:
        plain, signed = send_frame(form, signed=False), send_frame(form, signed=True)
        runs: dict[str, tuple[bytes, Handler]] = {
            "unsigned": (plain, serve),
            "signed, unchecked": (signed, serve),
            "signed and checked": (signed, checked),
        }
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, (data, handler) in runs.items():
                found[name].append(measure(data, handler, options.requests))
        shown = [f"{name} {statistics.median(f):.2f} ({min(f):.2f})" for name, f in found.items()]
        print(f"{form.name}: {', '.join(shown)}")


if __name__ == "__main__":
    main()
