"""Metrics for Prometheus, made from a node's tables when they are asked for.

Nothing is counted for this page alone: a node without a scraper does no work for it. Names and
labels are RocketMQ 5's where the meaning is the same, so that dashboards carry over. Metrics that
it lacks, replication above all, begin with ``trioha_``. Units are bytes and seconds, counters end
in ``_total``, and ages are given as points in time for PromQL to subtract.

prometheus_client is imported with the first scrape: it costs 60 ms.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trioha import __version__
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.http import Page
from trioha.services.admin.metrics_families import Families, one

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def page(families: Iterable[Metric], accept: str) -> Page:
    """Return the families in the form that `accept` prefers."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Once(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

        def describe(self) -> Iterable[Metric]:
            return ()  # asked at registration; the families are made once, for the answer

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    encode, content_type = choose_encoder(accept)
    return Page(encode(registry), content_type)


def build_info(families: Families) -> Metric:
    """Return which trioha this is."""
    return families.gauge(
        "trioha_build_info",
        "Always 1; which trioha on which Python.",
        [((__version__, platform.python_version()), 1.0)],
        "version",
        "python",
    )


def insecure_family(families: Families, insecure: bool) -> Metric:
    """Return whether the node obeys operators on other machines without proof."""
    return families.gauge(
        "trioha_node_insecure",
        "1 if other machines reach this node and it has no cluster secret.",
        one(int(insecure)),
    )


def certificate_families(families: Families, end_s: float | None) -> Iterable[Metric]:
    """Return when the node's certificate expires; nothing for a node without TLS."""
    if end_s is not None:
        yield families.gauge(
            "trioha_tls_certificate_expiry_timestamp_seconds",
            "When the first certificate of this node expires.",
            one(end_s),
        )


def traffic_families(
    families: Families, budget: TrafficBudget, connections: int, refused: int
) -> Iterator[Metric]:
    """Yield the state of the node's budget, and its connections."""
    yield families.gauge("trioha_connections", "Open connections of all kinds.", one(connections))
    yield families.counter(
        "trioha_connections_refused",
        "Connections closed because there were too many, or too few file descriptors.",
        one(refused),
    )
    yield families.gauge(
        "trioha_traffic_bytes",
        "Bytes kept for peers, by kind: frames of which a part has arrived, requests that wait, "
        "answers that are not read.",
        [
            (("frames",), budget.frames_bytes),
            (("waiting",), budget.waiting_bytes),
            (("unsent",), budget.unsent_bytes),
        ],
        "kind",
    )
    yield families.gauge(
        "trioha_traffic_bytes_max", "Limit of these together.", one(budget.bytes_max)
    )
    yield families.counter(
        "trioha_traffic_rejected",
        "Requests rejected before their body was read, or not kept waiting.",
        [
            (("no room",), budget.rejected_count),
            (("body too large",), budget.too_large_count),
        ],
        "reason",
    )


def events_family(families: Families, counts: EventCounts) -> Metric:
    """Return the counts of the node's events."""
    return families.counter(
        "trioha_journal_events",
        "Events written to the journal, docs/journal.md has their meaning.",
        [((name,), count) for name, count in sorted(counts.all().items())],
        "event",
    )
