"""Drives the one failover engine on asyncio: its requests to the nodes, their answers back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from trioha.errors import TriohaError
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait, advance
from trioha.failover.engine import FailoverEngine, Order
from trioha.failover.outcome import Outcome, Step
from trioha.failover.plan import Plan
from trioha.whoami import operator_here
from trioha.wire.remoting_command import RemotingCommand
from trioha_console.link import NotConnected

T = TypeVar("T")

TICKET_BYTES = 8


class Asking(Protocol):
    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand: ...


async def run_failover(
    source: Asking,
    namesrvs: tuple[str, ...],
    plan: Plan,
    *,
    force: bool,
    on_step: Callable[[Step], None],
) -> Outcome:
    """Carry out the plan that was agreed to.

    Cancellation: an attempt that is broken off ends by itself as its tickets expire.
    """
    order = Order(
        broker_name=plan.broker_name,
        namesrvs=namesrvs,
        ticket_id=os.urandom(TICKET_BYTES).hex(),
        operator=operator_here(),
        to=None if plan.target is None else plan.target.home_id,
        force=force,
        confirmed=plan,
    )
    engine = FailoverEngine(
        order,
        now_ms=lambda: time.monotonic_ns() // 1_000_000,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        on_step=on_step,
    )
    return await drive(engine.run(), source)


async def drive(flow: Flow[T], source: Asking) -> T:
    """Run a flow of the engine's to its end."""
    try:
        effect = advance(flow, None, [])
        while True:
            if isinstance(effect, Wait):
                await asyncio.sleep(effect.seconds)
                replies: list[Reply] = []
            else:
                replies = await asyncio.gather(*(_ask(source, one) for one in effect))
            effect = advance(flow, effect, replies)
    except StopIteration as end:
        result: T = end.value
        return result


async def _ask(source: Asking, request: Ask) -> Reply:
    try:
        response = await source.ask(request.address, request.command(), request.patience_s)
    except NotConnected as error:
        return Failed(str(error), may_have_happened=False)
    except TriohaError as error:
        return Failed(str(error))
    return Answer.of(response)
