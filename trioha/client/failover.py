"""Drives a failover on Trio: carries the engine's requests to the nodes and the answers back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import trio

from trioha.client.cluster import Cluster
from trioha.errors import Unreachable
from trioha.failover import audit
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait
from trioha.failover.engine import FailoverEngine, Order, dry_run
from trioha.failover.outcome import Outcome, Step
from trioha.failover.plan import Plan
from trioha.whoami import operator_here as operator_here
from trioha.wire.remoting_command import RemotingCommand

T = TypeVar("T")

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
    """What to do, under a fresh ticket."""
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
    """What a failover would do now, or why it may not."""
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


async def drive(flow: Flow[T], cluster: Cluster) -> T:
    """Run a flow of the engine's to its end."""
    try:
        effect = next(flow)
        while True:
            if isinstance(effect, Wait):
                await trio.sleep(effect.seconds)
                replies: list[Reply] = []
            else:
                replies = await _ask_all(cluster, effect)
            effect = flow.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


async def _ask_all(cluster: Cluster, asks: tuple[Ask, ...]) -> list[Reply]:
    replies: list[Reply] = [Failed("not asked", may_have_happened=False)] * len(asks)

    async def ask(index: int) -> None:
        replies[index] = await _ask(cluster, asks[index])

    async with trio.open_nursery() as nursery:
        for index, request in enumerate(asks):
            nursery.start_soon(ask, index, name=f"failover.ask[{request.address}]")
    return replies


async def _ask(cluster: Cluster, request: Ask) -> Reply:
    try:
        client = await cluster.connection(request.address)
    except Unreachable as error:
        return Failed(str(error), may_have_happened=False)
    command = RemotingCommand(request.code, body=request.encoded_body())
    with trio.move_on_after(request.patience_s):
        try:
            response = await client.request(command)
        except Unreachable as error:
            return Failed(str(error))
        return Answer(response.code, response.remark or "", response.body_bytes())
    return Failed(f"{request.address} did not answer within {request.patience_s:g} s")


async def audit_records(
    cluster: Cluster, broker_name: str
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Past failovers as the members remember them, oldest first; and who could not be asked."""
    patience_s = cluster.config.request_timeout_s
    return await drive(
        audit.audit_records(broker_name, cluster.namesrvs, patience_s=patience_s), cluster
    )
