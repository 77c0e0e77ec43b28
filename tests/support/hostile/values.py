"""Odd values, and what a peer that knows a structure makes of it."""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, 1, 2, 3, 7, 31, 32, 100, 4096, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1),
    *(2**63, -(2**63), 2**64 - 1, 1.5, -0.0, True, False, None, "", "x", "1e3", " 5", "٣", "0x10"),
    *("9" * 50, "9" * 5000, "NaN", "-", "+7", "1_000"),
)
TEXTS: tuple[str, ...] = (
    *(
        "",
        " ",
        "T",
        "U",
        "g",
        "h",
        "%RETRY%g",
        "%DLQ%g",
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "broker-a",
    ),
    *(
        "DefaultCluster",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "DefaultCluster_REPLY_TOPIC",
        "*",
        "a||b",
        "TAG",
    ),
    *("SQL92", "SINGLE_TAG", "é", "\x00", "\x01\x02", "a" * 128, "b" * 256, "c" * 4000, "../../x"),
    *(
        "10.0.0.1:10911",
        "10.0.9.9:1",
        "[::1]:1",
        ":",
        "localhost:99999999",
        "TAGS\x01a\x02KEYS\x01k",
    ),
    *("UNIQ_KEY\x017F00000100002A9F00000000000000FF\x02", "DELAY\x013\x02", "DELAY\x01-9\x02"),
    "REPLY_TO_CLIENT\x01c@1\x02",
    *("WAIT\x01false\x02", "TRAN_MSG\x01true\x02", "0A00000100002A9F0000000000000000", "\ufffe"),
    *("0123456789abcdef", "true", "false", "null", "{}", "brokerPermission=6", "maxMessageSize=-1"),
)
PLACES = ("T", "U", "%RETRY%g", "V")
CLIENT_GROUPS = ("g", "h", "pg")


def odd_bytes(rng: Random, size_max: int = 200) -> bytes:
    return rng.randbytes(rng.randrange(size_max))


def odd_value(rng: Random, depth: int = 0) -> Any:
    """A value of any type that JSON or msgpack has."""
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {rng.choice(TEXTS): odd_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [rng.choice(NUMBERS)] * rng.choice((0, 1, 5, 300))


def changed(rng: Random, value: Any, depth: int = 0) -> Any:
    """The value with some of its parts replaced, left out or doubled."""
    if rng.random() < 0.04 * (depth + 1):
        return odd_value(rng)
    if isinstance(value, dict):
        table = {key: changed(rng, one, depth + 1) for key, one in value.items()}
        if table and rng.random() < 0.15:
            del table[rng.choice(list(table))]
        if rng.random() < 0.1:
            table[rng.choice(TEXTS)] = odd_value(rng)
        return table
    if isinstance(value, (list, tuple)):
        items = [changed(rng, one, depth + 1) for one in value]
        return items * 2 if rng.random() < 0.05 else items
    return value


def damaged(rng: Random, data: bytes) -> bytes:
    """The bytes with one fault: flipped, cut, doubled, or with others put in."""
    at = rng.randrange(len(data) + 1)
    to = min(len(data), at + rng.randrange(1, 9))
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at] + bytes(one ^ 1 << rng.randrange(8) for one in data[at:to]) + data[to:]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + odd_bytes(rng, 20) + data[at:]
    if kind == 3:
        return data[:to] + data[at:]
    return data[:at] + b"\xff" * (to - at) + data[to:]
