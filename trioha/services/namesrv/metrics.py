"""The metric families of a name server (`services.admin.metrics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from trioha.namesrv.processor import NamesrvProcessor
from trioha.namesrv.route_info import MASTER_ID
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.http import OnGet
from trioha.services.admin.metrics import (
    build_info,
    certificate_families,
    events_family,
    insecure_family,
    page,
    traffic_families,
)
from trioha.services.admin.metrics_families import Families, Sample, one
from trioha.services.remoting.server import RemotingServer
from trioha.wire.route import BrokerData

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def namesrv_metrics(
    processor: NamesrvProcessor,
    counts: EventCounts,
    budget: TrafficBudget,
    server: RemotingServer,
    *,
    insecure: bool = False,
    certificate_end_s: Callable[[], float | None] = lambda: None,
) -> OnGet:
    """The /metrics page of a name server."""
    return lambda accept: page(
        _namesrv_families(processor, counts, budget, server, insecure, certificate_end_s()), accept
    )


def _namesrv_families(
    processor: NamesrvProcessor,
    counts: EventCounts,
    budget: TrafficBudget,
    server: RemotingServer,
    insecure: bool,
    end_s: float | None,
) -> Iterator[Metric]:
    families = Families(node_type="namesrv")
    yield build_info(families)
    yield insecure_family(families, insecure)
    yield from certificate_families(families, end_s)
    brokers = processor.routes.cluster_info().broker_addr_table
    yield families.gauge(
        "trioha_namesrv_brokers",
        "Broker addresses registered, by role.",
        _by_role(brokers.values()),
        "cluster",
        "broker",
        "role",
    )
    yield families.gauge(
        "rocketmq_topic_number", "Topics in the routes.", one(len(processor.routes.topics()))
    )
    yield families.counter(
        "trioha_namesrv_expired",
        "Brokers dropped because nothing was heard of them.",
        one(counts["broker_expired"]),
    )
    yield families.counter(
        "trioha_namesrv_masters_refused",
        "Registrations as master of an epoch that is over.",
        one(counts["master_refused"]),
    )
    yield from traffic_families(families, budget, server.connection_count, server.refused_count)
    yield events_family(families, counts)


def _by_role(brokers: Iterable[BrokerData]) -> Iterator[Sample]:
    for broker in brokers:
        masters = int(MASTER_ID in broker.broker_addrs)
        yield (broker.cluster, broker.broker_name, "master"), masters
        yield (broker.cluster, broker.broker_name, "slave"), len(broker.broker_addrs) - masters
