"""Invariants of a replica set, checked by a judge that sees every machine at once.

The judge is told what nodes do (a put is answered, a term begins, a log is cut) and looks at the
machines' own disks. It knows more than anybody in the world it watches, so it can say at once what
a history would show only later: a message was acknowledged that the next master does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.sim.pair.records import RecordLog, StoredMessage


class Broken(AssertionError):
    """An invariant does not hold."""


@attrs.define(eq=False)
class JudgedTerm:
    """A term of mastership as it really was."""

    record: EpochRecord
    host: str
    forced: bool
    """An operator overrode a refusal for it."""
    written_off: frozenset[str] = frozenset()
    """Members that an operator gave up for it by force."""


@attrs.define
class Counts:
    """Counts of the events that a seed is meant to cause."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    terms: int = 0
    planned: int = 0
    forced: int = 0
    cuts: int = 0
    given_up: int = 0
    crashes: int = 0
    shown: int = 0
    sets: Counter[int] = attrs.Factory(Counter)
    """Seeds, by the number of nodes."""

    def add(self, other: Counts) -> None:
        for field in attrs.fields(Counts):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Checker:
    """Raises `Broken` at the event that breaks a promise."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.terms: list[JudgedTerm] = []
        self.acknowledged: dict[int, StoredMessage] = {}
        """Messages answered with SEND_OK, by id, where the answer said; less what was given up."""
        self._places: dict[tuple[int, int], int] = {}
        self._unshown: set[int] = set()
        """Messages that were given up; a node that was written off may still hold them."""
        self._shown: dict[tuple[int, int], dict[int, StoredMessage]] = {}
        """Messages that readers of any node were shown, by place and id; less what was given up."""

    @property
    def newest(self) -> JudgedTerm | None:
        return self.terms[-1] if self.terms else None

    def put_acknowledged(
        self, host: str, epoch: int, entry: StoredMessage, logs: Logs, lost_ends: Mapping[str, int]
    ) -> None:
        """SEND_OK leaves a node. `lost_ends`: ends of logs before their machines lost power.

        A master that stood still may answer late, in an older term, for a message that its slave
        acknowledged in time: then the newer master holds it.
        """
        self.counts.acknowledged += 1
        holders = [
            other
            for other, log in logs.items()
            if log.by_message.get(entry.message_id) == entry
            or log.max_phy_offset < entry.end <= lost_ends[other]
        ]
        if len(holders) < 2:
            raise Broken(f"{host} acknowledged {entry}, held by {holders} alone")
        newest = self.newest
        if newest is not None and newest.record.epoch > epoch and newest.host not in holders:
            if newest.written_off.issuperset(holders):
                self.counts.given_up += 1
                return
            raise Broken(
                f"{host} acknowledged {entry} in epoch {epoch}, cut off: {newest.host} is master "
                f"of epoch {newest.record.epoch} and does not hold it"
            )
        known = self._places.setdefault((entry.queue_id, entry.queue_offset), entry.message_id)
        if known != entry.message_id:
            raise Broken(
                f"queue {entry.queue_id} offset {entry.queue_offset} was given to message {known} "
                f"and to {entry.message_id}, both acknowledged"
            )
        self._check_place(host, entry)
        self.acknowledged[entry.message_id] = entry

    def term_begun(
        self,
        host: str,
        record: EpochRecord,
        logs: Logs,
        *,
        forced: bool,
        gives_up: bool,
        written_off: frozenset[str] = frozenset(),
    ) -> None:
        """A node is master from now on.

        `forced`: somebody was warned that others may know of more, and wanted it: then a number
        may be given twice, and the nonces tell the two apart. `gives_up`: they were told of a loss.
        `written_off`: they gave up these members, and so what those acknowledge to each other.
        """
        self.counts.terms += 1
        log = logs[host]
        for term in self.terms:
            if term.record.epoch == record.epoch and not (forced or term.forced):
                raise Broken(f"{host} and {term.host} are both masters of epoch {record.epoch}")
        if log.parsed_end != log.max_phy_offset or log.max_phy_offset != record.start_offset:
            raise Broken(
                f"{host}'s epoch {record.epoch} begins at {record.start_offset}, whole records end "
                f"at {log.parsed_end}, the log at {log.max_phy_offset}"
            )
        unheld = [one for one in self._all_shown() if log.by_message.get(one.message_id) != one]
        if unheld and not gives_up:
            raise Broken(
                f"{host} begins epoch {record.epoch} without {len(unheld)} messages that readers "
                f"were shown, the first {unheld[0]}"
            )
        self._forget_shown(unheld)
        if gives_up:
            # A member that was silent may show messages that no reader has seen yet.
            self._unshown.update(
                *(other.by_message.keys() - log.by_message for other in logs.values())
            )
        lost = self._missing(log)
        if lost and not gives_up:
            raise Broken(
                f"{host} begins epoch {record.epoch} without {len(lost)} acknowledged messages, "
                f"the first {lost[0]}"
            )
        self._give_up(lost)
        self.terms.append(JudgedTerm(record, host, forced, written_off))
        self.terms.sort(key=lambda term: term.record.epoch)

    def shown(self, host: str, entry: StoredMessage) -> None:
        """Readers of a node were shown a message, and will not look at its place again."""
        if entry.message_id in self._unshown:
            return
        self.counts.shown += 1
        at_place = self._shown.setdefault((entry.queue_id, entry.queue_offset), {})
        at_place[entry.message_id] = entry
        known = self._places.get((entry.queue_id, entry.queue_offset), entry.message_id)
        if known != entry.message_id:
            raise Broken(f"{host} shows {entry} where message {known} was acknowledged")

    def power_lost(self, logs: Logs) -> None:
        """A machine has lost the end of its log, and messages that no other machine holds."""
        self._forget_shown(
            [
                one
                for one in self._all_shown()
                if all(log.by_message.get(one.message_id) != one for log in logs.values())
            ]
        )

    def check_converged(self, logs: Logs, histories: Mapping[str, EpochHistory]) -> None:
        """Check after all faults are healed: one log, one history, nothing missing."""
        hosts = list(logs)
        first = hosts[0]
        for host in hosts[1:]:
            if logs[host].entries != logs[first].entries:
                raise Broken(
                    f"logs differ after healing: {first} ends at {logs[first].max_phy_offset}, "
                    f"{host} at {logs[host].max_phy_offset}, "
                    f"{_first_difference(logs[first].entries, logs[host].entries)}"
                )
            if histories[host] != histories[first]:
                raise Broken(
                    f"histories differ after healing: {first} {histories[first]}, "
                    f"{host} {histories[host]}"
                )
        lost = self._missing(logs[first])
        if lost:
            raise Broken(f"{len(lost)} acknowledged messages are gone, the first {lost[0]}")
        ends: dict[int, int] = {}
        for entry in logs[first].entries:
            if entry.queue_offset != ends.get(entry.queue_id, 0):
                raise Broken(f"queue {entry.queue_id} is not dense at {entry}")
            ends[entry.queue_id] = entry.queue_offset + 1

    def _missing(self, log: RecordLog) -> list[StoredMessage]:
        held = log.by_message
        return [
            entry
            for message_id, entry in self.acknowledged.items()
            if held.get(message_id) != entry
        ]

    def _check_place(self, host: str, entry: StoredMessage) -> None:
        for other in self._shown.get((entry.queue_id, entry.queue_offset), {}).values():
            if other != entry:
                raise Broken(
                    f"{host} acknowledged {entry}, which readers skip: at its place they were "
                    f"shown {other}"
                )

    def _all_shown(self) -> list[StoredMessage]:
        return [one for at_place in self._shown.values() for one in at_place.values()]

    def _forget_shown(self, lost: Iterable[StoredMessage]) -> None:
        for entry in lost:
            del self._shown[entry.queue_id, entry.queue_offset][entry.message_id]
            self._unshown.add(entry.message_id)

    def _give_up(self, lost: Iterable[StoredMessage]) -> None:
        for entry in lost:
            self.counts.given_up += 1
            del self.acknowledged[entry.message_id]
            del self._places[entry.queue_id, entry.queue_offset]


Logs = Mapping[str, RecordLog]


def _first_difference(one: list[StoredMessage], other: list[StoredMessage]) -> str:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return f"first at {mine} and {theirs}"
    return f"after {min(len(one), len(other))} equal records"
