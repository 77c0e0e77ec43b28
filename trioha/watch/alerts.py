"""Alerts: the values of rules compared with thresholds, snapshot by snapshot.

Theory of operation. Each rule and subject has two latches, one per threshold. A latch goes on when
its value has been at or above the threshold at every look for the rule's `for`, and off when it has
been clearly below (a tenth, `CLEAR_SHARE`) for as long: a value that swings around a threshold is
one alert, not twenty. The alert's level is that of the highest latch that is on.

An unknown value (None) is neither good nor bad: it leaves both latches and their times as they are.
The alerts of a subject that is not in the snapshot any more end.

An acknowledged alert is known to an operator: it stays in the list and is silent until it ends or
gets worse. Time is the snapshot's, so a recording replays into the same alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

import attrs

from trioha.watch.rules import RULES, Area, Reading, Rule
from trioha.watch.snapshot import ClusterSnapshot

CLEAR_SHARE = 0.9
"""A latch goes off below this share of its threshold."""
ALERTS_MAX = 10_000
"""Limit of pairs of rule and subject at a threshold; of more, only the first are watched."""

AlertKey = tuple[str, str]
"""Rule and subject."""


class AlertLevel(IntEnum):
    """Level of an alert, with Nagios' numbers."""

    OK = 0
    WARN = 1
    CRIT = 2


@attrs.frozen
class Alert:
    """A fault: its rule and subject, since when, and whether an operator acknowledged it."""

    rule: str
    subject: str
    level: AlertLevel
    since_wall_ms: int
    """Time when it reached this level, in wall clock milliseconds."""
    value: float | None
    text: str
    acknowledged: bool = False

    @property
    def key(self) -> AlertKey:
        return self.rule, self.subject


@attrs.frozen
class AlertChange:
    """An alert began, got worse or better, or ended."""

    alert: Alert
    """The alert now; if it ended, the last one with level OK."""
    before: AlertLevel

    @property
    def is_worse(self) -> bool:
        return self.alert.level > self.before


@attrs.define(eq=False)
class _Latch:
    is_on: bool = False
    since_ms: int | None = None
    """Time since which the value contradicts `is_on`; None while it agrees."""

    def look(self, value: float, threshold: float | None, for_ms: int, now_ms: int) -> None:
        if threshold is None:
            self.is_on, self.since_ms = False, None
            return
        if self.is_on:
            otherwise = not _reaches(value, threshold * CLEAR_SHARE)
        else:
            otherwise = _reaches(value, threshold)
        if not otherwise:
            self.since_ms = None
            return
        if self.since_ms is None or self.since_ms > now_ms:
            self.since_ms = now_ms
        if now_ms - self.since_ms >= for_ms:
            self.is_on, self.since_ms = not self.is_on, None


@attrs.define(eq=False)
class _State:
    warn: _Latch = attrs.field(factory=_Latch)
    crit: _Latch = attrs.field(factory=_Latch)
    alert: Alert | None = None

    @property
    def level(self) -> AlertLevel:
        if self.crit.is_on:
            return AlertLevel.CRIT
        return AlertLevel.WARN if self.warn.is_on else AlertLevel.OK


class Alerts:
    """The present alerts, kept up to date snapshot by snapshot."""

    def __init__(self, rules: Mapping[str, Rule] = RULES) -> None:
        self.rules = rules
        self._states: dict[AlertKey, _State] = {}
        self._groups_told: object = None

    @property
    def active(self) -> tuple[Alert, ...]:
        """Present alerts: the worst first, then the oldest."""
        found = [state.alert for state in self._states.values() if state.alert is not None]
        found.sort(key=lambda one: (-one.level, one.since_wall_ms, one.key))
        return tuple(found)

    @property
    def level(self) -> AlertLevel:
        """Level of the worst alert that is not acknowledged."""
        return max(
            (one.level for one in self.active if not one.acknowledged),
            default=AlertLevel.OK,
        )

    def read_groups(self, snapshot: ClusterSnapshot) -> Mapping[str, Sequence[Reading]]:
        """Return the readings of groups that `look` needs: by rule, without those that are well.

        Thread: any, while `look` and `clear` are not called. Of five thousand groups this takes
        fifty milliseconds.
        """
        if snapshot.groups is self._groups_told:
            return {}
        return {
            rule.name: [
                one
                for one in rule.read(snapshot)
                if level_of(one.value, rule) or (rule.name, one.subject) in self._states
            ]
            for rule in self.rules.values()
            if rule.area is Area.GROUP
        }

    def look(
        self,
        snapshot: ClusterSnapshot,
        of_groups: Mapping[str, Sequence[Reading]] | None = None,
    ) -> list[AlertChange]:
        """Compare every rule with a newer snapshot; return the changes of alerts.

        `of_groups` is what `read_groups` returned for this snapshot; without it this reads them.
        """
        told = {} if of_groups is None else of_groups
        now_ms = snapshot.at_wall_ms
        changes: list[AlertChange] = []
        seen: set[AlertKey] = set()
        skipped = self._told_before(snapshot)
        for rule in self.rules.values():
            if rule.name in skipped:
                continue
            for_ms = round(rule.for_s * 1000)
            readings = told.get(rule.name)
            for reading in rule.read(snapshot) if readings is None else readings:
                key = rule.name, reading.subject
                if key in seen:
                    continue
                seen.add(key)
                state = self._states.get(key)
                if state is None:
                    # A value below its thresholds needs no latch: five thousand groups are well.
                    if not level_of(reading.value, rule) or len(self._states) >= ALERTS_MAX:
                        continue
                    state = self._states[key] = _State()
                if reading.value is not None:
                    state.warn.look(reading.value, rule.warn, for_ms, now_ms)
                    state.crit.look(reading.value, rule.crit, for_ms, now_ms)
                change = _follow(state, rule, reading, now_ms)
                if change is not None:
                    changes.append(change)
        for key in [key for key in self._states if key not in seen and key[0] not in skipped]:
            gone = self._states.pop(key)
            if gone.alert is not None:
                changes.append(_ended(gone.alert))
        return changes

    def _told_before(self, snapshot: ClusterSnapshot) -> set[str]:
        """Return the rules of groups if the table of groups is that of the last look.

        Groups are asked for less often than everything else, and summing ten thousand queues each
        second for the same result is slow.
        """
        told = snapshot.groups
        before, self._groups_told = self._groups_told, told
        if told is not before:
            return set()
        return {rule.name for rule in self.rules.values() if rule.area is Area.GROUP}

    def acknowledge(self, key: AlertKey) -> bool:
        """Acknowledge an alert; return False if there is none."""
        state = self._states.get(key)
        if state is None or state.alert is None:
            return False
        state.alert = attrs.evolve(state.alert, acknowledged=True)
        return True

    def acknowledge_all(self) -> None:
        for alert in self.active:
            self.acknowledge(alert.key)

    def clear(self) -> None:
        """Drop all alerts, after a jump in a replay."""
        self._states.clear()
        self._groups_told = None


def _follow(state: _State, rule: Rule, reading: Reading, now_ms: int) -> AlertChange | None:
    before, level = state.alert, state.level
    is_bad = bool(level_of(reading.value, rule))
    if before is None:
        if level is AlertLevel.OK:
            return None
        state.alert = Alert(
            reading.rule, reading.subject, level, now_ms, reading.value, reading.text
        )
        return AlertChange(state.alert, AlertLevel.OK)
    if level is AlertLevel.OK:
        state.alert = None
        return _ended(before)
    state.alert = after = attrs.evolve(
        before,
        level=level,
        since_wall_ms=before.since_wall_ms if level is before.level else now_ms,
        value=before.value if reading.value is None else reading.value,
        text=reading.text if is_bad else before.text,
        acknowledged=before.acknowledged and level <= before.level,
    )
    return None if level is before.level else AlertChange(after, before.level)


def _ended(alert: Alert) -> AlertChange:
    return AlertChange(attrs.evolve(alert, level=AlertLevel.OK), alert.level)


@attrs.frozen
class Verdict:
    """One reading and its level, without the rule's `for`."""

    rule: Rule
    reading: Reading
    level: AlertLevel | None
    """Level of the reading; None if its value is unknown."""


def judge(
    snapshot: ClusterSnapshot, rules: Mapping[str, Rule], areas: Iterable[Area]
) -> Iterator[Verdict]:
    """Yield a verdict for every rule of these areas and every subject of one snapshot."""
    wanted = set(areas)
    for rule in rules.values():
        if rule.area not in wanted:
            continue
        for reading in rule.read(snapshot):
            yield Verdict(rule, reading, level_of(reading.value, rule))


def level_of(value: float | None, rule: Rule) -> AlertLevel | None:
    """Return the level of a value by a rule's thresholds alone; None if it is unknown."""
    if value is None:
        return None
    if rule.crit is not None and _reaches(value, rule.crit):
        return AlertLevel.CRIT
    return (
        AlertLevel.WARN if rule.warn is not None and _reaches(value, rule.warn) else AlertLevel.OK
    )


def _reaches(value: float, threshold: float) -> bool:
    """Return whether a value is at the threshold or above; a threshold of 0 needs more than 0."""
    return value >= threshold if threshold > 0 else value > 0
