"""Tells brokers that a client is alive, and takes it off their lists when it goes."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from trioha.client.cluster import Cluster, log, success
from trioha.errors import CommandError, Unreachable
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

_LAST_WORDS_S = 1.0


@attrs.define(eq=False)
class Heartbeats:
    """One client's heartbeats to the nodes that `addresses` names."""

    _cluster: Cluster
    _addresses: Callable[[], set[str]]

    async def send(self) -> None:
        """One round, to all nodes at once: a dead one delays nobody."""
        await self._tell_all(self._cluster.heartbeat)

    async def send_forever(self) -> None:
        while True:
            await trio.sleep(self._cluster.config.heartbeat_interval_s)
            await self.send()

    async def unregister(self, *, producer_group: str | None, consumer_group: str | None) -> None:
        """Last words, so that the group rebalances at once and not after 120 s.

        Cancellation: shielded, for a second at most.
        """
        with trio.move_on_after(_LAST_WORDS_S, shield=True):
            await self._tell_all(
                lambda: RemotingCommand(
                    RequestCode.UNREGISTER_CLIENT,
                    {
                        "clientID": self._cluster.client_id,
                        "producerGroup": producer_group,
                        "consumerGroup": consumer_group,
                    },
                )
            )

    async def _tell_all(self, command: Callable[[], RemotingCommand]) -> None:
        async with trio.open_nursery() as nursery:
            for address in self._addresses():
                nursery.start_soon(
                    self._tell, address, command(), name=f"client.heartbeat[{address}]"
                )

    async def _tell(self, address: str, command: RemotingCommand) -> None:
        try:
            success(await self._cluster.request(address, command))
        except (Unreachable, CommandError) as error:
            log.warning("%s to %s: %s", RequestCode(command.code).name, address, error)
