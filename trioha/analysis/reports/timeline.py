"""Events of all nodes on one axis of time: the report that an SRE opens after an incident.

Roles and terms, links, stalls, refusals and outages come from the same journals, and by the same
rules, as in the reports on failovers and replication; here they stand side by side. A cause that
came again is told once. Clocks of different nodes are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.journal_rows import JournalRow
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.checked_outages import checked_outages
from trioha.analysis.reports.close_up import close_ups
from trioha.analysis.reports.links import ReplicationLinks, links_of
from trioha.analysis.reports.lives import Life, journal_labels, journal_of, number
from trioha.analysis.reports.outages import (
    Outage,
    Overlap,
    lost_ms,
    overlaps_of,
    severity_of,
)
from trioha.analysis.reports.refusals import SAMPLE_MS, RefusedCount, refusals_of
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_ms, say_span, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table

SPEC = REPORTS["timeline"]
NEEDS = frozenset({"journal"})

CAUSES_MAX = 3
"""Causes of outages that have a finding each; the others share one."""
LANES_MAX = 60
"""Lanes of the chart; the table has all."""

ROLE, LINK, STALL, REFUSAL, OUTAGE = "role", "link", "stall", "refusal", "outage"
_UP, _MASTER, _SLAVE, _NO_MASTER = "running or connected", "master", "slave", "no writable master"
_STARTING, _ENDED, _STALLED, _REFUSED = "starting", "ended", "stalled", "refused"
_KINDS = (_SLAVE, _NO_MASTER, _MASTER, _ENDED, _REFUSED, _UP, _STALLED, _STARTING)
_LINK_EVENTS = ("raft_connected", "raft_disconnected", "scheduling_delay", "node_started")


@attrs.frozen(kw_only=True)
class TimelineEntry:
    """One thing that was so from `begin_ms` to `end_ms`, or happened when both are equal.

    `end_ms` is None when it was still so when the records end.
    """

    begin_ms: int
    end_ms: int | None
    kind: str
    """``role``, ``link``, ``stall``, ``refusal`` or ``outage``."""
    lane: str
    """Node, link or broker that it is about."""
    what: str
    drawn_as: str
    """Name in the chart's legend; empty where only the table has it."""
    store: str = ""
    term: int | None = None
    count: int | None = None
    detail: str = ""


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    links = links_of(engine)
    lives = links.lives
    labels = journal_labels(dict.fromkeys(life.journal for life in lives.lives))
    outages = [each for found in checked_outages(engine, lives).values() for each in found]
    overlaps = [each for broker in lives.brokers for each in overlaps_of(lives, broker)]
    entries = [
        *_outage_entries(outages, overlaps),
        *_role_entries(links, labels),
        *_link_entries(links),
        *_stall_entries(links, labels),
        *_member_entries(engine, links, labels),
        *_refusal_entries(engine, links, labels),
    ]
    entries.sort(key=lambda entry: entry.begin_ms)
    until_ms = lives.heard_ms or options.now_ms
    chart = _chart(entries)
    tables, charts = close_ups(engine, lives, outages, until_ms)
    return Report(
        **SPEC.heading,
        findings=[
            *(Finding.error(overlap.sentence) for overlap in overlaps),
            *_findings(entries, outages, until_ms),
        ],
        charts=[*([chart] if chart else []), *charts],
        tables=[_table(entries, until_ms), *tables],
        exit_code=1 if overlaps else 0,
        told_by="failovers",
    )


def _outage_entries(
    outages: Sequence[Outage], overlaps: Sequence[Overlap]
) -> Iterator[TimelineEntry]:
    for outage in outages:
        bounds = ""
        if outage.earliest_ms != outage.latest_ms:
            bounds = (
                f"; it began between {say_time(outage.earliest_ms)} and "
                f"{say_time(outage.latest_ms)}"
            )
        yield TimelineEntry(
            begin_ms=outage.begin_ms,
            end_ms=outage.end_ms,
            kind=OUTAGE,
            lane=outage.broker,
            what=f"{_NO_MASTER} (planned)" if outage.is_planned else _NO_MASTER,
            drawn_as=_NO_MASTER,
            detail=f"{outage.before}: {outage.cause}{bounds}",
        )
    for overlap in overlaps:
        yield TimelineEntry(
            begin_ms=overlap.begin_ms,
            end_ms=overlap.end_ms,
            kind=OUTAGE,
            lane=overlap.broker,
            what="two masters",
            drawn_as="",
            detail=f"{overlap.first} and {overlap.second}",
        )


def _role_entries(links: ReplicationLinks, labels: Mapping[str, str]) -> Iterator[TimelineEntry]:
    lives = links.lives.lives
    for life in lives:
        store = labels[life.journal]
        names = dict.fromkeys(each.node for each in lives if each.journal == life.journal)
        lane = f"{store} ({', '.join(names)})"
        for begin_ms, end_ms, what, term in _spans(life):
            is_end = what == life.ending
            yield TimelineEntry(
                begin_ms=begin_ms,
                end_ms=end_ms,
                kind=ROLE,
                lane=lane,
                what=f"{life.node} {what}",
                drawn_as=_ENDED if is_end else _drawn_role(what),
                store=store,
                term=term,
                detail=_ending(life) if is_end else "",
            )


def _spans(life: Life) -> list[tuple[int, int | None, str, int | None]]:
    spans = life.spans()
    if not life.is_broker:
        begin_ms = life.begin_ms if life.ready_ms is None else life.ready_ms
        spans.append((begin_ms, life.end_ms, "running", None))
    return spans


def _drawn_role(what: str) -> str:
    if what.endswith("_MASTER"):
        return _MASTER
    return {"starting": _STARTING, "running": _UP}.get(what, _SLAVE)


def _ending(life: Life) -> str:
    if life.ending != "killed":
        return life.reason
    if life.dead_by_ms is None or life.dead_by_ms <= life.heard_ms:
        return ""
    return f"last event {say_time(life.heard_ms)}, dead by {say_time(life.dead_by_ms)}"


def _link_entries(links: ReplicationLinks) -> Iterator[TimelineEntry]:
    for session in links.told():
        lane = session.link
        yield TimelineEntry(
            begin_ms=session.begin_ms,
            end_ms=session.end_ms,
            kind=LINK,
            lane=lane,
            what="connected",
            drawn_as=_UP,
            detail="" if session.end_ms is None else session.reason,
        )
        for begin_ms, end_ms in session.in_sync:
            yield TimelineEntry(
                begin_ms=begin_ms, end_ms=end_ms, kind=LINK, lane=lane, what="in sync", drawn_as=""
            )


def _stall_entries(links: ReplicationLinks, labels: Mapping[str, str]) -> Iterator[TimelineEntry]:
    for silence in links.silences:
        end_ms: int | None = silence.begin_ms + silence.gap_ms
        if silence.end == "lasts":
            end_ms = _end_of(links.lives.lives, silence.node, silence.begin_ms)
        limit = "" if silence.limit_ms is None else f", limit {say_ms(silence.limit_ms)}"
        yield TimelineEntry(
            begin_ms=silence.begin_ms,
            end_ms=end_ms,
            kind=STALL,
            lane=silence.node,
            what=f"no heartbeat from {silence.peer}",
            drawn_as=_STALLED,
            detail=f"{silence.end}{limit}",
        )
    for stall in links.stalls:
        life = links.lives.at(stall.journal, stall.begin_ms)
        yield TimelineEntry(
            begin_ms=stall.begin_ms,
            end_ms=stall.end_ms or (None if life is None else life.end_ms),
            kind=STALL,
            lane=stall.journal if life is None else life.node,
            what="commit makes no progress",
            drawn_as=_STALLED,
            store=labels.get(stall.journal, ""),
        )


def _end_of(lives: Sequence[Life], node: str, at_ms: int) -> int | None:
    """Return the end of the node's life in which a moment lies."""
    found = [life for life in lives if life.node == node and life.begin_ms <= at_ms]
    return found[-1].end_ms if found else None


def _member_entries(
    engine: Engine, links: ReplicationLinks, labels: Mapping[str, str]
) -> Iterator[TimelineEntry]:
    """Links between members of DLEDGER groups, and nodes that had no processor."""
    opened: dict[tuple[str, str], JournalRow] = {}
    for row in engine.journal(_LINK_EVENTS):
        journal, key = journal_of(row), (journal_of(row), row.fields.get("peer", ""))
        if row.name == "scheduling_delay":
            yield TimelineEntry(
                begin_ms=row.wall_ms,
                end_ms=row.wall_ms,
                kind=STALL,
                lane=row.node,
                what="no processor",
                drawn_as=_STALLED,
                store=labels.get(journal, ""),
                detail=(
                    f"in {count_of(number(row, 'seconds'), 'second')} up to then, the longest "
                    f"delay {say_ms(number(row, 'worst_ms'))}"
                ),
            )
        elif row.name == "node_started":
            for other in [other for other in opened if other[0] == journal]:
                yield _member_link(links, opened.pop(other), None)
        elif row.name == "raft_connected":
            if key in opened:
                yield _member_link(links, opened[key], row)
            opened[key] = row
        elif key in opened:
            yield _member_link(links, opened.pop(key), row)
    for row in opened.values():
        yield _member_link(links, row, None)


def _member_link(
    links: ReplicationLinks, begun: JournalRow, ended: JournalRow | None
) -> TimelineEntry:
    """A connection; without an event of its end it lasted as long as the node that opened it."""
    life = links.lives.at(journal_of(begun), begun.wall_ms)
    end_ms, reason = None if life is None else life.end_ms, "this node ended"
    if ended is not None:
        end_ms, reason = ended.wall_ms, ended.fields.get("reason", "")
    broker = begun.node.rpartition(":")[0]
    return TimelineEntry(
        begin_ms=begun.wall_ms,
        end_ms=end_ms,
        kind=LINK,
        lane=f"{begun.node} → {broker}:{begun.fields.get('peer', '')}",
        what="connected",
        drawn_as=_UP,
        detail="" if end_ms is None else reason,
    )


def _refusal_entries(
    engine: Engine, links: ReplicationLinks, labels: Mapping[str, str]
) -> Iterator[TimelineEntry]:
    for life in links.lives.lives:
        for begin_ms, end_ms, reason in life.refusals:
            yield TimelineEntry(
                begin_ms=begin_ms,
                end_ms=end_ms,
                kind=REFUSAL,
                lane=life.node,
                what="writes refused",
                drawn_as=_REFUSED,
                store=labels[life.journal],
                detail=reason,
            )
    for joined in _joined(refusals_of(engine, links.lives)):
        what, _, reason = joined.what.partition(": ")
        if what == "writes refused":
            continue  # as a span above
        yield TimelineEntry(
            begin_ms=joined.since_ms,
            end_ms=joined.at_ms,
            kind=REFUSAL,
            lane=joined.node,
            what=what,
            drawn_as=_REFUSED,
            store=labels.get(joined.journal, ""),
            count=joined.count,
            detail=reason,
        )


def _joined(refusals: Iterator[RefusedCount]) -> list[RefusedCount]:
    """Refusals of one kind that follow each other within a sample's time, as one."""
    done: list[RefusedCount] = []
    latest: dict[tuple[str, str, str], RefusedCount] = {}
    for each in refusals:
        key = (each.journal, each.node, each.what)
        last = latest.get(key)
        if last is not None and each.since_ms - last.at_ms <= SAMPLE_MS:
            latest[key] = attrs.evolve(last, count=last.count + each.count, at_ms=each.at_ms)
            continue
        if last is not None:
            done.append(last)
        latest[key] = each
    return [*done, *latest.values()]


def _chart(entries: Sequence[TimelineEntry]) -> Chart | None:
    lanes: dict[tuple[str, str], list[tuple[int, int | None, str, str]]] = {}
    order = (OUTAGE, ROLE, LINK, STALL, REFUSAL)
    for entry in sorted(entries, key=lambda entry: (order.index(entry.kind), entry.lane)):
        if entry.drawn_as:
            said = entry.what.rpartition(" ")[2] if entry.kind == ROLE else entry.what
            said = said if entry.term is None else f"{said} term {entry.term}"
            points = lanes.setdefault((entry.kind, entry.lane), [])
            points.append((entry.begin_ms, entry.end_ms, said, entry.drawn_as))
    if not lanes:
        return None
    note = (
        "All nodes on one axis: outages of each broker, the nodes by store, links, then stalls and "
        "refusals of each node. Where there is no bar nothing ran. An arrow means: still so when "
        "the records end."
    )
    if len(lanes) > LANES_MAX:
        note += f" The first {LANES_MAX} of {len(lanes)} lanes; the table has all."
    prefixes = {STALL: "stalls of ", REFUSAL: "refused by "}
    return Chart(
        title="All nodes on one axis of time",
        kind="timeline",
        x_label="time",
        y_label="node, link or broker",
        series=[
            Series(prefixes.get(kind, "") + lane, points)
            for (kind, lane), points in list(lanes.items())[:LANES_MAX]
        ],
        note=note,
        x_kind="time",
        y_kind="category",
        kinds=_KINDS,
    )


def _table(entries: Sequence[TimelineEntry], until_ms: int) -> Table:
    return table(
        "timeline",
        "What happened when, on all nodes; without an end it was still so when the records end",
        "begin_ms:time end_ms:time lasted_ms:duration kind of what term:integer count:integer "
        "store detail",
        [
            {
                **attrs.asdict(entry),
                "of": entry.lane,
                "lasted_ms": max(
                    0, (until_ms if entry.end_ms is None else entry.end_ms) - entry.begin_ms
                ),
            }
            for entry in entries
        ],
    )


@attrs.frozen
class _Cause:
    """Outages of one broker that have the same cause."""

    broker: str
    text: str
    outages: list[Outage]
    lost_ms: int


def _findings(
    entries: Sequence[TimelineEntry], outages: Sequence[Outage], until_ms: int
) -> Iterator[Finding]:
    """Yield five findings at most: causes by the time that they cost, and their companions."""
    causes = _causes(outages, until_ms)
    for cause in causes[:CAUSES_MAX]:
        yield Finding(severity_of(cause.outages), _say_cause(cause, entries, until_ms))
    rest = causes[CAUSES_MAX:]
    if rest:
        others = [outage for cause in rest for outage in cause.outages]
        yield Finding(
            severity_of(others),
            f"{count_of(len(rest), 'further cause')} made {count_of(len(others), 'outage')}, "
            f"{say_ms(sum(cause.lost_ms for cause in rest))} in all.",
        )
    apart = [
        entry
        for entry in entries
        if entry.kind != OUTAGE and not any(_is_within(entry, each, until_ms) for each in outages)
    ]
    said = _say_counts(apart)
    head = "Apart from outages" if outages else "There was no outage"
    if said:
        yield Finding.info(f"{head}: {said}.")
    elif not outages:
        yield Finding.info("There was no outage, and nothing stalled or was refused.")


def _causes(outages: Sequence[Outage], until_ms: int) -> list[_Cause]:
    groups: dict[tuple[str, str], list[Outage]] = {}
    for outage in outages:
        text = f"{outage.before}: {outage.general_cause}"
        groups.setdefault((outage.broker, text), []).append(outage)
    causes = [
        _Cause(broker, text, found, lost_ms(found, until_ms))
        for (broker, text), found in groups.items()
    ]
    return sorted(causes, key=lambda cause: -cause.lost_ms)


def _say_cause(cause: _Cause, entries: Sequence[TimelineEntry], until_ms: int) -> str:
    outages = cause.outages
    longest = max(outages, key=lambda outage: _lasted_ms(outage, until_ms))
    begun = say_time(longest.begin_ms)
    least_ms = (longest.end_ms or until_ms) - longest.latest_ms
    most_ms = (longest.end_ms or until_ms) - longest.earliest_ms
    lasted = say_span(_lasted_ms(longest, until_ms), least_ms, most_ms)
    said = f"{cause.broker} had no writable master"
    if len(outages) > 1:
        said += (
            f" {len(outages)} times, {say_ms(cause.lost_ms)} in all, the longest for {lasted} "
            f"from {begun}"
        )
    elif longest.end_ms is None:
        said += f" since {begun}"
    else:
        said += f" for {lasted} from {begun}"
    meanwhile = _say_counts(
        [
            entry
            for entry in entries
            if any(_is_within(entry, outage, until_ms) for outage in outages)
        ]
    )
    return f"{said} ({cause.text})" + (f"; meanwhile {meanwhile}." if meanwhile else ".")


def _lasted_ms(outage: Outage, until_ms: int) -> int:
    return (until_ms if outage.end_ms is None else outage.end_ms) - outage.begin_ms


def _is_within(entry: TimelineEntry, outage: Outage, until_ms: int) -> bool:
    """Return whether an entry, or a link's end, lies in an outage or the time in which it can have
    begun."""
    end_ms = until_ms if outage.end_ms is None else outage.end_ms
    if entry.kind == LINK:
        return entry.end_ms is not None and outage.earliest_ms <= entry.end_ms <= end_ms
    last_ms = until_ms if entry.end_ms is None else entry.end_ms
    return entry.begin_ms <= end_ms and last_ms >= outage.earliest_ms


def _say_counts(entries: Sequence[TimelineEntry]) -> str:
    ended = sum(
        entry.kind == LINK and entry.what == "connected" and entry.end_ms is not None
        for entry in entries
    )
    stalls = [entry for entry in entries if entry.kind == STALL]
    parts = [f"{count_of(ended, 'link')} ended"] if ended else []
    if stalls:
        parts.append(count_of(len(stalls), "stall"))
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.kind == REFUSAL:
            what = entry.what.partition(" (")[0]
            counts[what] = counts.get(what, 0) + (entry.count or 1)
    for what, count in counts.items():
        parts.append(f"{what} {count_of(count, 'time')}")
    return ", ".join(parts)
