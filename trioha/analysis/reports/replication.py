"""Replication: gaps of slaves, links that were silent or gone, waits of puts for slaves.

Gaps are those that journals sampled, once a second while a slave moved or was behind; between two
samples the last one stands. Time behind is the age of the oldest byte that the slave lacked: its
store time, if the store is given and can be read here. Else it has the bounds that the samples of
the master's log give (`log_clock`): nothing is interpolated over the time in which a log was idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from trioha.analysis.engine import Engine
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.groups import group_findings, groups_table
from trioha.analysis.reports.links import ReplicationLinks, Session, links_of
from trioha.analysis.reports.lives import Life, stores_of_journals
from trioha.analysis.reports.log_clock import Behind, LogClock
from trioha.analysis.reports.store_times import store_times
from trioha.analysis.reports.sync_waits import wait_charts, waits_table
from trioha.analysis.reports.tables import ratio, table
from trioha.analysis.reports.time_buckets import bucket_width_ms, buckets
from trioha.analysis.reports.words import MINUTE_MS, count_of, say_bytes, say_ms, say_share
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table

SPEC = REPORTS["replication"]
NEEDS = frozenset({"journal"})

LEVEL_MS = 1_000
"""A slave that is no further behind than this has caught up."""
_LINKS_MAX = 200
_LOOKED_UP_MAX = 5_000
"""Samples whose time behind is looked up in a store: some ten seconds when each is searched for."""
_CLOCKS_MS = 1_000
"""A record that was stored so far outside its sample's bounds is another one: the log was cut."""


@attrs.frozen
class _Sample:
    at_ms: int
    ack: int
    gap_bytes: int
    behind: Behind


@attrs.frozen
class _Link:
    """All sessions between two nodes."""

    name: str
    sessions: list[Session]
    samples: list[list[_Sample]]
    """Samples of each session."""

    @property
    def all_samples(self) -> list[_Sample]:
        return [sample for of_session in self.samples for sample in of_session]


@attrs.frozen
class _CatchUp:
    lasted_ms: int
    bytes: int


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    links = links_of(engine)
    until_ms = links.lives.heard_ms or options.now_ms
    by_link = _by_link(engine, links)
    shares = _shares(links, until_ms)
    groups = groups_table(links, until_ms)
    charts = [
        *_gap_charts(by_link, until_ms),
        _sessions_chart(by_link),
        *wait_charts(links.waits),
    ]
    return Report(
        **SPEC.heading,
        findings=[*_findings(links, by_link, shares), *group_findings(groups)],
        charts=[chart for chart in charts if chart is not None],
        tables=[
            _links_table(by_link, until_ms),
            shares,
            groups,
            _sessions_table(by_link, until_ms),
            _silences_table(links),
            waits_table(links.waits),
            _refusals_table(links),
        ],
    )


def _clock(links: ReplicationLinks, session: Session) -> LogClock:
    """A slave knows its master's log from what its master says."""
    return links.clocks.setdefault(session.journal, LogClock())


def _by_link(engine: Engine, links: ReplicationLinks) -> list[_Link]:
    found: dict[str, _Link] = {}
    for session in links.told():
        link = found.setdefault(session.link, _Link(session.link, [], []))
        clock = _clock(links, session)
        link.sessions.append(session)
        samples = [
            _Sample(at_ms, ack, max(0, end - ack), clock.behind(at_ms, ack, end))
            for at_ms, ack, end in session.progress
        ]
        link.samples.append(_looked_up(engine, session, samples))
    return list(found.values())[:_LINKS_MAX]


def _looked_up(engine: Engine, session: Session, samples: list[_Sample]) -> list[_Sample]:
    """The samples, those with bounds by the store time of the oldest byte that the slave lacked."""
    vague = [at for at, sample in enumerate(samples) if not sample.behind.is_exact]
    labels = stores_of_journals(engine, {session.journal}) if vague else []
    stores = [store for store in engine.stores if store.label in labels]
    if not stores:
        return samples
    vague.sort(key=lambda at: -samples[at].behind.figure_ms)
    exact = list(samples)
    try:
        with store_times(stores[0]) as times:
            for at in vague[:_LOOKED_UP_MAX]:
                exact[at] = _exact(samples[at], times.at(samples[at].ack))
    except OSError as error:
        engine.note(
            f"The files of {stores[0].label} cannot be read here ({error.strerror or error}): "
            "times behind have bounds instead."
        )
    return exact


def _exact(sample: _Sample, stored_ms: int | None) -> _Sample:
    if stored_ms is None:
        return sample
    behind_ms = sample.at_ms - stored_ms
    bounds = sample.behind
    most_ms = bounds.most_ms if bounds.most_ms is not None else behind_ms
    if not bounds.least_ms - _CLOCKS_MS <= behind_ms <= most_ms + _CLOCKS_MS:
        return sample
    behind_ms = max(0, behind_ms)
    return attrs.evolve(sample, behind=Behind(behind_ms, behind_ms))


def _gap_charts(links: Sequence[_Link], until_ms: int) -> Iterator[Chart]:
    moments = [session.begin_ms for link in links for session in link.sessions]
    if not moments:
        return
    width_ms = bucket_width_ms(min(moments), until_ms)
    spans = list(buckets(min(moments), until_ms, width_ms))
    note = (
        f"The largest gap sampled in each {say_ms(width_ms)}. Where the line breaks there was no "
        "link."
    )
    for is_time, title, label in ((False, "Bytes behind", "bytes"), (True, "Time behind", "time")):
        yield Chart(
            title=f"{title}, by link",
            kind="line",
            x_label="time",
            y_label=label,
            series=[Series(link.name, _largest(link, spans, width_ms, is_time)) for link in links],
            note=f"{note} Where a time has bounds, the upper one is drawn." if is_time else note,
            x_kind="time",
            y_kind="duration" if is_time else "bytes",
        )


def _largest(
    link: _Link, spans: Sequence[int], width_ms: int, is_time: bool
) -> list[tuple[int, int | None]]:
    """The largest value in each bucket; the last one lasts until the next or the session's end."""
    found: dict[int, int] = {}
    first = spans[0]
    for session, samples in zip(link.sessions, link.samples, strict=True):
        end_ms = spans[-1] if session.end_ms is None else session.end_ms
        for at, sample in enumerate(samples):
            value = sample.behind.figure_ms if is_time else sample.gap_bytes
            begin = sample.at_ms
            over = samples[at + 1].at_ms if at + 1 < len(samples) else max(begin, end_ms)
            for index in range((begin - first) // width_ms, (over - first) // width_ms + 1):
                found[index] = max(found.get(index, 0), value)
    return [(begin, found.get(index)) for index, begin in enumerate(spans)]


def _sessions_chart(links: Sequence[_Link]) -> Chart | None:
    if not links:
        return None
    lanes = []
    for link in links:
        points: list[tuple[int, int | None, str]] = []
        for session in link.sessions:
            points.append((session.begin_ms, session.end_ms, "connected"))
            points += [(begin, end, "in sync") for begin, end in session.in_sync]
        lanes.append(Series(link.name, points))
    return Chart(
        title="Sessions",
        kind="timeline",
        x_label="time",
        y_label="link",
        series=lanes,
        note=(
            "In sync: within haSlaveFallbehindMax of its master, and acknowledging. Only the "
            "master knows."
        ),
        x_kind="time",
        y_kind="category",
    )


def _links_table(links: Sequence[_Link], until_ms: int) -> Table:
    rows = []
    for link in links:
        connected = sum(_lasted(session, until_ms) for session in link.sessions)
        in_sync = sum(
            (until_ms if end is None else end) - begin
            for session in link.sessions
            for begin, end in session.in_sync
        )
        samples = link.all_samples
        knows = any(session.is_master for session in link.sessions)
        rows.append(
            {
                "link": link.name,
                "sessions": len(link.sessions),
                "connected_ms": connected,
                "in_sync": ratio(min(in_sync, connected), connected) if knows else None,
                "gap_max_bytes": max((sample.gap_bytes for sample in samples), default=None),
                "behind_least_ms": max((each.behind.least_ms for each in samples), default=None),
                "behind_max_ms": max((each.behind.figure_ms for each in samples), default=None),
                "transferred_bytes": sum(_transferred(session) for session in link.sessions),
            }
        )
    return table(
        "links",
        "Links, by one sample a second; the largest time behind is between behind_least and "
        "behind_max",
        "link sessions:integer connected_ms:duration in_sync:share gap_max_bytes:bytes "
        "behind_least_ms:duration behind_max_ms:duration transferred_bytes:bytes",
        rows,
    )


def _sessions_table(links: Sequence[_Link], until_ms: int) -> Table:
    rows = []
    for link in links:
        for session, samples in zip(link.sessions, link.samples, strict=True):
            catch_up = _catch_up(session, samples)
            rows.append(
                {
                    "link": link.name,
                    "peer": session.peer,
                    "told_by": session.node,
                    "begin_ms": session.begin_ms,
                    "end_ms": session.end_ms,
                    "lasted_ms": _lasted(session, until_ms),
                    "reason": session.reason or ("" if session.end_ms else "lasts"),
                    "offset": session.offset,
                    "transferred_bytes": _transferred(session),
                    "catch_up_ms": None if catch_up is None else catch_up.lasted_ms,
                    "catch_up_rate": None
                    if catch_up is None or not catch_up.lasted_ms
                    else catch_up.bytes * 1000 / catch_up.lasted_ms,
                }
            )
    rows.sort(key=lambda row: (row["begin_ms"], row["link"]))
    return table(
        "sessions",
        "Sessions of slaves",
        "link peer told_by begin_ms:time end_ms:time lasted_ms:duration reason offset:integer "
        "transferred_bytes:bytes catch_up_ms:duration catch_up_rate:number:B/s",
        rows,
    )


def _silences_table(links: ReplicationLinks) -> Table:
    rows = [
        {
            **attrs.asdict(silence),
            "beyond": "limit"
            if silence.limit_ms is not None and silence.gap_ms >= silence.limit_ms
            else "interval",
        }
        for silence in links.silences
    ]
    return table(
        "silences",
        "Heartbeats that came late or never",
        "node peer begin_ms:time gap_ms:duration beyond limit_ms:duration end",
        rows,
    )


def _refusals_table(links: ReplicationLinks) -> Table:
    counts: dict[tuple[str, str, str], list[int]] = {}
    for row in links.refusals:
        # A slave's port is new with every attempt, a master's is not.
        host = row.fields.get("peer", "").rpartition(":")[0]
        counts.setdefault((row.node, host, row.fields.get("reason", "")), []).append(row.wall_ms)
    rows = [
        {
            "node": node,
            "peer_host": host,
            "reason": reason,
            "count": len(moments),
            "first_ms": min(moments),
            "last_ms": max(moments),
        }
        for (node, host, reason), moments in counts.items()
    ]
    return table(
        "refusals",
        "Links that were refused",
        "node peer_host reason count:integer first_ms:time last_ms:time",
        rows,
    )


def _shares(links: ReplicationLinks, until_ms: int) -> Table:
    """Return each broker's time under a master, and the part of it with a slave in sync."""
    rows = []
    for broker in links.lives.brokers:
        lives = [life for life in links.lives.of_broker(broker) if not life.is_member]
        served = [
            (begin, until_ms if end is None else end, life)
            for life in lives
            for begin, end, _ in life.masterships()
        ]
        total = sum(end - begin for begin, end, _ in served)
        held = sum(_held_ms(links, life, begin, end, until_ms) for begin, end, life in served)
        if served:
            rows.append(
                {
                    "broker": broker,
                    "served_ms": total,
                    "in_sync_ms": held,
                    "share": ratio(held, total),
                }
            )
    return table(
        "in_sync",
        "Time with a slave in sync, by broker",
        "broker served_ms:duration in_sync_ms:duration share:share",
        rows,
    )


def _held_ms(links: ReplicationLinks, life: Life, begin: int, end: int, until_ms: int) -> int:
    """Return the time within a mastership in which at least one link was in sync."""
    spans = sorted(
        (max(begin, since), min(end, until_ms if until is None else until))
        for session in links.sessions
        if session.journal == life.journal and session.is_master
        for since, until in session.in_sync
    )
    total, covered = 0, begin
    for since, until in spans:
        total += max(0, until - max(since, covered))
        covered = max(covered, until)
    return total


def _findings(
    links: ReplicationLinks, by_link: Sequence[_Link], shares: Table
) -> Iterator[Finding]:
    for link in by_link:
        samples = link.all_samples
        if samples:
            gap = max(sample.gap_bytes for sample in samples)
            yield Finding(
                "info" if max(s.behind.figure_ms for s in samples) < MINUTE_MS else "warning",
                f"{link.name}: at most {say_bytes(gap)} and {_say_behind(samples)}, in "
                f"{count_of(len(link.sessions), 'session')}.",
            )
    beyond = [each for each in links.silences if each.end != "it spoke again"]
    late = len(links.silences) - len(beyond)
    if beyond:
        longest = max(each.gap_ms for each in beyond)
        yield Finding.warning(
            f"{count_of(len(beyond), 'link')} fell silent and did not speak again; the longest "
            f"silence was {say_ms(longest)}."
        )
    if late:
        yield Finding.warning(f"{count_of(late, 'heartbeat')} came late.")
    timeouts = sum(each.timeouts for each in links.waits)
    unavailable = sum(each.unavailable for each in links.waits)
    if timeouts or unavailable:
        yield Finding.warning(
            f"{count_of(timeouts + unavailable, 'put')} were stored on one machine only: "
            f"{timeouts:,} timed out waiting for a slave, {unavailable:,} found none to wait "
            "for."
        )
    if links.refusals:
        yield Finding.warning(
            f"{count_of(len(links.refusals), 'link')} were refused; most recently: "
            f"{links.refusals[-1].fields.get('reason', '')}"
        )
    for broker, served, held, _ in shares.rows:
        said = say_share(float(held or 0), float(served or 0))
        yield Finding.info(f"{broker} had a slave in sync {said} of the time it had a master.")
    if not links.sessions and not any(life.is_member for life in links.lives.lives):
        yield Finding.info("The journals tell of no replication link.")


def _say_behind(samples: Sequence[_Sample]) -> str:
    """The largest time behind, or between which times it lies."""
    least_ms = max(sample.behind.least_ms for sample in samples)
    most_ms = max(sample.behind.figure_ms for sample in samples)
    if any(each.behind.most_ms is None and each.behind.figure_ms == most_ms for each in samples):
        return f"at least {say_ms(most_ms)} behind: the journal does not reach back further"
    if say_ms(least_ms) == say_ms(most_ms):
        return f"{say_ms(most_ms)} behind"
    return (
        f"between {say_ms(least_ms)} and {say_ms(most_ms)} behind: no sample while the log was idle"
    )


def _lasted(session: Session, until_ms: int) -> int:
    return max(0, (until_ms if session.end_ms is None else session.end_ms) - session.begin_ms)


def _transferred(session: Session) -> int:
    """Bytes that the slave took: a killed master could not write down the last of them."""
    ends = [each for each in (session, session.other) if each is not None and each.progress.ack]
    return max([0, *(each.progress.ack[-1] - session.offset for each in ends)])


def _catch_up(session: Session, samples: Sequence[_Sample]) -> _CatchUp | None:
    """Return the catch-up of a slave that connected behind its master; None if there was none."""
    if not samples or not session.first_gap:
        return None
    for sample in samples:
        if sample.behind.figure_ms <= LEVEL_MS:
            return _CatchUp(sample.at_ms - session.begin_ms, max(0, sample.ack - session.offset))
    return None
