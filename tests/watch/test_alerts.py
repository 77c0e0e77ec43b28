"""Latches, patience, hysteresis and acknowledgement; time is the snapshot's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fakes.raw_answers import RawCluster

from trioha.cli.context import rule_rows
from trioha.watch.alerts import CLEAR_SHARE, AlertLevel, Alerts, judge, level_of
from trioha.watch.condition import condition_of, condition_of_set
from trioha.watch.level import Level
from trioha.watch.rules import RULES, Area, Reading, Rule, Unit
from trioha.watch.snapshot import ClusterSnapshot, Tables


class Fed:
    """One rule that reads whatever the test says."""

    def __init__(
        self, *, warn: float | None = 10, crit: float | None = 20, for_s: float = 5
    ) -> None:
        self.values: dict[str, float | None] = {}
        rule = Rule(
            name="fed", area=Area.HA, unit=Unit.COUNT, warn=warn, crit=crit, for_s=for_s, doc="",
            read=self._read,
        )  # fmt: skip
        self.alerts = Alerts({"fed": rule})
        self.at_s = 1000

    def _read(self, snapshot: ClusterSnapshot) -> Iterator[Reading]:
        for subject, value in self.values.items():
            yield Reading("fed", subject, value, f"{subject} is {value}")

    def look(self, value: float | None, after_s: int = 1) -> list[tuple[AlertLevel, AlertLevel]]:
        """Set the value `after_s` later; return the changes of levels, as (before, after)."""
        self.at_s += after_s
        self.values = {"s": value}
        snapshot = ClusterSnapshot.of({"at_wall_ms": self.at_s * 1000})
        return [(change.before, change.alert.level) for change in self.alerts.look(snapshot)]

    def level(self) -> AlertLevel:
        return self.alerts.level


def test_an_alert_begins_when_it_was_so_for_long_enough() -> None:
    fed = Fed()
    for _ in range(5):
        assert fed.look(12) == []
    assert fed.look(12) == [(AlertLevel.OK, AlertLevel.WARN)]
    (alert,) = fed.alerts.active
    assert (alert.subject, alert.value, alert.text) == ("s", 12, "s is 12")
    assert alert.since_wall_ms == fed.at_s * 1000


def test_an_alert_that_is_ending_still_says_what_was_wrong() -> None:
    fed = Fed(for_s=2)
    for value in (12, 12, 12, 0):
        fed.look(value)
    (alert,) = fed.alerts.active
    assert (alert.value, alert.text) == (0, "s is 12")


def test_a_short_peak_is_no_alert() -> None:
    fed = Fed()
    for _ in range(20):
        fed.look(50)
        fed.look(0)
    assert fed.alerts.active == ()


def test_it_gets_worse_and_better_and_ends_each_with_patience() -> None:
    fed = Fed(for_s=2)
    changes = [fed.look(value) for value in [25] * 3 + [15] * 3 + [5] * 3]
    assert [change for told in changes for change in told] == [
        (AlertLevel.OK, AlertLevel.CRIT),
        (AlertLevel.CRIT, AlertLevel.WARN),
        (AlertLevel.WARN, AlertLevel.OK),
    ]


def test_a_value_that_swings_around_the_threshold_is_one_alert() -> None:
    fed = Fed(for_s=0)
    assert fed.look(10) == [(AlertLevel.OK, AlertLevel.WARN)]
    for _ in range(20):
        assert fed.look(9.5) == []
        assert fed.look(10.5) == []
    assert fed.look(10 * CLEAR_SHARE - 0.1) == [(AlertLevel.WARN, AlertLevel.OK)]


def test_without_a_value_nothing_begins_and_nothing_ends() -> None:
    fed = Fed(for_s=0)
    fed.look(12)
    for _ in range(100):
        assert fed.look(None) == []
    assert fed.level() is AlertLevel.WARN
    (alert,) = fed.alerts.active
    assert alert.text == "s is 12"


def test_a_subject_that_is_gone_has_no_alert() -> None:
    fed = Fed(for_s=0)
    fed.look(12)
    fed.values = {}
    (change,) = fed.alerts.look(ClusterSnapshot.of({"at_wall_ms": 2_000_000}))
    assert (change.before, change.alert.level) == (AlertLevel.WARN, AlertLevel.OK)
    assert fed.alerts.active == ()


def test_acknowledged_is_silent_until_it_gets_worse() -> None:
    fed = Fed(for_s=0)
    fed.look(12)
    assert fed.alerts.acknowledge(("fed", "s"))
    assert fed.level() is AlertLevel.OK
    assert [alert.acknowledged for alert in fed.alerts.active] == [True]
    fed.look(13)
    assert fed.level() is AlertLevel.OK
    assert fed.look(25) == [(AlertLevel.WARN, AlertLevel.CRIT)]
    assert [alert.acknowledged for alert in fed.alerts.active] == [False]
    fed.alerts.acknowledge_all()
    fed.look(12)
    assert fed.level() is AlertLevel.OK  # better than what was acknowledged
    fed.look(0)
    fed.look(12)
    assert fed.level() is AlertLevel.WARN  # a new one
    assert not fed.alerts.acknowledge(("fed", "nobody"))


def test_a_threshold_of_nothing_is_reached_by_anything() -> None:
    fed = Fed(warn=0, crit=None, for_s=0)
    assert fed.look(0) == []
    assert fed.look(1) == [(AlertLevel.OK, AlertLevel.WARN)]
    assert fed.look(0) == [(AlertLevel.WARN, AlertLevel.OK)]


def test_a_threshold_of_never_is_never_reached() -> None:
    fed = Fed(warn=None, crit=None, for_s=0)
    assert fed.look(1e18) == []


def test_a_clock_that_is_set_back_only_delays() -> None:
    fed = Fed(for_s=3)
    fed.look(12)
    fed.look(12, after_s=-500)
    fed.look(12)
    fed.look(12)
    assert fed.look(12) == [(AlertLevel.OK, AlertLevel.WARN)]


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=80),
    st.integers(0, 6),
)
def test_no_alert_without_cause_and_none_forgotten(values: list[int | None], for_s: int) -> None:
    fed = Fed(for_s=for_s)
    for count, value in enumerate(values, 1):
        before = fed.level()
        fed.look(value)
        known = [one for one in values[:count] if one is not None]
        recent = values[max(0, count - for_s - 1) : count]
        steady = count > for_s and None not in recent
        if steady and all(one is not None and one >= 20 for one in recent):
            assert fed.level() is AlertLevel.CRIT
        if steady and all(one is not None and one < 9 for one in recent):
            assert fed.level() is AlertLevel.OK
        if fed.level() > before:
            assert value is not None
            assert value >= (20 if fed.level() is AlertLevel.CRIT else 10)
        if fed.level() < before:
            assert value is not None
            assert value < 18
        if not any(one >= 10 for one in known):
            assert fed.alerts.active == ()


def healthy() -> tuple[RawCluster, str, str]:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    return cluster, master, slave


def worst(cluster: RawCluster) -> dict[str, AlertLevel]:
    """Rules that do not hold, without patience."""
    found: dict[str, AlertLevel] = {}
    for verdict in judge(ClusterSnapshot.of(cluster.raw()), RULES, Area):
        if verdict.level:
            assert verdict.reading.text
            found[verdict.rule.name] = max(
                found.get(verdict.rule.name, AlertLevel.OK), verdict.level
            )
    return found


def test_a_healthy_cluster_raises_nothing() -> None:
    cluster, _, _ = healthy()
    assert worst(cluster) == {}


def test_before_the_first_answers_nothing_is_raised() -> None:
    cluster, _, _ = healthy()
    cluster.answers.clear()
    assert worst(cluster) == {}


def test_a_slave_far_behind_and_out_of_sync() -> None:
    cluster, master, _ = healthy()
    cluster.link(master).update(gap_bytes=300 << 20, gap_s=45.0, in_sync=False)
    cluster.tick()
    assert worst(cluster) == {
        "gap_bytes": AlertLevel.CRIT,
        "gap_seconds": AlertLevel.WARN,
        "not_in_sync": AlertLevel.WARN,
        "no_slave_in_sync": AlertLevel.CRIT,
    }


def test_silence_on_a_link_grows_towards_its_limit() -> None:
    cluster, master, _ = healthy()
    cluster.link(master)["last_ack_age_s"] = 11.0
    cluster.tick()
    assert worst(cluster) == {"heartbeat_age": AlertLevel.WARN}
    cluster.link(master)["last_ack_age_s"] = 18.5
    cluster.tick()
    assert worst(cluster) == {"heartbeat_age": AlertLevel.CRIT}


def test_a_slave_without_a_link() -> None:
    cluster, master, slave = healthy()
    cluster.statuses[master]["connections"] = []
    cluster.statuses[slave]["slave"].update(state="CONNECTING", last_error="connection refused")
    cluster.tick()
    assert worst(cluster) == {"link_down": AlertLevel.CRIT, "no_slave_in_sync": AlertLevel.CRIT}


def test_a_java_pair_tells_little_and_that_is_no_alert() -> None:
    cluster, master, slave = healthy()
    for address in (master, slave):
        del cluster.statuses[address]
        refused = {"value": None, "wall_ms": None, "error": "not supported", "code": 3}
        cluster.answers[address] = {"status": {**refused, "error_wall_ms": cluster.wall_ms}}
        cluster.say(address, "runtime", {"commitLogMaxOffset": "4096", "commitLogDiskRatio": "0.1"})
    assert worst(cluster) == {}


def test_a_stopped_slave_is_silent_and_then_absent() -> None:
    cluster, master, slave = healthy()
    cluster.silent[slave] = "did not answer within 3 s"
    cluster.tick()
    assert worst(cluster) == {"broker_silent": AlertLevel.CRIT}
    cluster.members[slave]["registered"] = False
    cluster.statuses[master]["connections"] = []
    cluster.tick()
    assert worst(cluster) == {
        "replica_absent": AlertLevel.CRIT,
        "no_slave_in_sync": AlertLevel.CRIT,
    }


def test_nodes_that_answer_with_errors_are_not_silent() -> None:
    """An account that may not ask sees no outage: no node tells it which is master."""
    cluster, master, slave = healthy()
    for address in (master, slave):
        del cluster.answers[address]
        cluster.silent[address] = "AclException: Need admin permission"
        cluster.codes[address] = 1
    cluster.tick()
    (one,) = ClusterSnapshot.of(cluster.raw()).sets
    of_set = condition_of_set(one)
    assert (of_set.word, of_set.level) == ("unknown", Level.WARN)
    assert "Need admin permission" in of_set.why
    assert [condition_of(replica).word for replica in one.replicas] == ["rejects us"] * 2
    assert worst(cluster) == {}
    cluster.codes.clear()
    cluster.tick()
    assert worst(cluster).keys() == {"broker_silent", "no_master"}


def test_a_slave_that_only_its_master_remembers_is_absent() -> None:
    cluster, master, slave = healthy()
    del cluster.members[slave], cluster.statuses[slave], cluster.answers[slave]
    cluster.statuses[master]["connections"] = []
    cluster.statuses[master]["absent"] = [
        {"host": "10.0.1.2", "links": 1, "last_error": "silence", "last_error_age_s": 7.0}
    ]
    cluster.tick()
    assert worst(cluster)["replica_absent"] is AlertLevel.CRIT


def test_no_master_and_two_masters() -> None:
    cluster, master, slave = healthy()
    cluster.statuses[slave].update(standing="MASTER", epoch=2)
    cluster.tick()
    assert worst(cluster)["two_masters"] is AlertLevel.CRIT
    cluster.statuses[slave].update(standing="SLAVE")
    cluster.silent[master] = "connection refused"
    cluster.tick()
    assert worst(cluster)["no_master"] is AlertLevel.CRIT


def test_a_fenced_master_is_told() -> None:
    cluster, master, _ = healthy()
    cluster.statuses[master].update(standing="FENCED", fenced_by="epoch 2 of 10.0.1.2")
    cluster.tick()
    found = worst(cluster)
    assert (found["fenced"], found["no_master"]) == (AlertLevel.WARN, AlertLevel.CRIT)


def test_name_servers_that_disagree_or_are_silent() -> None:
    cluster, _, slave = healthy()
    cluster.namesrvs.append("10.0.0.8:9876")
    cluster.say("10.0.0.8:9876", "cluster", {
        "broker-a": {"cluster": "DefaultCluster", "addresses": [[0, slave]]}
    })  # fmt: skip
    assert worst(cluster) == {"namesrv_disagree": AlertLevel.WARN}
    cluster.silent["10.0.0.8:9876"] = "connection refused"
    cluster.tick()
    assert worst(cluster) == {"namesrv_silent": AlertLevel.WARN}
    cluster.silent[cluster.namesrvs[0]] = "connection refused"
    cluster.tick()
    assert worst(cluster)["namesrv_silent"] is AlertLevel.CRIT


def test_disk_writes_and_dispatch() -> None:
    cluster, master, _ = healthy()
    cluster.statuses[master].update(
        disk_ratio=0.9, writable=False, max_phy_offset=(20 << 20) + 4096, dispatched_offset=4096
    )
    cluster.link(master)["gap_bytes"] = 0
    cluster.tick()
    assert worst(cluster) == {
        "disk_ratio": AlertLevel.CRIT,
        "writes_refused": AlertLevel.CRIT,
        "dispatch_behind": AlertLevel.WARN,
    }


def test_a_group_behind_in_messages_and_seconds() -> None:
    cluster, master, _ = healthy()
    consumed_ms = cluster.wall_ms - 400_000
    cluster.say(master, "progress", {"g": {"T": [[0, 200_000, 10, consumed_ms]]}})
    assert worst(cluster) == {"group_lag": AlertLevel.WARN, "group_lag_seconds": AlertLevel.WARN}
    cluster.say(master, "progress", {"g": {"%RETRY%g": [[0, 20, 10, consumed_ms]]}})
    assert worst(cluster) == {}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_each_rule_is_ordered_and_says_what_it_is(rule: Rule) -> None:
    assert rule.doc
    assert rule.warn is not None or rule.crit is not None
    if rule.warn is not None and rule.crit is not None:
        assert rule.warn < rule.crit
        assert level_of(rule.warn, rule) is AlertLevel.WARN
    if rule.crit is not None:
        assert level_of(rule.crit, rule) is AlertLevel.CRIT
    assert level_of(None, rule) is None
    assert level_of(0, rule) is AlertLevel.OK


def test_groups_are_looked_at_when_brokers_have_told_of_them() -> None:
    cluster, master, _ = healthy()
    alerts, tables = Alerts({"group_lag": attrs.evolve(RULES["group_lag"], for_s=3)}), Tables()

    def look() -> int:
        cluster.tick()
        alerts.look(ClusterSnapshot.of(cluster.raw(), tables))
        return len(alerts.active)

    def say(lag: int) -> None:
        cluster.say(master, "progress", {"g": {"T": [[0, lag, 0, cluster.wall_ms]]}})

    say(200_000)
    assert [look() for _ in range(5)] == [0] * 5  # told once only
    say(200_000)
    assert [look() for _ in range(5)] == [1] * 5
    say(0)
    look()
    for _ in range(4):
        say(0)
        look()
    assert alerts.active == ()


def test_alerts_of_a_real_failure_in_order_of_weight() -> None:
    cluster, _, slave = healthy()
    alerts = Alerts({name: attrs.evolve(rule, for_s=0) for name, rule in RULES.items()})
    assert alerts.look(ClusterSnapshot.of(cluster.raw())) == []
    cluster.silent[slave] = "gone"
    cluster.statuses[slave]["disk_ratio"] = 0.8
    cluster.tick()
    (change,) = alerts.look(ClusterSnapshot.of(cluster.raw()))
    assert change.is_worse
    assert (change.alert.rule, change.alert.level) == ("broker_silent", AlertLevel.CRIT)
    alerts.clear()
    assert alerts.active == ()


def test_the_table_in_the_docs_is_current() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring" / "README.md").read_text()
    for name, warn, crit, patience, doc in rule_rows(RULES.values()):
        area = RULES[name].area.value
        assert f"| `{name}` | {area} | {warn} | {crit} | {patience} | {doc} |\n" in page


def test_every_group_of_a_large_cluster_is_watched() -> None:
    """Five thousand groups are fifteen thousand readings; only those at a threshold are kept."""
    cluster, master, _ = healthy()
    rows = [0, 10, 10, cluster.wall_ms, 0, None]
    told = {f"g{number:04}": {"T": [rows]} for number in range(5000)}
    told["g4999"] = {"T": [[0, 10, 1, cluster.wall_ms, 5, cluster.wall_ms]]}
    cluster.say(master, "progress", told)
    alerts = Alerts()
    alerts.look(ClusterSnapshot.of(cluster.raw()))
    assert [(one.rule, one.subject) for one in alerts.active] == [("group_retention", "g4999")]
