"""Texts that a hostile peer chooses, and a node on a socket that answers everything with them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgpack
import trio

from support.fakes.raw_answers import RawCluster
from trioha.errors import CommandError
from trioha.journal import NullSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import open_listener
from trioha.services.remoting.server import RemotingServer
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\n\t\u202egnp\u2066\u200b[red]x[/red][/]{$error}"
"""Escape sequences, line breaks, bidirectional and invisible characters, markup of Textual."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that must not reach a terminal. Line breaks and tabs may: they lay out the text."""

_KEPT = re.compile(r"[\d.]+:\d+|[A-Z_]+")
"""Addresses and enumerations: without them a node's answer is not looked at."""


def hostile(value: Any) -> Any:
    """The same values, every text with `HOSTILE` behind it."""
    if isinstance(value, dict):
        return {key: hostile(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(inner) for inner in value]
    if isinstance(value, str) and not _KEPT.fullmatch(value):
        return value + HOSTILE
    return value


@contextmanager
def hostile_node(bodies: Mapping[Any, bytes] | None = None) -> Iterator[str]:
    """A name server and broker in a thread of its own; yields its address.

    `bodies` are its answers by request code, looked up with every request, in place of its own.
    """
    started = threading.Event()
    ends: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []
    listener = open_listener("127.0.0.1", 0)

    async def serve() -> None:
        known = _answers(listener.address)
        if bodies is not None:
            known |= {code: _answer_with(bodies, code) for code in bodies}
        handlers: dict[int, Handler] = {code: known.get(code, _refuse) for code in RequestCode}
        server = RemotingServer(RequestTable(handlers, NullSink()).handle, Clock(), NullSink())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.accept, listener, nursery)
            ends.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            started.set()
        listener.close()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert started.wait(10)
        yield listener.address
    finally:
        token, scope = ends[0]
        token.run_sync_soon(scope.cancel)
        thread.join()


def _refuse(_: Channel, __: RemotingCommand, ___: Instant) -> RemotingCommand:
    raise CommandError(ResponseCode.SYSTEM_ERROR, f"no: {HOSTILE}")


def _answers(own: str) -> dict[int, Any]:
    name = f"broker-a{HOSTILE}"
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    status = hostile(cluster.statuses[master])
    status["connections"][0] |= {"in_sync": False, "last_error": HOSTILE, "doubt": HOSTILE}
    status["slave"] = hostile(cluster.statuses[slave]["slave"]) | {
        "last_error": HOSTILE,
        "metadata": HOSTILE,
        "metadata_position": 0,
    }
    status["absent"] = [
        {"host": HOSTILE, "links": 1, "last_error": HOSTILE, "last_error_age_s": 3.0}
    ]
    status["refusals"] = [{"peer": HOSTILE, "reason": HOSTILE, "age_s": 3.0}]
    info = ClusterInfo({name: BrokerData("C" + HOSTILE, name, {0: own})}, {"C" + HOSTILE: (name,)})
    journal = {
        "from": 0,
        "next": 1,
        "end": 1,
        "events": [[0, 1_700_000_000_000, "odd" + HOSTILE, {"peer" + HOSTILE: HOSTILE}]],
    }
    bodies = {
        RequestCode.GET_BROKER_CLUSTER_INFO: info.encode(),
        RequestCode.TRIOHA_NODE_STATUS: msgpack.packb(status),
        RequestCode.TRIOHA_RAFT_STATUS: msgpack.packb(status),
        RequestCode.TRIOHA_JOURNAL_STREAM: msgpack.packb(journal),
        RequestCode.TRIOHA_NODE_TASKS: msgpack.packb(
            {"count": 1, "root": {"name": HOSTILE, "waits_in": HOSTILE, "nurseries": []}}
        ),
        RequestCode.TRIOHA_NODE_CONFIG: msgpack.packb(
            {"settings": [{"key": "k" + HOSTILE, "value": HOSTILE, "origin": HOSTILE}]}
        ),
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: fastjson.dumps(
            {"globalWhiteAddrs": [HOSTILE], "plainAccessConfigs": [{"accessKey": HOSTILE}]}
        ),
    }

    return {code: _answer_with(bodies, code) for code in bodies}


def _answer_with(bodies: Mapping[Any, bytes], code: int) -> Any:
    return lambda _, request, __: request.response(body=bodies[code])
