"""A broker's answers to thousands of odd requests and the store they leave: alike on any build.

python -m support.handlers.transcript DIRECTORY
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from random import Random

import attrs

from support.handlers.sending import FakeChannel
from support.stores.small import small_config
from trioha.broker.core import BrokerCore
from trioha.compiled import this_build
from trioha.config import BrokerConfig
from trioha.errors import RemoteProtocolError
from trioha.remoting.channel import Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.outbox import Outbox
from trioha.remoting.requests import Requests, RequestTable
from trioha.store.message_store import FileMessageStore
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.remoting_command import ExtValue, RemotingCommand, encode

_TOPICS = ("T", "Töpic", "TBW102", "%RETRY%g", "T" * 128, "")
_NUMBERS = ("0", "1", "7", "-1", "2147483648", "x", "", "99")
_PROPERTIES = (
    "UNIQ_KEY\x017F00000100002A9F{}\x02WAIT\x01true",
    "UNIQ_KEY\x01{}\x02KEYS\x01a b {}\x02TAGS\x01TagÄ\x02WAIT\x01false",
    "WAIT\x01true\x02DELAY\x01{}",
    "TRAN_MSG\x01true",
    "k\x01" + "v" * 300,
    "\x01\x02\x02{}",
    "",
)
_REQUESTS = 4000


class _NoReplicas:
    push2slave_max_offset = 0
    push2slave_max_metadata = -1
    by_quorum = False
    metadata_available = False

    def slave_available(self, need_offset: int) -> bool:
        return False


def _odd_request(rng: Random, opaque: int) -> bytes:
    serialize_type = rng.randrange(2)
    usual = rng.random() < 0.7
    text = rng.choice(_PROPERTIES).replace("{}", str(rng.randrange(100)))
    fields: dict[str, ExtValue] = {
        "a": "group",
        "b": "T" if usual else rng.choice(_TOPICS),
        "c": "TBW102",
        "d": "4",
        "e": str(rng.randrange(4)) if usual else rng.choice(_NUMBERS),
        "f": "0" if usual else rng.choice(_NUMBERS),
        "g": str(1_700_000_000_000 + opaque),
        "h": "0",
        "i": text,
        "j": "0" if usual else rng.choice(_NUMBERS),
        "k": "false",
        "m": "false",
    }
    body = rng.randbytes(rng.choice((0, 1, 100, 900)))
    code = 310
    match rng.randrange(8):
        case 0:
            code, fields["m"] = 320, "true"
            element = BatchElement(0, body[:100], text.encode()[:200])
            body = encode_batch([element] * rng.randrange(4))
        case 1:
            code = 11
            fields = {
                "consumerGroup": "g",
                "topic": "T",
                "queueId": str(rng.randrange(5)),
                "queueOffset": str(rng.choice((0, 3, 50, 10_000))),
                "maxMsgNums": "8",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": rng.choice(("*", "TagÄ", "a||b")),
                "subVersion": "0",
            }
            body = b""
        case 2:
            code = rng.choice((10, 12, 29, 30, 31, 34, 105, 901))
            fields |= {"topic": "T", "queueId": "1", "timestamp": "5", "key": "a", "maxNum": "4"}
    request = RemotingCommand(code, fields, body, opaque, serialize_type=serialize_type)
    frame = bytearray(encode(request))
    if rng.random() < 0.1:
        frame[rng.randrange(8, len(frame))] = rng.randrange(256)
    return bytes(frame)


def main(directory: Path) -> None:
    """Print the build, then one line per answer or closed connection, then what is in the store."""
    print(this_build(), file=sys.stderr)
    config = attrs.evolve(
        BrokerConfig(), store_path_root_dir=str(directory), broker_ip1="127.0.0.1"
    )
    store = FileMessageStore.open(small_config(directory / "store"), RecordedEvents(), wall_ms=1000)
    core = BrokerCore(
        config, store, _NoReplicas(), RecordedEvents(), Random(1), Instant(0, 1000), lambda _: {}
    )
    store.tell_dispatches(core.on_dispatch)
    table = RequestTable(core.handlers, RecordedEvents())
    rng = Random(2)
    channel = FakeChannel()
    for opaque in range(_REQUESTS):
        machine = RemotingConnection()
        outbox = Outbox(1 << 30)
        requests = Requests(machine, outbox, table.handle, lambda: 0, lambda: None)
        frame = _odd_request(rng, opaque)
        cut = rng.randrange(len(frame))
        end = ""
        for piece in (frame[:cut], frame[cut:]):
            if piece:
                machine.receive_data(piece)
                try:
                    requests.handle_all(channel, Instant(opaque, 1000 + opaque))
                except RemoteProtocolError as error:
                    end = f" closed: {error}"
                    break
        print(opaque, b"".join(outbox.buffers).hex(), end)
        while store.dispatch(1 << 16):
            pass
    store.close()
    for path in sorted((directory / "store").rglob("*")):
        if path.is_file() and path.parent.name not in ("store", "index"):
            print(path.relative_to(directory), hashlib.sha256(path.read_bytes()).hexdigest())
    for path in sorted((directory / "store" / "index").iterdir()):
        print("index", hashlib.sha256(path.read_bytes()).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
