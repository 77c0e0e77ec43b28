"""Drives a flow on Trio: carries its requests to the nodes and the answers back."""

from __future__ import annotations

from typing import TypeVar

import trio

from trioha.client.cluster import Cluster
from trioha.errors import Unreachable
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait

T = TypeVar("T")


async def drive(flow: Flow[T], cluster: Cluster) -> T:
    """Run a flow to its end and return its result."""
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
            nursery.start_soon(ask, index, name=f"flow.ask[{request.address}]")
    return replies


async def _ask(cluster: Cluster, request: Ask) -> Reply:
    try:
        client = await cluster.connection(request.address)
    except Unreachable as error:
        return Failed(str(error), may_have_happened=False)
    with trio.move_on_after(request.patience_s):
        try:
            response = await client.request(request.command())
        except Unreachable as error:
            return Failed(str(error))
        return Answer.of(response)
    return Failed(f"{request.address} did not answer within {request.patience_s:g} s")
