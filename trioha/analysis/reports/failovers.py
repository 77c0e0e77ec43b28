"""Roles over time, and when nobody could write: what an incident's report begins with.

Everything is read from the journals. When the stores are given too, each outage is held against
the log (`checked_outages`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.checked_outages import checked_outages
from trioha.analysis.reports.lives import Life, Lives, journal_labels, lives_of
from trioha.analysis.reports.outages import (
    Outage,
    Overlap,
    lost_ms,
    observed_ms,
    overlaps_of,
    severity_of,
)
from trioha.analysis.reports.refusals import refusals_of
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.terms import histories_of, terms_table
from trioha.analysis.reports.words import count_of, say_ms, say_share, say_span, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table

SPEC = REPORTS["failovers"]
NEEDS = frozenset({"journal"})

GROUPED_MIN = 3
"""Outages of one cause that share a finding; fewer have one each."""


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    lives = lives_of(engine)
    outages = checked_outages(engine, lives)
    overlaps = [overlap for broker in lives.brokers for overlap in overlaps_of(lives, broker)]
    labels = journal_labels(dict.fromkeys(life.journal for life in lives.lives))
    everything = [outage for found in outages.values() for outage in found]
    return Report(
        **SPEC.heading,
        findings=list(_findings(lives, outages, overlaps, labels)),
        charts=[
            chart for chart in (_timeline(lives, outages, labels), _lost(lives, outages)) if chart
        ],
        tables=[
            _brokers_table(lives, outages),
            _outages_table(lives, everything, labels),
            _lives_table(lives, labels),
            terms_table(histories_of(engine)),
            _switches_table(engine),
            _refusals_table(engine, lives, labels),
        ],
        exit_code=1 if overlaps else 0,
    )


def _findings(
    lives: Lives,
    outages: Mapping[str, Sequence[Outage]],
    overlaps: Sequence[Overlap],
    labels: Mapping[str, str],
) -> Iterator[Finding]:
    for each in overlaps:
        yield Finding.error(each.sentence)
    for broker, all_of_it in outages.items():
        yield from _outage_findings(all_of_it, labels)
        span = observed_ms(lives, broker)
        if span is None:
            yield Finding.info(f"{broker}: no node served as a master in this window.")
            continue
        observed = span[1] - span[0]
        lost = lost_ms(all_of_it, span[1])
        share = say_share(observed - lost, observed) if lost else "100 %"
        yield Finding.info(
            f"{broker} took writes {share} of {say_ms(observed)}; "
            f"{count_of(len(all_of_it), 'outage')}, {say_ms(lost)} lost."
        )
    if not lives.brokers:
        yield Finding.info("The journals tell of no broker.")


def _outage_findings(outages: Sequence[Outage], labels: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on one broker: outages that are over and have one cause share a finding."""
    groups: dict[tuple[object, ...], list[Outage]] = {}
    for outage in outages:
        is_over = outage.end_ms is not None
        key = (outage.before, outage.before_journal, outage.general_cause, outage.is_planned)
        groups.setdefault((is_over, *key) if is_over else (outage.begin_ms, *key), []).append(
            outage
        )
    for same in groups.values():
        if len(same) >= GROUPED_MIN:
            yield _group_finding(same, labels)
        else:
            yield from (_outage_finding(outage, labels) for outage in same)


def _group_finding(outages: Sequence[Outage], labels: Mapping[str, str]) -> Finding:
    first, longest = outages[0], max(outages, key=lambda outage: outage.lasted_ms)
    total_ms = sum(outage.lasted_ms for outage in outages)
    return Finding(
        severity_of(outages),
        f"{first.broker} had no writable master {len(outages)} times, {say_ms(total_ms)} in all, "
        f"first from {say_time(first.begin_ms)}; the longest lasted {say_ms(longest.lasted_ms)} "
        f"from {say_time(longest.begin_ms)} ({first.before} in {labels[first.before_journal]}: "
        f"{first.general_cause}).",
    )


def _outage_finding(outage: Outage, labels: Mapping[str, str]) -> Finding:
    severity = severity_of([outage])
    # A slave that was made the master has its master's name: only the store tells them apart.
    before = f"{outage.before} in {labels[outage.before_journal]}: {outage.cause}"
    if outage.end_ms is None:
        return Finding(
            severity,
            f"{outage.broker} has had no writable master since {say_time(outage.begin_ms)} "
            f"({before}).",
        )
    lasted = say_span(outage.lasted_ms, outage.end_ms - outage.latest_ms, outage.lasted_max_ms)
    said = (
        f"{outage.broker} had no writable master for {lasted} "
        f"from {say_time(outage.begin_ms)} ({before})"
    )
    if outage.after and outage.after_journal != outage.before_journal:
        said += f", then {outage.after} in {labels[outage.after_journal]} took over"
    return Finding(severity, said + ".")


def _timeline(
    lives: Lives, outages: Mapping[str, Sequence[Outage]], labels: Mapping[str, str]
) -> Chart | None:
    brokers = [life for life in lives.lives if life.is_broker]
    if not brokers:
        return None
    lanes = []
    for journal in dict.fromkeys(life.journal for life in brokers):
        points: list[tuple[int, int | None, str]] = []
        mine = [life for life in brokers if life.journal == journal]
        for life in mine:
            points += _spans(life)
        names = ", ".join(dict.fromkeys(life.node for life in mine))
        lanes.append(Series(f"{labels[journal]} ({names})", points))
    for broker, found in outages.items():
        if found:
            spans = [(each.begin_ms, each.end_ms, "no writes") for each in found]
            lanes.append(Series(broker, spans))
    return Chart(
        title="Roles and outages",
        kind="timeline",
        x_label="time",
        y_label="node",
        series=lanes,
        x_kind="time",
        y_kind="category",
        note=(
            "A lane is a store's journal, with the names of the nodes in it. Where there is no bar "
            "nothing ran. An arrow means: still so when the records end."
        ),
    )


def _spans(life: Life) -> list[tuple[int, int | None, str]]:
    return [
        (begin, end, what if epoch is None else f"{what} epoch {epoch}")
        for begin, end, what, epoch in life.spans()
        if what != "stopped"
    ]


def _lost(lives: Lives, outages: Mapping[str, Sequence[Outage]]) -> Chart | None:
    points = []
    for broker, found in outages.items():
        span = observed_ms(lives, broker)
        if span is not None and found:
            points.append((broker, lost_ms(found, span[1])))
    if not points:
        return None
    return Chart(
        title="Time without a writable master",
        kind="bar",
        x_label="broker",
        y_label="time lost",
        series=[Series("", points)],
        x_kind="category",
        y_kind="duration",
    )


def _brokers_table(lives: Lives, outages: Mapping[str, Sequence[Outage]]) -> Table:
    rows = []
    for broker, found in outages.items():
        span = observed_ms(lives, broker)
        if span is None:
            continue
        lost = lost_ms(found, span[1])
        ended = [each for each in found if each.end_ms is not None]
        crashes = [each.lasted_ms for each in ended if not each.is_planned]
        planned = [each.lasted_ms for each in ended if each.is_planned]
        observed = span[1] - span[0]
        rows.append(
            {
                "broker": broker,
                "from_ms": span[0],
                "observed_ms": observed,
                "lost_ms": lost,
                "availability": (observed - lost) / observed if observed else None,
                "outages": len(found),
                "unplanned": sum(not each.is_planned for each in found),
                "mttr_ms": _mean(crashes),
                "planned_mean_ms": _mean(planned),
                "longest_ms": max([*crashes, *planned], default=None),
            }
        )
    return table(
        "brokers",
        "Availability by broker; mttr is the mean of unplanned outages that are over, planned_mean "
        "that of planned ones",
        "broker from_ms:time observed_ms:duration lost_ms:duration availability:share "
        "outages:integer unplanned:integer mttr_ms:duration planned_mean_ms:duration "
        "longest_ms:duration",
        rows,
    )


def _mean(durations_ms: Sequence[int]) -> int | None:
    return round(sum(durations_ms) / len(durations_ms)) if durations_ms else None


def _outages_table(lives: Lives, outages: Sequence[Outage], labels: Mapping[str, str]) -> Table:
    rows = [
        {
            **attrs.asdict(outage),
            "lasted_ms": _until(outage, lives) - outage.begin_ms,
            "lasted_min_ms": _until(outage, lives) - outage.latest_ms,
            "lasted_max_ms": _until(outage, lives) - outage.earliest_ms,
            "is_over": outage.end_ms is not None,
            "before_store": labels[outage.before_journal],
            "after_store": labels.get(outage.after_journal, ""),
            "write_gap_ms": outage.write_gap_ms,
        }
        for outage in outages
    ]
    return table(
        "outages",
        "Times without a writable master; each lasted between lasted_min and lasted_max",
        "broker begin_ms:time end_ms:time lasted_ms:duration lasted_min_ms:duration "
        "lasted_max_ms:duration is_over:flag is_planned:flag cause "
        "before before_store after after_store last_write_ms:time first_write_ms:time "
        "write_gap_ms:duration",
        rows,
    )


def _until(outage: Outage, lives: Lives) -> int:
    return outage.end_ms or lives.heard_ms or outage.begin_ms


def _lives_table(lives: Lives, labels: Mapping[str, str]) -> Table:
    rows = [
        {
            "node": life.node,
            "store": labels[life.journal],
            "role": life.role,
            "epoch": next((s.epoch for s in reversed(life.stints) if s.epoch is not None), None),
            "begin_ms": life.begin_ms,
            "start_up_ms": None if life.ready_ms is None else life.ready_ms - life.begin_ms,
            "end_ms": life.end_ms,
            "ending": "still there" if life.ending == "open" else life.ending,
            "lasted_ms": (life.end_ms or life.heard_ms) - life.begin_ms,
        }
        for life in lives.lives
    ]
    return table(
        "lives",
        "Nodes, from start to end",
        "node store role epoch:integer begin_ms:time start_up_ms:duration end_ms:time ending "
        "lasted_ms:duration",
        rows,
    )


def _switches_table(engine: Engine) -> Table:
    """Failovers that operators ran; every node that took part has written its last word down."""
    rows: dict[str, dict[str, object]] = {}
    for event in engine.journal({"failover"}):
        row = rows.setdefault(
            event.fields.get("ticket", ""), {**event.fields, "at_ms": event.wall_ms, "nodes": ""}
        )
        row["nodes"] = ", ".join(filter(None, (str(row["nodes"]), event.node)))
    return table(
        "switches",
        "Failovers by operators",
        "at_ms:time operator result message ticket nodes",
        sorted(rows.values(), key=lambda row: int(str(row["at_ms"]))),
    )


def _refusals_table(engine: Engine, lives: Lives, labels: Mapping[str, str]) -> Table:
    """Return the table of refusals: sends, waits for slaves, connections."""
    rows: dict[tuple[str, str, str], dict[str, object]] = {}
    for each in refusals_of(engine, lives):
        first = {
            "node": each.node,
            "store": labels.get(each.journal, each.journal),
            "what": each.what,
            "count": 0,
            "first_ms": each.since_ms,
            "first_by_ms": each.at_ms,
        }
        row = rows.setdefault((each.journal, each.node, each.what), first)
        row["count"] = int(str(row["count"])) + each.count
        row["last_from_ms"], row["last_ms"] = each.since_ms, each.at_ms
    return table(
        "refusals",
        "What was refused or not kept; the first came between first and first_by, the last between "
        "last_from and last: counters are sampled",
        "node store what count:integer first_ms:time first_by_ms:time last_from_ms:time "
        "last_ms:time",
        rows.values(),
    )
