"""Sources of the answer to a question: stores, what they gave up, their journals.

Theory of operation. What a slave cut from its log lies beside it in a folder that reads like a log
(`trioha.store.cuts`). It is opened as one more store, so that one query finds a message in logs and
in cuts; `Case.cuts` tells them apart. Stores are replicas of each other when their logs share a
record: the same offset, store time and store host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import attrs

from trioha.analysis.engine import Engine, Progress, literals
from trioha.analysis.inputs import Inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports.lives import Lives, lives_of, stores_of_journals
from trioha.analysis.reports.outages import Outage, outages_of
from trioha.analysis.store_files import StoreFiles, open_store
from trioha.store.cuts import Cut


@attrs.frozen
class LogBounds:
    """Offsets of a log's first and last record, its earliest and latest store time in ms."""

    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int


@attrs.define(eq=False)
class Case:
    """Inputs of one question, opened."""

    engine: Engine
    stores: Sequence[StoreFiles]
    """Stores as they were given, without their cuts."""
    cuts: Mapping[str, tuple[StoreFiles, Cut]]
    """Label of a cut's log -> the store that gave it up, and the cut."""

    @cached_property
    def bounds(self) -> Mapping[str, LogBounds]:
        """Bounds of every log that has a record, by label."""
        rows = self.engine.query(
            "SELECT store, MIN(phy_offset_min) AS first_offset, MAX(phy_offset_max) AS last_offset,"
            " MIN(store_ms_min) AS first_ms, MAX(store_ms_max) AS last_ms "
            "FROM commitlog_stats GROUP BY store"
        )
        return {row.pop("store"): LogBounds(**row) for row in rows}

    @cached_property
    def lives(self) -> Lives:
        """The lives of all nodes whose journals were given."""
        return lives_of(self.engine)

    @cached_property
    def outages(self) -> Sequence[Outage]:
        """Outages of all brokers, in the order they began."""
        found = [each for broker in self.lives.brokers for each in outages_of(self.lives, broker)]
        return sorted(found, key=lambda outage: outage.begin_ms)

    @cached_property
    def _brokers(self) -> Mapping[str, frozenset[str]]:
        """Label of a store -> names of the brokers whose journals lie in it."""
        found: dict[str, set[str]] = {}
        for life in self.lives.lives:
            if life.is_broker:
                for label in stores_of_journals(self.engine, {life.journal}):
                    found.setdefault(label, set()).add(life.broker)
        return {label: frozenset(names) for label, names in found.items()}

    @cached_property
    def _pairs(self) -> frozenset[tuple[str, str]]:
        """Pairs of stores whose logs share a record."""
        labels = [store.label for store in self.stores]
        if len(labels) < 2:
            return frozenset()
        rows = self.engine.query(
            "SELECT DISTINCT a.store AS a, b.store AS b FROM commitlog a JOIN commitlog b "
            "ON a.phy_offset = b.phy_offset AND a.store_ms = b.store_ms "
            "AND a.store_host = b.store_host "
            f"WHERE a.store <> b.store AND a.store IN {literals(labels)} "
            f"AND b.store IN {literals(labels)}"
        )
        return frozenset((row["a"], row["b"]) for row in rows)

    def replicas_of(self, label: str) -> list[StoreFiles]:
        """The store of this label and all that are replicas of it, in the order given."""
        known = self._brokers.get(label, frozenset())
        return [
            store
            for store in self.stores
            if store.label == label
            or (label, store.label) in self._pairs
            or known & self._brokers.get(store.label, frozenset())
        ]

    def brokers_of(self, label: str) -> frozenset[str]:
        """Names of the brokers that kept this store; empty when no journal tells."""
        return self._brokers.get(label, frozenset())

    def outages_within(self, label: str, begin_ms: int, end_ms: int) -> list[Outage]:
        """Outages of a store's broker that overlap begin_ms..end_ms."""
        names = self.brokers_of(label) or frozenset(self.lives.brokers)
        return [
            outage
            for outage in self.outages
            if outage.broker in names
            and outage.begin_ms <= end_ms
            and (outage.end_ms is None or outage.end_ms >= begin_ms)
        ]


@contextmanager
def open_case(inputs: Inputs, progress: Progress | None = None) -> Iterator[Case]:
    """The case of inputs that were opened without a window.

    Errors: AnalysisError when a cut cannot be read.
    """
    opened = [
        (open_store(cut.commitlog_path), store, cut)
        for store in inputs.stores
        for cut in store.cuts()
    ]
    cuts = {log.label: (store, cut) for log, store, cut in opened}
    logs = [log for log, _, _ in opened]
    everything = Inputs([*inputs.stores, *logs], inputs.journals, inputs.window, inputs.notes)
    with LocalEngine(everything, progress=progress, views=["commitlog_full"]) as engine:
        yield Case(engine, inputs.stores, cuts)
