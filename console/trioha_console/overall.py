"""Overall state of a cluster: nodes that are not well, name servers that do not answer, alerts."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.watch.alerts import Alert, AlertLevel
from trioha.watch.condition import Level, condition_of
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import count_in_words

Parts = list[tuple[str, str]]
"""Words with their roles, the worst first."""


def overall_state(snapshot: ClusterSnapshot | None, alerts: Sequence[Alert]) -> Parts:
    """Return the state in words; "all well" only if nothing at all is wrong or unknown."""
    if snapshot is None:
        return [("○ connecting  ", "unknown")]
    levels = [condition_of(replica).level for replica in snapshot.replicas]
    bad, warn = levels.count(Level.BAD), levels.count(Level.WARN)
    silent = sum(bool(one.answer.error) for one in snapshot.namesrvs)
    parts: Parts = []
    if silent == len(snapshot.namesrvs) and silent:
        parts.append(("✖ no name server  ", "bad"))
    elif silent:
        parts.append((f"✖ {silent}/{len(snapshot.namesrvs)} name servers  ", "bad"))
    if bad:
        parts.append((f"✖ {count_in_words(bad, 'node')}  ", "bad"))
    if warn:
        parts.append((f"▲ {count_in_words(warn, 'node')}  ", "warn"))
    new = [one for one in alerts if not one.acknowledged]
    if new:
        is_critical = any(one.level is AlertLevel.CRIT for one in new)
        mark, role = ("✖", "bad") if is_critical else ("▲", "warn")
        parts.append((f"{mark} {count_in_words(len(new), 'alert')}  ", role))
    elif alerts:
        parts.append((f"▲ {count_in_words(len(alerts), 'alert')} seen  ", "warn"))
    if not parts:
        unknown = not levels or Level.UNKNOWN in levels
        parts = [("○ not all known  ", "unknown")] if unknown else [("● all well  ", "good")]
    return parts
