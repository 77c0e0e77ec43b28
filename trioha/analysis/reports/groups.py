"""DLEDGER groups: how long a leader served, and how long its commit made no progress.

A put of a group is answered once a majority has it on disk, so "in sync" says nothing of a group.
What tells of its replication is whether the commit moves. A leader notes in its journal that the
commit has made no progress for three seconds; shorter stalls are not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from trioha.analysis.reports.links import ReplicationLinks
from trioha.analysis.reports.tables import ratio, table
from trioha.analysis.reports.words import count_of, say_ms
from trioha.analysis.results import Finding, Table

STALL_MS = 3_000
"""A shorter stall is not in a journal (`services.raft.watch.COMMIT_STALLED_MS`)."""


def groups_table(links: ReplicationLinks, until_ms: int) -> Table:
    """A row for each group."""
    rows = []
    for broker in links.lives.brokers:
        lives = [life for life in links.lives.of_broker(broker) if life.is_member]
        if not lives:
            continue
        led = [
            (begin, until_ms if end is None else end, life)
            for life in lives
            for begin, end, _ in life.masterships()
        ]
        led_ms = sum(end - begin for begin, end, _ in led)
        stalls = [
            min(end, until_ms if stall.end_ms is None else stall.end_ms) - stall.begin_ms
            for stall in links.stalls
            for begin, end, life in led
            if stall.journal == life.journal and begin <= stall.begin_ms < end
        ]
        rows.append(
            {
                "broker": broker,
                "members": len({life.node for life in lives}),
                "led_ms": led_ms,
                "stalls": len(stalls),
                "stalled_ms": sum(stalls),
                "share": ratio(sum(stalls), led_ms),
            }
        )
    return table(
        "groups",
        f"DLEDGER groups: time with a leader, and time without progress of its commit; stalls "
        f"below {say_ms(STALL_MS)} are not known",
        "broker members:integer led_ms:duration stalls:integer stalled_ms:duration share:share",
        rows,
    )


def group_findings(groups: Table) -> Iterator[Finding]:
    """Sentences on each group."""
    for broker, members, _, stalls, stalled_ms, _ in groups.rows:
        assert isinstance(members, int)
        assert isinstance(stalls, int)
        said = (
            f"{broker} is a DLEDGER group ({count_of(members, 'member')} in these journals): it "
            "answers a put once a majority has it"
        )
        if stalls:
            assert isinstance(stalled_ms, int)
            yield Finding.warning(
                f"{said}; its commit made no progress {count_of(stalls, 'time')}, "
                f"{say_ms(stalled_ms)} in all."
            )
        else:
            yield Finding.info(
                f"{said}; its commit never stood still for {say_ms(STALL_MS)} or longer."
            )
