"""Time for which the unconsumed messages of a group are kept: a cell, and its level."""

from __future__ import annotations

from collections.abc import Mapping

from trioha.watch.alerts import AlertLevel, level_of
from trioha.watch.queues import Group, QueueLag
from trioha.watch.rule import Rule
from trioha.words import age_in_words
from trioha_console.cells import NOTHING, Cell, cell
from trioha_console.roles import ALERT_MARKS, ALERT_ROLES

_RULE = "group_retention"


def retention_level(one: Group | QueueLag, rules: Mapping[str, Rule]) -> AlertLevel:
    """Return the level at which the alert would be; OK if nothing is known."""
    rule = rules.get(_RULE)
    level = None if rule is None else level_of(one.retention_used, rule)
    return AlertLevel.OK if level is None else level


def kept_cell(one: Group | QueueLag, level: AlertLevel) -> Cell:
    """Return the time left to consume the oldest message, or the lost count; blank without lag."""
    if one.lost:
        return _marked(f"{one.lost} lost", level)
    if one.lag == 0:
        return ()
    queue = one.next_to_lose if isinstance(one, Group) else one
    kept_s = None if queue is None else queue.kept_s
    if kept_s is None:
        return NOTHING
    return _marked("overdue" if kept_s <= 0 else age_in_words(kept_s), level)


def _marked(words: str, level: AlertLevel) -> Cell:
    if level is AlertLevel.OK:
        return cell(words)
    return cell(f"{ALERT_MARKS[level]} {words}", ALERT_ROLES[level])
