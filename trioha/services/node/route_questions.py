"""Asks a name server where a topic lives, for request 400 (TopicRouteInfoManager.java).

A broker knows its own queues alone, and a client asks one broker for its share of all of them. The
task opens a connection for each topic that is asked for and keeps the answer for a while; clients
ask every 20 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from trioha.errors import RemoteProtocolError, TriohaError
from trioha.security.node_signer import Sign, unsigned
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect, connect, parse_address
from trioha.services.node.namesrv_registration import namesrv_addresses
from trioha.services.remoting.client import open_remoting_client
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import TopicRouteData

OnRoute = Callable[[TopicRouteData | None], None]
KEPT_MS: Final = 5_000
PATIENCE_S: Final = 2.0
"""Time for the answer of one name server; clients wait for three seconds."""
TOPICS_MAX: Final = 1_000
"""Topics that are asked for at a time; others get the answer of this broker alone."""


class RouteQuestions:
    """Questions of one broker to its name servers."""

    def __init__(
        self,
        namesrv_addr: str,
        clock: Clock,
        *,
        connect_to: Connect = connect,
        sign: Sign = unsigned,
    ) -> None:
        self._addresses = namesrv_addresses(namesrv_addr)
        self._clock = clock
        self._connect_to = connect_to
        self._sign = sign
        self._kept: dict[str, tuple[int, TopicRouteData]] = {}
        self._waiting: dict[str, list[OnRoute]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Hold the questions that are asked, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def ask(self, topic: str, on_route: OnRoute) -> None:
        """Call back with the route of a topic, now or later; with None if no server tells it."""
        kept = self._kept.get(topic)
        if kept is not None and self._clock.now_ms() < kept[0]:
            on_route(kept[1])
            return
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(on_route)
        elif self._nursery is None or not self._addresses or len(self._waiting) >= TOPICS_MAX:
            on_route(None)
        else:
            self._waiting[topic] = [on_route]
            self._nursery.start_soon(self._ask, topic, name=f"route_questions[{topic:.127}]")

    async def _ask(self, topic: str) -> None:
        route = None
        try:
            for address in self._addresses:
                with trio.move_on_after(PATIENCE_S):
                    route = await self._ask_one(address, topic)
                if route is not None:
                    break
        finally:
            waiting = self._waiting.pop(topic)
        if route is not None:
            now_ms = self._clock.now_ms()
            self._kept = {name: kept for name, kept in self._kept.items() if now_ms < kept[0]}
            self._kept[topic] = now_ms + KEPT_MS, route
        for on_route in waiting:
            on_route(route)

    async def _ask_one(self, address: str, topic: str) -> TopicRouteData | None:
        host, port = parse_address(address)
        question = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        try:
            async with open_remoting_client(
                host, port, self._clock, connect_to=self._connect_to, sign=self._sign
            ) as client:
                response = await client.request(question)
            if response.code != ResponseCode.SUCCESS:
                return None
            return TopicRouteData.decode(response.body_bytes())
        except (TriohaError, RemoteProtocolError):
            return None
