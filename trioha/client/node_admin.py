"""Asks one node about itself: its journal, its tasks, its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgpack
import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster, success
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.journal_file import Event
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

POLL_S = 10.0
"""How long a follower's question may lie at the node."""


@attrs.frozen
class JournalPiece:
    """Events in order."""

    events: tuple[Event, ...]
    next_sequence: int
    """Where to ask on."""
    end_sequence: int
    """The number that the node's next event will have."""


class NodeAdmin:
    """Questions to one trioha node, broker or name server.

    Errors: every method raises Unreachable, CommandError with the node's code (3 from a node that
    is not trioha), or RemoteProtocolError for an answer that cannot be read.
    """

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.address = address
        self._cluster = cluster

    async def journal(
        self,
        *,
        from_sequence: int | None = None,
        last: int = 0,
        names: Collection[str] = (),
        wait_s: float = 0.0,
    ) -> JournalPiece:
        """Events from a number on, or the last ones; without any, awaits the next for `wait_s`."""
        fields: dict[str, ExtValue] = {"waitMs": int(wait_s * 1000), "names": ",".join(names)}
        fields |= {"last": last} if from_sequence is None else {"from": from_sequence}
        command = RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM, fields)
        client = await self._cluster.connection(self.address)
        patience_s = wait_s + self._cluster.config.request_timeout_s
        with trio.move_on_after(patience_s):
            body = self._map(success(await client.request(command)))
            try:
                events = tuple(
                    Event(int(sequence), int(wall_ms), str(name), dict(told))
                    for sequence, wall_ms, name, told in body["events"]
                )
                return JournalPiece(events, int(body["next"]), int(body["end"]))
            except (KeyError, TypeError, ValueError) as error:
                raise RemoteProtocolError(f"{self.address}: no journal: {error!r}") from error
        raise Unreachable(f"{self.address} did not answer within {patience_s:g} s")

    async def tasks(self) -> Mapping[str, Any]:
        """The nursery tree with its task names; see `trioha.services.task_tree`."""
        return await self._ask(RequestCode.TRIOHA_NODE_TASKS)

    async def config(self) -> Mapping[str, Any]:
        """Every setting with its origin, secrets hidden."""
        return await self._ask(RequestCode.TRIOHA_NODE_CONFIG)

    async def status(self) -> Mapping[str, Any]:
        """What a broker says of itself and its replication links."""
        return await self._ask(RequestCode.TRIOHA_NODE_STATUS)

    async def _ask(self, code: RequestCode) -> Mapping[str, Any]:
        return self._map(success(await self._cluster.request(self.address, RemotingCommand(code))))

    def _map(self, response: RemotingCommand) -> Mapping[str, Any]:
        try:
            body = msgpack.unpackb(response.body_bytes(), strict_map_key=False)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise RemoteProtocolError(f"{self.address}: undecodable answer: {error}") from error
        if not isinstance(body, dict):
            raise RemoteProtocolError(f"{self.address}: the answer is not a map")
        return body


@asynccontextmanager
async def open_node_admin(
    address: str, *, cluster_config: ClusterConfig | None = None
) -> AsyncIterator[NodeAdmin]:
    """Questions to the node at `address`."""
    async with open_cluster(address, cluster_config) as cluster:
        yield NodeAdmin(cluster, address)
