"""Outages: the times at which a broker had no writable master, and the reasons.

A broker is available while a node of its name serves as a master and takes writes. What lies
between two masters, and while a master refuses writes, is an outage. The first outage that can be
known begins after the first master served; the last one may last until the end of what was
recorded.

A killed master died between its last word and the moment at which another node noticed: its outage
has bounds. The leader of a DLEDGER group commits nothing once a newer
term has a leader, whatever its own journal says, so the terms of a group never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from trioha.analysis.reports.lives import Life, Lives, Stint
from trioha.analysis.reports.words import say_clock, say_ms, say_time
from trioha.analysis.results import Severity

_OVERLAP_MS = 1_000
"""Two masters at a time for less than this are two clocks."""
_UNHEARD = "no other member of the group heard it any more"
_CLOCK = re.compile(r" at \d\d:\d\d:\d\d\b")
_TIMEOUTS_MAX = 2
"""dLegerElectionTimeoutMax over dLegerElectionTimeoutMin, by default: how long a member waits for
its leader before it stands for election."""


@attrs.frozen(kw_only=True)
class Outage:
    """`end_ms` is None when it was not over when the records end."""

    broker: str
    begin_ms: int
    earliest_ms: int
    """Earliest moment at which it can have begun."""
    latest_ms: int
    """Latest moment at which it can have begun."""
    end_ms: int | None
    cause: str
    before: str
    """The node that served before."""
    before_journal: str
    after: str
    """The node that serves afterwards; empty while there is none."""
    after_journal: str
    is_planned: bool
    last_write_ms: int | None = None
    first_write_ms: int | None = None
    """Store times in the logs: of the last record before its end, and of the first since."""

    @property
    def lasted_ms(self) -> int:
        assert self.end_ms is not None, "it lasts"
        return self.end_ms - self.begin_ms

    @property
    def lasted_max_ms(self) -> int:
        assert self.end_ms is not None, "it lasts"
        return self.end_ms - self.earliest_ms

    @property
    def general_cause(self) -> str:
        """The cause without its time of day, which is the same when it comes again."""
        return _CLOCK.sub("", self.cause)

    @property
    def write_gap_ms(self) -> int | None:
        if self.last_write_ms is None or self.first_write_ms is None:
            return None
        return self.first_write_ms - self.last_write_ms


@attrs.frozen
class Overlap:
    """Two nodes served as masters of one broker at a time."""

    broker: str
    begin_ms: int
    end_ms: int | None
    first: str
    second: str

    @property
    def sentence(self) -> str:
        until = "to the end of the records"
        if self.end_ms is not None:
            until = f"for {say_ms(self.end_ms - self.begin_ms)}"
        return (
            f"{self.broker} had two masters, {self.first} and {self.second}, from "
            f"{say_time(self.begin_ms)} {until}."
        )


@attrs.frozen
class _Span:
    begin_ms: int
    end_ms: int | None
    life: Life
    is_handed_over: bool
    """The mastership ended with another role, not with the node."""
    stint: Stint
    slack_ms: int = 0
    """Milliseconds by which it may have ended before `end_ms`."""

    @property
    def was_killed(self) -> bool:
        """The mastership ended with its node, which could not tell of it."""
        return self.life.dead_by_ms is not None and self.end_ms == self.life.end_ms

    @property
    def end_bounds_ms(self) -> tuple[int, int]:
        """Earliest and latest moment at which it can have ended."""
        assert self.end_ms is not None
        if self.was_killed and self.life.dead_by_ms is not None:
            return max(self.begin_ms, self.life.heard_ms), self.life.dead_by_ms
        return max(self.begin_ms, self.end_ms - self.slack_ms), self.end_ms


def outages_of(lives: Lives, broker: str) -> list[Outage]:
    """Outages of one broker, in the order they began."""
    spans = _masterships(lives, broker)
    found = [*_between(broker, spans), *_refusals(broker, spans)]
    return sorted(found, key=lambda outage: outage.begin_ms)


def overlaps_of(lives: Lives, broker: str) -> list[Overlap]:
    """Return the times at which a broker had two masters."""
    found = []
    spans = _masterships(lives, broker)
    for index, first in enumerate(spans):
        for second in spans[index + 1 :]:
            if second.life.journal == first.life.journal:
                continue
            begin = max(first.begin_ms, second.begin_ms)
            ends = [end for end in (first.end_ms, second.end_ms) if end is not None]
            end = min(ends) if ends else None
            if end is None or end - begin >= _OVERLAP_MS:
                found.append(Overlap(broker, begin, end, first.life.node, second.life.node))
    return found


def severity_of(outages: Sequence[Outage]) -> Severity:
    """Severity of outages: a warning if all of them were planned, else an error."""
    return "warning" if all(outage.is_planned for outage in outages) else "error"


def observed_ms(lives: Lives, broker: str) -> tuple[int, int] | None:
    """Return the first mastership's begin and the last known moment; None without a master."""
    spans = _masterships(lives, broker)
    if not spans or lives.heard_ms is None:
        return None
    return spans[0].begin_ms, max(lives.heard_ms, spans[0].begin_ms)


def lost_ms(outages: Sequence[Outage], until_ms: int) -> int:
    """Time in which at least one outage was on."""
    total = 0
    covered_ms: int | None = None
    for outage in sorted(outages, key=lambda each: each.begin_ms):
        end = until_ms if outage.end_ms is None else outage.end_ms
        begin = outage.begin_ms if covered_ms is None else max(outage.begin_ms, covered_ms)
        if end > begin:
            total += end - begin
            covered_ms = end
    return total


def _masterships(lives: Lives, broker: str) -> list[_Span]:
    spans = [
        _Span(begin, end, life, end not in (life.stopping_ms, life.end_ms), stint)
        for life in lives.of_broker(broker)
        for begin, end, stint in life.masterships()
    ]
    spans.sort(key=lambda span: span.begin_ms)
    elections = [election for life in lives.of_broker(broker) for election in life.elections]
    return [_until_next_term(span, spans, elections) for span in spans]


def _until_next_term(
    span: _Span, spans: Sequence[_Span], elections: Sequence[tuple[int, int]]
) -> _Span:
    """The leadership of a group, ended when the next leader had heard of no other one."""
    term = span.stint.epoch
    if not span.life.is_member or term is None:
        return span
    newer = [other for other in spans if (other.stint.epoch or 0) > term]
    if not newer:
        return span
    stood = [since_ms for since_ms, won in elections if won == newer[0].stint.epoch]
    end_ms = max(span.begin_ms, min([*stood, newer[0].begin_ms]))
    has_ended = span.end_ms is not None and span.end_ms <= newer[0].begin_ms
    if has_ended and (not span.was_killed or (span.end_ms or 0) <= end_ms):
        return span
    if span.was_killed:
        # Another node noticed only after the group had.
        slack_ms = end_ms - min(end_ms, max(span.begin_ms, span.life.heard_ms))
        return attrs.evolve(span, end_ms=end_ms, slack_ms=slack_ms)
    stint = attrs.evolve(span.stint, left=_UNHEARD, is_planned=False)
    timeout_ms = _TIMEOUTS_MAX * (span.life.heartbeat_limit_ms or 0)
    return _Span(span.begin_ms, end_ms, span.life, True, stint, timeout_ms)


def _between(broker: str, spans: Sequence[_Span]) -> list[Outage]:
    found = []
    latest: _Span | None = None  # the mastership that lasted longest so far
    for span in spans:
        if latest is not None and _is_gap(latest, span):
            found.append(_outage(broker, latest, span))
        if latest is None or span.end_ms is None or span.end_ms > (latest.end_ms or 1 << 62):
            latest = span if latest is None or latest.end_ms is not None else latest
    if latest is not None and latest.end_ms is not None:
        found.append(_outage(broker, latest, None))
    return found


def _is_gap(before: _Span, after: _Span) -> bool:
    """Tell whether there was no master between two, if only for the time that evidence is vague."""
    if before.end_ms is None or before.end_ms >= after.begin_ms + _OVERLAP_MS:
        return False
    return before.end_bounds_ms[0] < after.begin_ms


def _outage(broker: str, before: _Span, after: _Span | None) -> Outage:
    assert before.end_ms is not None
    life = before.life
    earliest_ms, latest_ms = before.end_bounds_ms
    cause = _CAUSES[life.ending]
    if life.ending == "stopped" and life.end_ms is not None:
        cause += f" at {say_clock(life.end_ms)}"
    if before.is_handed_over:
        cause = before.stint.left or "it took another role"
    if life.ending == "failed" and life.reason and not before.is_handed_over:
        cause = f"{cause}: {life.reason}"
    return Outage(
        broker=broker,
        begin_ms=before.end_ms if after is None else min(before.end_ms, after.begin_ms),
        earliest_ms=earliest_ms,
        latest_ms=latest_ms if after is None else min(latest_ms, after.begin_ms),
        end_ms=None if after is None else after.begin_ms,
        cause=cause,
        before=life.node,
        before_journal=life.journal,
        after="" if after is None else after.life.node,
        after_journal="" if after is None else after.life.journal,
        is_planned=(
            before.stint.is_planned if before.is_handed_over else life.ending in ("stopped", "open")
        ),
    )


_CAUSES = {
    "stopped": "it stopped in order",
    "failed": "it failed",
    "killed": "it was killed, or its machine died",
    "open": "it is being stopped",
}


def _refusals(broker: str, spans: Sequence[_Span]) -> list[Outage]:
    found = []
    for span in spans:
        for begin, end, reason in span.life.refusals:
            ends = [ms for ms in (end, span.end_ms) if ms is not None]
            over = min(ends) if ends else None
            if begin >= span.begin_ms and (span.end_ms is None or begin < span.end_ms):
                found.append(
                    Outage(
                        broker=broker,
                        begin_ms=begin,
                        earliest_ms=begin,
                        latest_ms=begin,
                        end_ms=over,
                        cause=f"writes refused: {reason}",
                        before=span.life.node,
                        before_journal=span.life.journal,
                        after="" if over == span.end_ms else span.life.node,
                        after_journal="" if over == span.end_ms else span.life.journal,
                        is_planned=False,
                    )
                )
    return found
