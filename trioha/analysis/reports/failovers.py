"""Roles over time, and when nobody could write: what an incident's report begins with.

Everything is read from the journals. When the stores are given too, each outage is held against
the log: the last record that was stored before its end, and the first since. A record later than
a node's last word proves that it still lived then. Records that a group writes for itself prove
nothing: a new leader writes one before it serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from trioha.analysis.engine import Engine, literals
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.lives import (
    Life,
    Lives,
    journal_labels,
    lives_of,
    stores_of_journals,
)
from trioha.analysis.reports.outages import (
    Outage,
    Overlap,
    lost_ms,
    observed_ms,
    outages_of,
    overlaps_of,
)
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.terms import histories_of, terms_table
from trioha.analysis.reports.words import count_of, say_ms, say_share, say_span, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Severity, Table
from trioha.wire.names import RAFT_TOPICS

SPEC = REPORTS["failovers"]
NEEDS = frozenset({"journal"})

SAMPLE_MS = 10_500
"""Between two samples of a node's counters: ten seconds, and what a loop may be late."""
CHECKED_MAX = 100
"""Outages that are held against the log: one scan serves them all."""


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    lives = lives_of(engine)
    outages: dict[str, list[Outage]] = {}
    overlaps: list[Overlap] = []
    for broker in lives.brokers:
        found = outages_of(lives, broker)
        outages[broker] = _checked(engine, lives, broker, found)
        overlaps += overlaps_of(lives, broker)
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


def _checked(engine: Engine, lives: Lives, broker: str, outages: Sequence[Outage]) -> list[Outage]:
    """The outages with the writes around them, and begun no earlier than the last of them."""
    stores = stores_of_journals(engine, {life.journal for life in lives.of_broker(broker)})
    if not stores:
        return list(outages)
    checked = list(outages)
    # Puts of an outage that is not over are looked for at the end of the log.
    edges = [
        1 << 62 if outage.end_ms is None else outage.end_ms for outage in checked[:CHECKED_MAX]
    ]
    if not edges:
        return checked
    columns = ", ".join(
        f"MAX(CASE WHEN store_ms < {edge} THEN store_ms END) AS before_{at}, "
        f"MIN(CASE WHEN store_ms >= {edge} THEN store_ms END) AS after_{at}"
        for at, edge in enumerate(edges)
    )
    sql = f"SELECT {columns} FROM commitlog WHERE store IN {literals(stores)}"
    (row,) = engine.query(f"{sql} AND topic NOT IN {literals(sorted(RAFT_TOPICS))}")
    for at, _ in enumerate(edges):
        outage, last_ms = checked[at], row[f"before_{at}"]
        is_refusal = outage.cause.startswith("writes refused")
        begin_ms, earliest_ms, latest_ms = outage.begin_ms, outage.earliest_ms, outage.latest_ms
        if last_ms is not None and not is_refusal:
            begin_ms = max(begin_ms, last_ms)
            earliest_ms = max(earliest_ms, last_ms)
            latest_ms = max(latest_ms, last_ms)
        checked[at] = attrs.evolve(
            outage,
            begin_ms=begin_ms,
            earliest_ms=earliest_ms,
            latest_ms=latest_ms,
            last_write_ms=last_ms,
            first_write_ms=row[f"after_{at}"],
        )
    return checked


def _findings(
    lives: Lives,
    outages: Mapping[str, Sequence[Outage]],
    overlaps: Sequence[Overlap],
    labels: Mapping[str, str],
) -> Iterator[Finding]:
    for each in overlaps:
        until = "to the end of the records"
        if each.end_ms is not None:
            until = f"for {say_ms(each.end_ms - each.begin_ms)}"
        yield Finding.error(
            f"{each.broker} had two masters, {each.first} and {each.second}, from "
            f"{say_time(each.begin_ms)} {until}."
        )
    for broker, all_of_it in outages.items():
        for outage in all_of_it:
            yield _outage_finding(outage, labels)
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


def _outage_finding(outage: Outage, labels: Mapping[str, str]) -> Finding:
    severity: Severity = "warning" if outage.is_planned else "error"
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
    points: list[tuple[int, int | None, str]] = []
    if life.ready_ms is not None and life.ready_ms > life.begin_ms:
        points.append((life.begin_ms, life.ready_ms, "starting"))
    for stint in life.stints:
        begin = max(stint.begin_ms, life.ready_ms or life.end_ms or stint.begin_ms)
        what = stint.role if stint.epoch is None else f"{stint.role} epoch {stint.epoch}"
        if stint.end_ms is None or stint.end_ms > begin:
            points.append((begin, stint.end_ms, what))
    if life.end_ms is not None and life.ending in ("killed", "failed"):
        points.append((life.end_ms, life.end_ms, life.ending))
    return points


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
    """What was not done for clients: sends, waits for slaves, connections."""
    rows: dict[tuple[str, str, str], dict[str, object]] = {}

    def add(journal: str, node: str, what: str, count: int, at_ms: int, since_ms: int) -> None:
        """Events between two moments; counters are sampled."""
        if count:
            first = {
                "node": node,
                "store": labels.get(journal, journal),
                "what": what,
                "count": 0,
                "first_ms": since_ms,
                "first_by_ms": at_ms,
            }
            row = rows.setdefault((journal, node, what), first)
            row["count"] = int(str(row["count"])) + count
            row["last_from_ms"], row["last_ms"] = since_ms, at_ms

    for life in lives.lives:
        since_ms = life.ready_ms or life.begin_ms
        add(life.journal, life.node, "sends refused", life.refused_count, life.heard_ms, since_ms)
        for begin, _, reason in life.refusals:
            add(life.journal, life.node, f"writes refused: {reason}", 1, begin, begin)
    sampled_ms: dict[str, int] = {}
    for event in engine.journal({"sync_waits", "connection_refused", "ha_refused", "node_ready"}):
        journal, at_ms = event.source.rpartition("/")[0], event.wall_ms
        if event.name == "node_ready":
            sampled_ms[journal] = at_ms
        elif event.name == "sync_waits":
            since_ms = max(sampled_ms.get(journal, 0), at_ms - SAMPLE_MS)
            sampled_ms[journal] = at_ms
            for field, what in _SYNC_WAITS.items():
                count = int(event.fields.get(field, "0"))
                add(journal, event.node, what, count, at_ms, since_ms)
        else:
            what = "slave refused" if event.name == "ha_refused" else "connection refused"
            said = f"{what}: {event.fields.get('reason', '')}"
            add(journal, event.node, said, 1, at_ms, at_ms)
    return table(
        "refusals",
        "What was refused or not kept; the first came between first and first_by, the last between "
        "last_from and last: counters are sampled",
        "node store what count:integer first_ms:time first_by_ms:time last_from_ms:time "
        "last_ms:time",
        rows.values(),
    )


_SYNC_WAITS = {
    "timeouts": "puts answered FLUSH_SLAVE_TIMEOUT (stored, not acknowledged in time)",
    "unavailable": "puts answered SLAVE_NOT_AVAILABLE (stored on one machine)",
}
