"""The lines after `:` that change something, as operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from trioha.errors import TriohaError
from trioha.jobs.offsets import Goal, To
from trioha.jobs.permissions import PERMISSIONS
from trioha.times import parse_moment
from trioha_console.operations import (
    alter_topic,
    create_topic,
    delete_group,
    delete_topic,
    drain_broker,
    purge_dead_letters,
    put_group,
    resend_dead_letters,
    reset_offsets,
    set_setting,
    undrain_broker,
)
from trioha_console.planned import PlannedOperation

_QUEUES = 8
_QUEUES_MAX = 16_384


def parse_operation(command: str, rest: str, now_ms: int) -> PlannedOperation:
    """Return the operation of a command's line. Errors: TriohaError in a sentence."""
    return _PARSERS[command](rest.split(), now_ms)


def _create_topic(words: list[str], _: int) -> PlannedOperation:
    name, *more = _at_least(words, 1, "create-topic NAME [QUEUES] [rw|r|w]")
    queues, perm = _QUEUES, "rw"
    for word in more:
        if word.isdecimal():
            queues = _queues(word)
        else:
            perm = _perm(word)
    return create_topic(name, queues, perm)


def _alter_topic(words: list[str], _: int) -> PlannedOperation:
    usage = "alter-topic NAME [queues N] [perm rw|r|w] [order yes|no]"
    name, *more = _at_least(words, 3, usage)
    queues: int | None = None
    perm: str | None = None
    order: bool | None = None
    for key, value in zip(more[::2], more[1::2], strict=False):
        if key == "queues":
            queues = _queues(value)
        elif key == "perm":
            perm = _perm(value)
        elif key == "order" and value in ("yes", "no"):
            order = value == "yes"
        else:
            raise TriohaError(f"{key} {value} is not understood: `:{usage}`")
    if len(more) % 2:
        raise TriohaError(f"{more[-1]} has no value: `:{usage}`")
    return alter_topic(name, queues=queues, perm=perm, order=order)


def _create_group(words: list[str], _: int) -> PlannedOperation:
    name, *more = _at_least(words, 1, _GROUP_USAGE.format("create"))
    return put_group(name, create=True, **_group_settings(more, "create"))


def _alter_group(words: list[str], _: int) -> PlannedOperation:
    name, *more = _at_least(words, 3, _GROUP_USAGE.format("alter"))
    return put_group(name, create=False, **_group_settings(more, "alter"))


_GROUP_USAGE = "{}-group NAME [retry N] [consume yes|no]"


def _group_settings(words: list[str], verb: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in zip_longest(words[::2], words[1::2], fillvalue=""):
        if key == "retry" and value.isdecimal():
            found["retry_max"] = int(value)
        elif key == "consume" and value in ("yes", "no"):
            found["consume"] = value == "yes"
        else:
            raise TriohaError(f"{key} {value} is not understood: `:{_GROUP_USAGE.format(verb)}`")
    return found


def _reset_offsets(words: list[str], now_ms: int) -> PlannedOperation:
    usage = "reset-offsets GROUP TOPIC earliest|latest|TIME|offset N"
    group, topic, *goal = _at_least(words, 3, usage)
    return reset_offsets(group, topic, _goal(" ".join(goal), now_ms))


def _goal(text: str, now_ms: int) -> Goal:
    if text in ("earliest", "latest"):
        return Goal(To(text))
    word, _, number = text.partition(" ")
    if word == "offset" and number.isdecimal():
        return Goal(To.OFFSET, int(number))
    # `1h` says it as well as `1h ago`.
    moment = parse_moment(text, now_ms) or parse_moment(f"{text} ago", now_ms)
    if moment is None:
        raise TriohaError(
            f'invalid time "{text}"; write earliest, latest, 1h ago, 2026-11-20T09:31 (UTC)'
            " or offset N"
        )
    return Goal(To.TIME, moment)


def _resend(words: list[str], _: int) -> PlannedOperation:
    group, *ids = _at_least(words, 1, "resend GROUP [ID]")
    return resend_dead_letters(group, ids[0] if ids else "")


def _set(words: list[str], _: int) -> PlannedOperation:
    broker, key, *value = _at_least(words, 3, "set BROKER KEY VALUE")
    return set_setting(broker, key, " ".join(value))


def _drain(words: list[str], _: int) -> PlannedOperation:
    broker, *number = _at_least(words, 1, "drain BROKER [ID]")
    if number and not number[0].isdecimal():
        raise TriohaError(f"an id is a number, not {number[0]}")
    return drain_broker(broker, int(number[0]) if number else None)


def _named(
    make: Callable[[str], PlannedOperation], usage: str
) -> Callable[[list[str], int], PlannedOperation]:
    return lambda words, _: make(_at_least(words, 1, usage)[0])


def _at_least(words: list[str], count: int, usage: str) -> list[str]:
    if len(words) < count:
        raise TriohaError(f"write `:{usage}`")
    return words


def _queues(word: str) -> int:
    if not (word.isdecimal() and 1 <= int(word) <= _QUEUES_MAX):
        raise TriohaError(f"a topic has 1 to {_QUEUES_MAX} queues per broker, not {word}")
    return int(word)


def _perm(word: str) -> str:
    if word not in PERMISSIONS:
        raise TriohaError(f"{word} is no permission; there are {', '.join(PERMISSIONS)}")
    return word


_PARSERS: Mapping[str, Callable[[list[str], int], PlannedOperation]] = {
    "create-topic": _create_topic,
    "alter-topic": _alter_topic,
    "delete-topic": _named(delete_topic, "delete-topic NAME"),
    "create-group": _create_group,
    "alter-group": _alter_group,
    "delete-group": _named(delete_group, "delete-group NAME"),
    "reset-offsets": _reset_offsets,
    "resend": _resend,
    "purge": _named(purge_dead_letters, "purge GROUP"),
    "set": _set,
    "drain": _drain,
    "undrain": _named(undrain_broker, "undrain BROKER"),
}
