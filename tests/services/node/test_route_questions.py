"""A broker's questions to its name servers for the routes of topics, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from support.handlers.namesrv import MASTER, MemoryNamesrv, register_request, topics
from support.handlers.sending import FakeChannel
from trio.testing import MockClock, wait_all_tasks_blocked

from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.node.route_questions import (
    KEPT_MS,
    PATIENCE_S,
    TOPICS_MAX,
    RouteQuestions,
)
from trioha.wire.codes import RequestCode
from trioha.wire.route import TopicRouteData

ASK = RequestCode.GET_ROUTEINFO_BY_TOPIC


class Asker:
    """A broker with the name servers `ns0:9876`, `ns1:9876`, …; None refuses connections."""

    def __init__(self, *namesrvs: MemoryNamesrv | None) -> None:
        self._hosts = {f"ns{index}": namesrv for index, namesrv in enumerate(namesrvs)}
        addresses = ";".join(f"{host}:9876" for host in self._hosts)
        self.questions = RouteQuestions(addresses, Clock.virtual(), connect_to=self._connect)
        self.heard: list[TopicRouteData | None] = []

    async def _connect(self, host: str, port: int) -> Transport:
        namesrv = self._hosts[host]
        if namesrv is None:
            raise OSError("connection refused")
        return await namesrv.listener.connect(host, port)

    def ask(self, topic: str = "T") -> None:
        self.questions.ask(topic, self.heard.append)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for namesrv in filter(None, self._hosts.values()):
                await nursery.start(namesrv.serve)
            nursery.start_soon(self.questions.run)
            await wait_all_tasks_blocked()
            yield
            nursery.cancel_scope.cancel()


def namesrv_with(queues: int = 4) -> MemoryNamesrv:
    """A name server at which a master has registered topic T."""
    namesrv = MemoryNamesrv()
    register = namesrv.processor.handlers()[RequestCode.REGISTER_BROKER]
    request = register_request(MASTER, topics("T", queues=queues))
    assert register(FakeChannel(), request, Clock.virtual().instant()) is not None
    return namesrv


def asked(namesrv: MemoryNamesrv) -> int:
    return sum(request.code == ASK for request in namesrv.requests)


def queues_of(route: TopicRouteData | None) -> list[int]:
    assert route is not None
    return [data.read_queue_nums for data in route.queue_datas]


async def test_questions_of_one_topic_are_one_and_its_answer_is_kept(
    autojump_clock: MockClock,
) -> None:
    namesrv = namesrv_with()
    asker = Asker(namesrv)
    async with asker.running():
        asker.ask()
        asker.ask()
        assert asker.heard == []
        await wait_all_tasks_blocked()
        assert [queues_of(route) for route in asker.heard] == [[4], [4]]
        asker.ask()
        assert len(asker.heard) == 3, "told at once"
        assert asked(namesrv) == 1
        await trio.sleep(KEPT_MS / 1000 + 0.1)
        asker.ask()
        await wait_all_tasks_blocked()
        assert (len(asker.heard), asked(namesrv)) == (4, 2)


async def test_a_server_that_refuses_or_says_nothing_is_followed_by_the_next(
    autojump_clock: MockClock,
) -> None:
    mute = MemoryNamesrv()
    mute.mute = True
    asker = Asker(None, mute, MemoryNamesrv(), namesrv_with())
    async with asker.running():
        asker.ask()
        await trio.sleep(PATIENCE_S + 0.1)
        assert [queues_of(route) for route in asker.heard] == [[4]]


async def test_without_a_server_that_knows_the_topic_the_answer_is_none_and_not_kept(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    asker = Asker(namesrv)
    async with asker.running():
        for count in (1, 2):
            asker.ask()
            await wait_all_tasks_blocked()
            assert asker.heard == [None] * count
            assert asked(namesrv) == count


async def test_a_route_of_billions_of_queues_is_none(autojump_clock: MockClock) -> None:
    asker = Asker(namesrv_with(queues=2**31 - 1))
    async with asker.running():
        asker.ask()
        await wait_all_tasks_blocked()
        assert asker.heard == [None]


@pytest.mark.parametrize("namesrvs", [0, 1])
async def test_whoever_cannot_ask_is_told_so_at_once(
    autojump_clock: MockClock, namesrvs: int
) -> None:
    asker = Asker(*[namesrv_with() for _ in range(namesrvs)])
    asker.ask()  # before the task runs
    assert asker.heard == [None]
    async with asker.running():
        asker.ask()
        assert len(asker.heard) == 2 - namesrvs


async def test_no_more_topics_than_a_thousand_are_asked_for_at_a_time(
    autojump_clock: MockClock,
) -> None:
    mute = MemoryNamesrv()
    mute.mute = True
    asker = Asker(mute)
    async with asker.running():
        for number in range(TOPICS_MAX):
            asker.ask(f"T{number}")
        assert asker.heard == []
        asker.ask("one more")
        assert asker.heard == [None]
        await trio.sleep(PATIENCE_S + 0.1)
        assert asker.heard == [None] * (TOPICS_MAX + 1)
