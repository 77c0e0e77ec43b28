"""Drives a flow on Trio: carries its requests to the nodes and the answers back."""

from __future__ import annotations

from typing import TypeVar

import trio

from trioha.client.cluster import Cluster
from trioha.errors import Unreachable
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait, advance
from trioha.services.remoting.client import RemotingClient

T = TypeVar("T")


async def drive(flow: Flow[T], cluster: Cluster) -> T:
    """Run a flow to its end and return its result."""
    try:
        effect = advance(flow, None, [])
        while True:
            if isinstance(effect, Wait):
                await trio.sleep(effect.seconds)
                replies: list[Reply] = []
            else:
                replies = await _ask_all(cluster, effect)
            effect = advance(flow, effect, replies)
    except StopIteration as end:
        result: T = end.value
        return result


async def _ask_all(cluster: Cluster, asks: tuple[Ask, ...]) -> list[Reply]:
    replies: list[Reply] = [Failed("not asked", may_have_happened=False)] * len(asks)
    by_node: dict[str, list[int]] = {}
    for index, request in enumerate(asks):
        by_node.setdefault(request.address, []).append(index)

    async def ask_node(address: str, indexes: list[int]) -> None:
        # One attempt for all: each would wait for the attempt before it, and then make its own.
        try:
            client = await cluster.connection(address)
        except Unreachable as error:
            for index in indexes:
                replies[index] = Failed(str(error), may_have_happened=False)
            return
        for index in indexes:
            nursery.start_soon(ask, client, index, name=f"flow.ask[{address}]")

    async def ask(client: RemotingClient, index: int) -> None:
        replies[index] = await _ask(client, asks[index])

    async with trio.open_nursery() as nursery:
        for address, indexes in by_node.items():
            nursery.start_soon(ask_node, address, indexes, name=f"flow.node[{address}]")
    return replies


async def _ask(client: RemotingClient, request: Ask) -> Reply:
    with trio.move_on_after(request.patience_s):
        try:
            response = await client.request(request.command())
        except Unreachable as error:
            return Failed(str(error))
        return Answer.of(response)
    return Failed(f"{request.address} did not answer within {request.patience_s:g} s")
