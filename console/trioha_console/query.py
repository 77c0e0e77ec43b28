"""Query for messages, written in a line: ``orders since 10m ago``, ``orders key 4711``.

TOPIC [last N]                 the newest of every queue
TOPIC since TIME | at TIME     stored from then on
TOPIC offset N                 from that queue offset on
TOPIC key KEY                  by the keys that its sender gave
[TOPIC] id ID                  one message, by the broker's id or the sender's
... [broker NAME] [queue N] [count N]
"""

from __future__ import annotations

import enum

import attrs

from trioha.errors import TriohaError
from trioha.times import parse_moment

COUNT = 50
COUNT_MAX = 500


class By(enum.Enum):
    LAST = "last"
    SINCE = "since"
    OFFSET = "offset"
    KEY = "key"
    ID = "id"


@attrs.frozen
class Query:
    """One question about messages."""

    topic: str
    by: By = By.LAST
    key: str = ""
    """Key or message id, for KEY and ID."""
    number: int = 0
    """Queue offset for OFFSET; milliseconds since 1970 for SINCE."""
    broker: str = ""
    queue_id: int | None = None
    count: int = COUNT


FORMS = (
    "TOPIC  ·  TOPIC since 10m ago  ·  TOPIC at 2026-11-20T09:31  ·  TOPIC offset 120  ·  "
    "TOPIC key K  ·  id ID  ·  + broker B, queue N, count N"
)
_WORDS = {"last", "since", "at", "offset", "key", "id", "broker", "queue", "count"}


def parse_query(text: str, now_ms: int) -> Query:
    """The query that a line says. Errors: TriohaError in a sentence."""
    words = text.split()
    if not words:
        raise TriohaError("name a topic, or an id: `orders since 10m ago`, `id 0A0001…`")
    topic = ""
    if words[0] != "id":
        topic, words = words[0], words[1:]
    query = Query(topic)
    while words:
        word, words = words[0], words[1:]
        if word not in _WORDS:
            raise TriohaError(f"{word} is not understood here; the forms are {FORMS}")
        value, words = _value(words)
        query = _with(query, word, value, now_ms)
    if not query.topic and query.by is not By.ID:
        raise TriohaError("name a topic first")
    return query


def _value(words: list[str]) -> tuple[str, list[str]]:
    """All up to the next word of ours: times have blanks in them."""
    end = next((index for index, word in enumerate(words) if word in _WORDS), len(words))
    return " ".join(words[:end]), words[end:]


def _with(query: Query, word: str, value: str, now_ms: int) -> Query:
    if not value and word != "last":
        raise TriohaError(f"say what {word}: `{query.topic} {word} …`")
    match word:
        case "last":
            count = _number("last", value) if value else query.count
            return attrs.evolve(query, by=By.LAST, count=min(COUNT_MAX, count))
        case "since" | "at":
            return attrs.evolve(query, by=By.SINCE, number=_moment(value, now_ms))
        case "offset":
            return attrs.evolve(query, by=By.OFFSET, number=_number(word, value))
        case "key":
            return attrs.evolve(query, by=By.KEY, key=value)
        case "id":
            return attrs.evolve(query, by=By.ID, key=value)
        case "broker":
            return attrs.evolve(query, broker=value)
        case "queue":
            return attrs.evolve(query, queue_id=_number(word, value))
        case _:
            return attrs.evolve(query, count=min(COUNT_MAX, _number(word, value)))


def _number(word: str, value: str) -> int:
    if not value.isdecimal():
        raise TriohaError(f"{word} takes a number, not {value}")
    return int(value)


def _moment(value: str, now_ms: int) -> int:
    moment = parse_moment(value, now_ms)
    if moment is None:
        # `since 10m` says it as well as `since 10m ago`.
        moment = parse_moment(f"{value} ago", now_ms)
    if moment is None:
        raise TriohaError(
            f"{value} is no time; write 2026-11-20T09:31 (UTC), 10m ago, or milliseconds since 1970"
        )
    return moment
