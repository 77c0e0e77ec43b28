"""Bodies of requests, right in their structure or nearly so."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack

from support.hostile.values import CLIENT_GROUPS, PLACES, changed, odd_bytes, odd_value
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import RequestCode as Code
from trioha.wire.route import RegisterBrokerBody

PEER: dict[str, Any] = {"home_id": 9, "address": "10.0.9.9:9", "ha_address": "10.0.9.9:8"}
TICKET = {"ticket_id": "0123456789abcdef"}
NODE_BODIES: dict[int, dict[str, Any]] = {
    Code.FAILOVER_TICKET: {
        **{"broker_name": "broker-a", "operator": "eve", "ttl_ms": 3000, "wait_ms": 0},
        **{"log_offset": 0, "metadata_position": 0, "forced": False},
    },
    Code.PAUSE_WRITES: {"pause_ms": 100},
    Code.HAND_OVER: {"epoch": 2, "log_offset": 0, "metadata_position": 0, **PEER},
    Code.PROMOTE: {
        **{"epoch": 2, "sync": True, "log_offset": 0, "planned": False, "promised": [0]},
        **{"written_off": [0], "members": {"0": "10.0.9.9:9"}},
    },
    Code.FOLLOW: {"epoch": 2, "nonce": b"\xaa" * 8, **PEER},
    Code.PROMISE: {"epoch": 2, "nonce": b"\xaa" * 8},
    Code.RELEASE: {"audit": TICKET, "resume": False},
    Code.FAILOVER_AUDIT: {},
    Code.HA_RESYNC: {"broker_name": "broker-a", "dry_run": True, "force": False},
    Code.HA_HELLO: {
        **{"version": 1, "broker_name": "broker-a", "home_id": 9, "address": "10.0.9.9:9"},
        **{
            "known_epoch": 1,
            "known_nonce": b"\xaa" * 8,
            "promised_epoch": 0,
            "promised_nonce": b"",
        },
        **{"is_whole": True, "members": {7: "10.0.9.7:9"}, "history": b"", "min": 0, "end": 0},
        **{"nonce": b"n" * 16, "spans": [[0, 100]], "ha_address": "", "wants_epoch": 0},
        **{"wants_nonce": b""},
    },
    Code.TRIOHA_RAFT_ADMIN: {"change": "add", "member": "n9", "address": "10.0.9.9:1", "to": "n1"},
    Code.TRIOHA_JOURNAL_STREAM: {"after": 0, "wait_ms": 10, "names": [], "limit": 10},
}
"""Bodies in msgpack by request code."""


def _subscription(rng: Random) -> dict[str, object]:
    return {
        **{
            "topic": rng.choice(PLACES),
            "subString": rng.choice(("*", "a||b", "x")),
            "tagsSet": ["a"],
        },
        **{"codeSet": [97], "subVersion": rng.randrange(9), "expressionType": "TAG"},
    }


def _heartbeat(rng: Random) -> object:
    consumer = {
        **{"groupName": rng.choice(CLIENT_GROUPS), "consumeType": "CONSUME_PASSIVELY"},
        **{"messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
        "subscriptionDataSet": [_subscription(rng) for _ in range(rng.randrange(3))],
    }
    return {
        **{"clientID": "c@1", "producerDataSet": [{"groupName": rng.choice(CLIENT_GROUPS)}]},
        "consumerDataSet": [consumer] * rng.randrange(3),
    }


def _locks(rng: Random) -> object:
    queue = {"topic": rng.choice(PLACES), "brokerName": "broker-a", "queueId": rng.randrange(4)}
    return {"consumerGroup": "g", "clientId": "c@1", "mqSet": [queue] * rng.randrange(3)}


def _config_check(rng: Random) -> object:
    return {"group": "g", "clientId": "c@1", "subscriptionData": _subscription(rng)}


def _acks(rng: Random) -> object:
    ack = {
        **{"c": "g", "t": rng.choice(PLACES), "r": rng.choice("0123"), "so": rng.randrange(9)},
        **{"q": rng.randrange(4), "rq": rng.choice((0, 7, 999)), "pt": 1_700_000_000_000},
        **{"it": 60_000, "b": rng.choice(("AQ==", "/w==", [1], "x"))},
    }
    return {"brokerName": "broker-a", "acks": [ack] * rng.randrange(4)}


def _assignment(rng: Random) -> object:
    return {
        **{"topic": rng.choice(PLACES), "consumerGroup": "g", "clientId": "c@1"},
        **{"strategyName": rng.choice(("AVG", "?")), "messageModel": "CLUSTERING"},
    }


def _request_mode(rng: Random) -> object:
    return {
        **{"topic": rng.choice(PLACES), "consumerGroup": "g"},
        **{"mode": rng.choice(("POP", "PULL", "?")), "popShareQueueNum": rng.randrange(-2, 3)},
    }


def _group(rng: Random) -> object:
    return {"groupName": rng.choice(CLIENT_GROUPS), "retryQueueNums": 1, "retryMaxTimes": 16}


def _version(rng: Random) -> object:
    return {"timestamp": 1, "counter": rng.randrange(3)}


JSON_BODIES: dict[int, Callable[[Random], object]] = {
    Code.HEART_BEAT: _heartbeat,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.CHECK_CLIENT_CONFIG: _config_check,
    Code.BATCH_ACK_MESSAGE: _acks,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    Code.QUERY_DATA_VERSION: _version,
}


def odd_body(rng: Random, code: int) -> bytes:
    """A body for a request of this code."""
    if code in JSON_BODIES:
        text = json.dumps(changed(rng, JSON_BODIES[code](rng)))
        # Fastjson's dialect, now and then.
        return (text.replace('"', "'") if rng.random() < 0.1 else text).encode("utf-8", "replace")
    if code in NODE_BODIES:
        return packed(changed(rng, {**TICKET, **NODE_BODIES[code]}))
    if code == Code.SEND_BATCH_MESSAGE:
        count = rng.choice((0, 1, 3, 50))
        element = BatchElement(
            0, odd_bytes(rng, 30), rng.choice((b"", b"KEYS\x01k\x02", b"\xff\x01"))
        )
        return encode_batch([element] * count)
    if code == Code.REGISTER_BROKER:
        topics = {name: TopicConfig(name) for name in PLACES[: rng.randrange(5)]}
        registration = RegisterBrokerBody(DataVersion(1, rng.randrange(3)), topics)
        return registration.encode(compressed=rng.random() < 0.5)
    if code == Code.UPDATE_BROKER_CONFIG:
        return rng.choice((b"a=b\n", b"traceOn=true", b"=", b"\xff", b"x" * 3000))
    kind = rng.randrange(6)
    if kind == 0:
        return packed(odd_value(rng))
    if kind == 1:
        return odd_bytes(rng)
    return b""


def packed(value: object) -> bytes:
    """msgpack; a number that it has no form for becomes text."""
    try:
        return bytes(msgpack.packb(value))
    except (OverflowError, ValueError, TypeError):
        return bytes(msgpack.packb(str(value), unicode_errors="surrogatepass"))
