"""Answers of a node that is older, newer or broken: whatever they hold, rules and marks go on."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fakes.raw_answers import RawCluster

from trioha.watch.alerts import Alerts, judge
from trioha.watch.marks import MarkFinder
from trioha.watch.recording import Encoder, Recording
from trioha.watch.rules import RULES, Area
from trioha.watch.snapshot import ClusterSnapshot

ODD: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_a_field_holds_nothing_raises(data: st.DataObject) -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    alerts, finder, encoder = Alerts(), MarkFinder(), Encoder()
    file = encoder.begin(cluster.wall_ms, {})
    for _ in range(2):
        for told in (
            cluster.statuses[master],
            cluster.statuses[slave],
            *(
                row
                for row in [cluster.statuses[slave].get("slave")]
                if row and isinstance(row, dict)
            ),
        ):
            keys = data.draw(st.sets(st.sampled_from(sorted(told)), max_size=4))
            for key in keys:
                if data.draw(st.booleans()):
                    told[key] = data.draw(ODD)
                else:
                    del told[key]
        cluster.tick()
        raw = cluster.raw()
        snapshot = ClusterSnapshot.of(raw)
        changes = alerts.look(snapshot)
        file += encoder.frame(raw)
        for mark in finder.look(snapshot, changes):
            file += encoder.mark(mark)
        for verdict in judge(snapshot, RULES, Area):
            assert isinstance(verdict.reading.text, str)
    assert len(Recording(file).frames) == 2
