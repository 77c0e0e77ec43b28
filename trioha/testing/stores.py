"""Looks into the stores of a cluster, whether their brokers run or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trioha.errors import StoreError
from trioha.store.inspect import diff_logs, iter_records
from trioha.wire.properties import Property
from trioha.wire.record import Record


def records_of(root: Path) -> list[Record]:
    """Return the records of a store's log; none if there is no log."""
    try:
        found = list(iter_records(root / "commitlog"))
    except StoreError:
        return []
    return [one for one in found if isinstance(one, Record)]


def places_of(root: Path) -> dict[str, Record]:
    """Return the first record of each message id in a store's log."""
    found: dict[str, Record] = {}
    for record in records_of(root):
        found.setdefault(record.properties.get(Property.UNIQ_KEY) or record.message_id, record)
    return found


def stores_differ(roots: Mapping[str, Path]) -> list[str]:
    """Return how the logs differ from the first one, a sentence for each."""
    labels = list(roots)
    problems = []
    for label in labels[1:]:
        report = diff_logs(roots[labels[0]] / "commitlog", roots[label] / "commitlog")
        if not report.equal:
            where = "" if report.first_difference is None else f" at {report.first_difference}"
            problems.append(
                f"the logs of {labels[0]} ({report.begin_a}..{report.end_a}) and {label}"
                f" ({report.begin_b}..{report.end_b}) differ{where}"
            )
    return problems
