"""The routes a client uses, asked for again every 30 s and whenever one has failed somebody.

A route that the name server no longer knows, or does not tell, is kept: with its brokers away a
consumer holds on to its queues and its progress, and a producer fails at the broker.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.client.cluster import Cluster, log, success
from trioha.client.errors import NoRoute
from trioha.client.route import TopicRoute
from trioha.errors import CommandError, RemoteProtocolError, Unreachable
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import AUTO_CREATE_TOPIC
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import TopicRouteData

_BORROWED_S = 1.0
"""Time that the default topic's route stands in for a topic that its first send creates."""


class RouteTable:
    """Topic → route."""

    def __init__(self, cluster: Cluster, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._cluster = cluster
        self._routes: dict[str, TopicRoute] = {}
        self._borrowed: dict[str, tuple[float, TopicRoute]] = {}
        self._refreshing: dict[str, trio.Event] = {}

    def known(self, topic: str) -> TopicRoute | None:
        """The route as last heard, without asking."""
        return self._routes.get(topic)

    def addresses(self) -> set[str]:
        """Return the address of every node of every route in use."""
        return {address for route in self._routes.values() for address in route.addresses()}

    def masters(self) -> set[str]:
        """Return every master of a route in use, and all that may create a topic just sent to."""
        borrowed = [route for _, route in self._borrowed.values()]
        return {
            address for route in (*self._routes.values(), *borrowed) for address in route.masters()
        }

    async def get(self, topic: str) -> TopicRoute:
        """The route, asked for if not known.

        Errors: NoRoute when the topic does not exist, Unreachable when no name server answers.
        """
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise NoRoute(f"topic {topic} has no route; create it, or send to it first")
        return route

    async def get_for_send(self, topic: str, queue_nums: int) -> TopicRoute:
        """The route, or for a new topic the default topic's, at most `queue_nums` queues of it.

        Errors: NoRoute, Unreachable.
        """
        route = self._routes.get(topic)
        if route is not None:
            return route
        expires_s, borrowed = self._borrowed.get(topic, (0.0, None))
        if borrowed is not None and trio.current_time() < expires_s:
            return borrowed
        route = await self.refresh(topic)
        if route is not None:
            return route
        data = await self._ask(AUTO_CREATE_TOPIC)
        if data is None:
            raise NoRoute(f"topic {topic} does not exist and no broker creates topics on send")
        route = TopicRoute.of(topic, data, queue_nums_max=queue_nums)
        self._borrowed[topic] = (trio.current_time() + _BORROWED_S, route)
        return route

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Ask now; those who ask at the same time share one question.

        Errors: Unreachable when no name server answers and the topic was never known.
        """
        refreshing = self._refreshing.get(topic)
        if refreshing is not None:
            await refreshing.wait()
            return self._routes.get(topic)
        done = self._refreshing[topic] = trio.Event()
        try:
            data = await self._ask(topic)
        except Unreachable as error:
            if topic not in self._routes and topic not in self._borrowed:
                raise
            log.warning("route of %s not refreshed: %s", topic, error)
            data = None
        finally:
            del self._refreshing[topic]
            done.set()
        if data is not None:
            route = TopicRoute.of(topic, data)
            self._borrowed.pop(topic, None)
            if route != self._routes.get(topic):
                self._routes[topic] = route
                self._on_change()
        return self._routes.get(topic)

    async def refresh_forever(self) -> None:
        """Keep every known route fresh."""
        while True:
            await trio.sleep(self._cluster.config.route_interval_s)
            for topic in [*self._routes, *self._borrowed]:
                await self.refresh(topic)

    async def _ask(self, topic: str) -> TopicRouteData | None:
        response = await self._cluster.ask_namesrv(
            RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        try:
            return TopicRouteData.decode(success(response).body_bytes())
        except (CommandError, RemoteProtocolError) as error:
            raise Unreachable(f"the name server gave no route of {topic}: {error}") from error
