"""Asks one node about itself: its journal, its tasks, its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.errors import Unreachable
from trioha.watch.node_answers import JournalPiece as JournalPiece
from trioha.watch.node_answers import journal_request, read_journal, read_map
from trioha.watch.node_inside import read_settings, read_tasks
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

POLL_S = 10.0
"""Seconds that the node may park the request of a journal's follower."""


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
        command = journal_request(
            from_sequence=from_sequence, last=last, names=names, wait_s=wait_s
        )
        client = await self._cluster.connection(self.address)
        patience_s = wait_s + self._cluster.config.request_timeout_s
        with trio.move_on_after(patience_s):
            return read_journal(self.address, await client.request(command))
        raise Unreachable(f"{self.address} did not answer within {patience_s:g} s")

    async def tasks(self) -> Mapping[str, Any]:
        """The nursery tree with its task names; see `trioha.services.admin.task_tree`."""
        return read_tasks(self.address, await self._ask(RequestCode.TRIOHA_NODE_TASKS))

    async def settings(self) -> Sequence[Mapping[str, Any]]:
        """A row for every setting, with its origin; secrets are hidden."""
        return read_settings(self.address, await self._ask(RequestCode.TRIOHA_NODE_CONFIG))

    async def status(self) -> Mapping[str, Any]:
        """Return what a broker says of itself and its replication links."""
        return read_map(self.address, await self._ask(RequestCode.TRIOHA_NODE_STATUS))

    async def _ask(self, code: RequestCode) -> RemotingCommand:
        return await self._cluster.request(self.address, RemotingCommand(code))


@asynccontextmanager
async def open_node_admin(
    address: str, *, cluster_config: ClusterConfig | None = None
) -> AsyncIterator[NodeAdmin]:
    """Questions to the node at `address`."""
    async with open_cluster(address, cluster_config) as cluster:
        yield NodeAdmin(cluster, address)
