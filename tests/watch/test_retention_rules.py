"""A group that is about to lose messages, or has lost some."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_losing_groups

from trioha.watch.alerts import AlertLevel, Alerts
from trioha.watch.queues import Group
from trioha.watch.retention_rules import retention_in_words
from trioha.watch.rules import RULES
from trioha.watch.snapshot import ClusterSnapshot

HOUR_MS = 3_600_000


def a_cluster() -> tuple[RawCluster, str]:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    return cluster, master


def groups(cluster: RawCluster) -> dict[str, Group]:
    return dict(ClusterSnapshot.of(cluster.raw()).groups)


def test_a_group_that_has_lost_messages_and_one_that_is_about_to_are_alerts_with_a_cure() -> None:
    cluster, master = a_cluster()
    add_losing_groups(cluster, master)
    alerts = Alerts({"group_retention": RULES["group_retention"]})
    alerts.look(ClusterSnapshot.of(cluster.raw()))
    assert [(one.subject, one.level, one.text) for one in alerts.active] == [
        (
            "refunds",
            AlertLevel.CRIT,
            "group refunds has lost 123 messages: they were deleted before it read them, in orders,"
            " broker-a queue 0 and 1 more queue. It goes on at the oldest message left. Start or"
            " add consumers, or raise fileReservedTime of broker-a (in its file; restart it). If"
            " nobody needs the group: `trioha group delete refunds`.",
        ),
        (
            "billing",
            AlertLevel.WARN,
            "group billing may lose messages of orders in 12 h: the next one that it reads in"
            " broker-a queue 1 is 60 h old, and broker-a keeps messages for 72 h. Start or add"
            " consumers, or raise fileReservedTime of broker-a (in its file; restart it).",
        ),
    ]


def test_a_group_that_reads_on_is_no_alert_any_more() -> None:
    cluster, master = a_cluster()
    add_losing_groups(cluster, master)
    alerts = Alerts({"group_retention": RULES["group_retention"]})
    alerts.look(ClusterSnapshot.of(cluster.raw()))
    cluster.tick()
    now_ms = cluster.wall_ms
    row = [0, 9000, 8900, now_ms, 4000, now_ms - HOUR_MS]
    cluster.say(master, "progress", {"billing": {"orders": [row]}})
    alerts.look(ClusterSnapshot.of(cluster.raw()))
    assert alerts.active == ()


@pytest.mark.parametrize(
    ("row", "reserved_s", "used", "lost"),
    [
        # Queue, next offset, group's offset, consumed ms, min offset, age of the next one in hours.
        ([0, 90, 90, 0, 40, None], 72 * 3600, 0.0, 0),
        ([0, 90, 50, 0, 40, 18], 72 * 3600, 0.25, 0),
        ([0, 90, 50, 0, 40, 90], 72 * 3600, 1.25, 0),
        ([0, 90, 30, 0, 40, None], 72 * 3600, 1.0, 10),
        # Everything in the queue is deleted, and nothing of it was read.
        ([0, 90, 30, 0, 90, None], None, 1.0, 60),
        # A broker that does not say for how long it keeps messages.
        ([0, 90, 50, 0, 40, 18], None, None, 0),
        # A group without an offset here, a Java broker, a recording of an earlier version.
        ([0, 90, 0, 0, None, None], 72 * 3600, None, None),
        ([0, 90, 0, 0], 72 * 3600, None, None),
    ],
)
def test_the_share_of_the_retention_that_the_next_message_has_used(
    row: Sequence[int | None], reserved_s: int | None, used: float | None, lost: int | None
) -> None:
    cluster, master = a_cluster()
    cluster.statuses[master]["reserved_s"] = reserved_s
    cluster.tick()
    told = list(row)
    if len(told) > 5 and told[5] is not None:
        told[5] = cluster.wall_ms - told[5] * HOUR_MS
    cluster.say(master, "progress", {"billing": {"orders": [told]}})
    group = groups(cluster)["billing"]
    assert (group.retention_used, group.lost) == (used, lost)
    assert bool(retention_in_words(group)) == bool(used)


def test_behind_is_the_age_of_the_oldest_message_not_consumed() -> None:
    cluster, master = a_cluster()
    now_ms = cluster.wall_ms
    # The queue was idle for an hour before the message came that is not consumed.
    rows = [[0, 90, 89, now_ms - HOUR_MS, 40, now_ms - 2000]]
    cluster.say(master, "progress", {"billing": {"orders": rows}})
    assert groups(cluster)["billing"].lag_s == 2.0


def test_a_lag_whose_messages_are_deleted_is_of_unknown_age_not_of_none() -> None:
    cluster, master = a_cluster()
    add_losing_groups(cluster, master)
    assert groups(cluster)["refunds"].lag_s is None
    assert groups(cluster)["audit"].lag_s == 0.0
