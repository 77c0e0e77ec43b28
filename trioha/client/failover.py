"""Drives a failover on Trio: carries the engine's requests to the nodes and the answers back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trioha.client.cluster import Cluster
from trioha.client.driving import drive
from trioha.failover import audit
from trioha.failover.engine import FailoverEngine, Order, dry_run
from trioha.failover.outcome import Outcome, Step
from trioha.failover.plan import Plan
from trioha.whoami import operator_here as operator_here

TICKET_BYTES = 8


def new_order(
    cluster: Cluster,
    broker_name: str,
    *,
    to: int | None = None,
    force: bool = False,
    confirmed: Plan | None = None,
    operator: str = "",
) -> Order:
    """Return the order for a failover, with a new ticket."""
    return Order(
        broker_name=broker_name,
        namesrvs=cluster.namesrvs,
        ticket_id=os.urandom(TICKET_BYTES).hex(),
        operator=operator or operator_here(),
        to=to,
        force=force,
        confirmed=confirmed,
        patience_s=cluster.config.request_timeout_s,
    )


async def plan_failover(cluster: Cluster, order: Order) -> Plan:
    """Return what a failover would do now, or why it may not."""
    return await drive(dry_run(order), cluster)


async def run_failover(
    cluster: Cluster, order: Order, on_step: Callable[[Step], None] = lambda step: None
) -> Outcome:
    """Carry it out; `on_step` hears of each step when it is over.

    Cancellation: an attempt that is broken off ends by itself as its tickets expire.
    """
    engine = FailoverEngine(
        order,
        now_ms=cluster.clock.now_ms,
        wall_ms=cluster.clock.wall_ms,
        on_step=on_step,
    )
    return await drive(engine.run(), cluster)


async def audit_records(
    cluster: Cluster, broker_name: str
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Past failovers as the members remember them, oldest first; and who could not be asked."""
    patience_s = cluster.config.request_timeout_s
    return await drive(
        audit.audit_records(broker_name, cluster.namesrvs, patience_s=patience_s), cluster
    )
