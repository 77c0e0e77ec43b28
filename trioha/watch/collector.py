"""The collector: decides which node is asked which question when, and keeps the answers.

Theory of operation. The console, the recorder and the checks use the same collector. The shell
calls `due(instant)`, sends each question over a connection of its own, and reports each back
exactly once: `answered` or `failed`. A question in flight is not asked again, so a node that
answers late is asked less often, not twice at a time. `raw` has everything that is known; the shell
reads it at its own pace. To ask once, call `due` again after each batch until it returns nothing.

Name servers are asked for the registered brokers, and these for their state. A replica that was
seen once is asked from then on, registered or not, since an absent replica is the one that matters.
When a node fails to answer, its last answer is kept beside the reason: old numbers have an age, and
none is made up. Members of a set know each other's addresses, so a member that died before the
first look is asked too.

Tables cost the brokers and the viewer by their rows. The larger the tables of a cluster are, the
less often they are asked for: `_TABLE_ROWS_PER_S` in the mean, and a quarter of that for a viewer
whose processor is busy (`thrifty`). For alerts alone (`Interest.alerts`) the offsets of groups are
asked for at a slower rhythm.

    raw = {
      "version": 1, "at_wall_ms": …, "namesrvs": [address, …],
      "members": {address: {"name", "cluster", "id", "registered": bool, "seen_wall_ms"}},
      "answers": {address: {key: {
          "value": plain or None,  "wall_ms": when that came or None,  "took_ms": …,
          "error": "" or why the newest attempt failed,  "error_wall_ms": since when or None,
          "code": the node's error code or None,  "period_ms": …}}},
    }
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import attrs

from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Instant
from trioha.watch.questions import (
    CLIENT,
    CLUSTER,
    GROUPS,
    MEMBERS,
    PROGRESS,
    RUNTIME,
    STATUS,
    TOPIC_STATS,
    TOPICS,
    Question,
)
from trioha.watch.raft import member_number, members_told
from trioha.watch.readings import Fields, fields_of
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

RAW_VERSION = 1
Raw = dict[str, Any]
"""Plain values, shared with the collector: read and pack them, never change them."""

MEMBERS_MAX = 4_096
"""Limit of remembered replicas; the one seen longest ago makes room."""
_TABLES = (TOPICS, GROUPS, PROGRESS)
_SELDOM_NEW = (CLUSTER, TOPICS, GROUPS)
"""Questions whose answers seldom change; the same bytes are not read again."""
_TABLES_FACTOR = 10
"""Operators change topics and groups seldom: their tables are asked ten times less often."""
_QUEUES_FACTOR = 5
"""Queue tables are asked five times less often: a hundred queues cost a broker a millisecond."""
_ALERTS_MS = 30_000
"""No alert of a group needs more than two looks in its `for`, which is a minute."""
_TABLE_ROWS_PER_S = 2_500
"""Rows of groups' offsets in the mean: 12,500 every five seconds, 50,000 every twenty
(`just bench-console`)."""
_TOPICS_PER_S = 100
"""Questions about one topic at one broker in the mean, if many topics are watched."""
THRIFT = 4
"""A thrifty viewer takes so many times fewer rows a second of large tables."""


@attrs.frozen(kw_only=True)
class Interest:
    """The questions beyond the brokers' own state that the viewer needs."""

    topics: bool = False
    """The tables of topics and groups, and each group's offsets."""
    stats_of: frozenset[str] = frozenset()
    """Topics whose queues' offsets are needed."""
    stats_of_all: bool = False
    """The queues' offsets of every topic, less often."""
    members_of: frozenset[str] = frozenset()
    """Groups whose members, with each member's queues, are needed."""
    alerts: bool = False
    """Offsets of each group are needed, seldom: enough for the alerts of groups."""
    changes: int = 0
    """Count of changes that the viewer has made; after each one the tables are asked for anew."""


EVERYTHING = Interest(topics=True, stats_of_all=True)


class Collector:
    """The answers so far, and the questions that are due."""

    def __init__(
        self, namesrvs: Iterable[str], *, period_ms: int = 1000, interest: Interest | None = None
    ) -> None:
        self.interest = interest or Interest()
        """Present interest of the viewer; the next `due` follows a change."""
        self.thrifty = False
        """The viewer has used up its share of a processor: large tables are asked for less often.

        Questions that were never asked are not delayed.
        """
        self._namesrvs = tuple(namesrvs)
        self._period_ms = period_ms
        self._members: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, dict[str, Any]]] = {}
        self._asked: dict[tuple[str, str], int] = {}
        self._out: set[tuple[str, str]] = set()
        self._bodies: dict[tuple[str, str], bytes] = {}
        """The newest answers of `_SELDOM_NEW`, as they came."""
        self._rows: dict[str, int] = {}
        """Rows in each broker's newest answer about groups' offsets."""
        self._turn_ms: int | None = None
        """Start of the turn of questions about single topics."""
        self._turn_left = 0
        """Count of those that this turn may still ask."""
        self._turn_order: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Master and topic, the pair first that was not asked about for the longest time."""
        self._has_new_topics = False
        self._changes = self.interest.changes
        self._before_change: set[tuple[str, str]] = set()
        """Tables that were last asked for before the viewer's latest change."""

    def due(self, instant: Instant) -> list[Question]:
        """Return the questions to ask now. Each is in flight until it is reported back."""
        if self.interest.changes != self._changes:
            self._changes = self.interest.changes
            self._before_change = {one for one in self._asked if one[1] in _TABLES}
        questions = [one for one in self._wanted() if self._is_due(one, instant.now_ms)]
        if self.interest.stats_of_all:
            questions += self._topics_in_turn(instant.now_ms)
        for question in questions:
            self._asked[question.address, question.key] = instant.now_ms
            self._out.add((question.address, question.key))
            self._before_change.discard((question.address, question.key))
        return questions

    def answered(self, question: Question, response: RemotingCommand, instant: Instant) -> bool:
        """Take a node's answer, also one with an error code.

        Return whether it made other questions due: with ten thousand of them, looking is slow.
        """
        try:
            value = self._read(question, response)
        except (CommandError, RemoteProtocolError) as error:
            code_before = self._code(question.address, question.key)
            self.failed(question, str(error), instant)
            if isinstance(error, CommandError):
                self._answers[question.address][question.key]["code"] = error.code
            return self._code(question.address, question.key) != code_before
        known_before = self._value(question.address, question.key)
        code_before = self._code(question.address, question.key)
        count_before = len(self._members)
        self._out.discard((question.address, question.key))
        self._answers.setdefault(question.address, {})[question.key] = {
            "value": value,
            "wall_ms": instant.wall_ms,
            "took_ms": instant.now_ms - self._asked[question.address, question.key],
            "error": "",
            "error_wall_ms": None,
            "code": None,
            "period_ms": question.period_ms,
        }
        kind = question.key.partition("/")[0]
        if question.key == CLUSTER:
            self._note_members(instant.wall_ms)
            return bool(known_before != value)
        if question.key == STATUS:
            self._note_told(question.address)
            return code_before is not None or len(self._members) != count_before
        if question.key == TOPICS:
            has_new = known_before is None or fields_of(value).keys() != known_before.keys()
            self._has_new_topics |= has_new
            if has_new:
                self._note_topics(question.address, fields_of(value))
            return has_new
        if question.key == PROGRESS:
            self._rows[question.address] = _row_count(value)
        return kind == "members" and bool(known_before != value)

    def _read(self, question: Question, response: RemotingCommand) -> Any:
        """Return the value of an answer; the same object as before if the body is the same."""
        if question.key not in _SELDOM_NEW or response.code != ResponseCode.SUCCESS:
            return question.read(response)
        place, body = (question.address, question.key), response.body_bytes()
        if self._bodies.get(place) == body:
            return self._value(*place)
        value = question.read(response)
        self._bodies[place] = body
        return value

    def failed(self, question: Question, reason: str, instant: Instant) -> None:
        """Note that no answer came, and the reason. The last answer is kept."""
        self._out.discard((question.address, question.key))
        # The address is the answer's place already.
        reason = reason.removeprefix(question.address).lstrip(": ")
        answers = self._answers.setdefault(question.address, {})
        last = answers.get(question.key, _NOTHING)
        since = last["error_wall_ms"] if last["error"] else None
        # A new dict each time: a dict that `raw` has returned never changes.
        answers[question.key] = {
            **last,
            "error": reason or "no answer",
            "error_wall_ms": instant.wall_ms if since is None else since,
            "code": None,
            "period_ms": question.period_ms,
        }

    def raw(self, wall_ms: int) -> Raw:
        """Return all answers, as plain values."""
        return {
            "version": RAW_VERSION,
            "at_wall_ms": wall_ms,
            "namesrvs": list(self._namesrvs),
            "members": {address: dict(member) for address, member in self._members.items()},
            "answers": {address: dict(answers) for address, answers in self._answers.items()},
        }

    def _is_due(self, question: Question, now_ms: int) -> bool:
        key = question.address, question.key
        if key in self._out:
            return False
        asked = self._asked.get(key)
        if asked is None or key in self._before_change:
            return True
        # A tenth early counts: otherwise a clock that ticks at 999 ms asks every other second.
        return 10 * (now_ms - asked) >= 9 * question.period_ms

    def _wanted(self) -> Iterator[Question]:
        period_ms = self._period_ms
        for address in self._namesrvs:
            yield Question(address, CLUSTER, period_ms)
        for address, member in self._members.items():
            foreign = self._code(address, STATUS) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            # A broker that is not trioha may be replaced by one that is.
            yield Question(address, STATUS, period_ms * (_TABLES_FACTOR if foreign else 1))
            if foreign:
                yield Question(address, RUNTIME, period_ms)
            if member["id"] == 0 and member["registered"]:
                yield from self._wanted_of_master(address)

    def _wanted_of_master(self, address: str) -> Iterator[Question]:
        interest, period_ms = self.interest, self._period_ms
        if interest.topics:
            yield Question(address, TOPICS, period_ms * _TABLES_FACTOR)
            yield Question(address, GROUPS, period_ms * _TABLES_FACTOR)
        # For alerts alone not at once: the first screen comes first.
        if interest.topics or (interest.alerts and self._answers.get(address)):
            table_ms = period_ms * _QUEUES_FACTOR
            rows_per_s = _TABLE_ROWS_PER_S // THRIFT if self.thrifty else _TABLE_ROWS_PER_S
            rows_ms = sum(self._rows.values()) * 1000 // rows_per_s
            alerts_ms = 0 if interest.topics else _ALERTS_MS
            yield Question(address, PROGRESS, max(table_ms, rows_ms, alerts_ms))
        known = self._value(address, TOPICS) or {}
        for topic in interest.stats_of:
            if topic in known:
                yield Question(address, f"{TOPIC_STATS}{topic}", period_ms)
        for group in interest.members_of:
            yield Question(address, f"{MEMBERS}{group}", period_ms)
            for client in (self._value(address, f"{MEMBERS}{group}") or {}).get("clients", ()):
                key = f"{CLIENT}{group}/{client['client_id']}"
                yield Question(address, key, period_ms * _QUEUES_FACTOR)

    def _topics_in_turn(self, now_ms: int) -> list[Question]:
        """Return questions about the topics that were not asked about for the longest time.

        A turn begins every `_QUEUES_FACTOR` periods. A new topic is asked about in the same turn,
        as long as the turn's count lasts.
        """
        period_ms = self._period_ms * _QUEUES_FACTOR
        if self._turn_ms is None or 10 * (now_ms - self._turn_ms) >= 9 * period_ms:
            self._turn_ms = now_ms
            topics_per_s = _TOPICS_PER_S
            # New ones are first in turn.
            if self.thrifty and next(iter(self._turn_order), None) in self._asked:
                topics_per_s //= THRIFT
            self._turn_left = max(1, topics_per_s * period_ms // 1000)
        elif not (self._has_new_topics and self._turn_left):
            return []
        self._has_new_topics = False
        questions: list[Question] = []
        for place in list(islice(self._turn_order, 2 * self._turn_left)):
            address, key = place
            member = self._members.get(address)
            if key.removeprefix(TOPIC_STATS) not in (self._value(address, TOPICS) or {}):
                del self._turn_order[place]
            elif member is None or member["id"] or not member["registered"]:
                self._turn_order.move_to_end(place)
            elif self._is_due(question := Question(address, key, period_ms), now_ms):
                questions.append(question)
                self._turn_order.move_to_end(place)
            if len(questions) == self._turn_left:
                break
        self._turn_left -= len(questions)
        return questions

    def _note_topics(self, address: str, topics: Fields) -> None:
        """Put new topics of a broker first in turn."""
        for topic in reversed(list(topics)):
            place = address, f"{TOPIC_STATS}{topic}"
            if place not in self._turn_order:
                self._turn_order[place] = None
                self._turn_order.move_to_end(place, last=False)

    def _note_members(self, wall_ms: int) -> None:
        """Take the brokers that name servers list; if two differ about an id, the newest counts."""
        told = [self._answers.get(address, {}).get(CLUSTER) for address in self._namesrvs]
        answers = [one for one in told if one is not None and one["value"] is not None]
        registered: set[str] = set()
        for answer in sorted(answers, key=_answered_ms):
            for name, broker in answer["value"].items():
                for broker_id, address in broker["addresses"]:
                    registered.add(address)
                    # Removed and added again: the dict is ordered by when a member was seen.
                    self._members.pop(address, None)
                    self._members[address] = {
                        "name": name,
                        "cluster": broker["cluster"],
                        "id": broker_id,
                        "registered": True,
                        "seen_wall_ms": wall_ms,
                    }
        for address, member in self._members.items():
            if address not in registered:
                member["registered"] = False
        while len(self._members) > MEMBERS_MAX:
            del self._members[next(iter(self._members))]

    def _note_told(self, address: str) -> None:
        """Take the other members that a member knows: one may have died before the first look."""
        status, member = self._value(address, STATUS), self._members.get(address)
        told = status.get("members") if isinstance(status, dict) else None
        if member is None:
            return
        known = [
            (int(home_id) if str(home_id).isdecimal() else 0, other)
            for home_id, other in (told.items() if isinstance(told, dict) else ())
        ]
        known += [(member_number(name), other) for name, other in members_told(status).items()]
        for broker_id, other in known:
            if isinstance(other, str) and other and other not in self._members:
                self._members[other] = {
                    "name": member["name"],
                    "cluster": member["cluster"],
                    "id": broker_id,
                    "registered": False,
                    "seen_wall_ms": None,
                }

    def _value(self, address: str, key: str) -> Any:
        answer = self._answers.get(address, {}).get(key)
        return None if answer is None else answer["value"]

    def _code(self, address: str, key: str) -> int | None:
        answer = self._answers.get(address, {}).get(key)
        return None if answer is None else answer["code"]


def _row_count(progress: Any) -> int:
    return sum(len(rows) for topics in progress.values() for rows in topics.values())


def _answered_ms(answer: dict[str, Any]) -> int:
    return int(answer["wall_ms"])


_NOTHING: dict[str, Any] = {
    "value": None,
    "wall_ms": None,
    "took_ms": None,
    "error": "",
    "error_wall_ms": None,
    "code": None,
    "period_ms": 0,
}
