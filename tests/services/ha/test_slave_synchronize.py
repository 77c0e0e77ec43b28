"""A slave's copies of its master's tables: order, pace, and failures that stop nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing
from support.memory.links import MemoryListener

from trioha.broker.offsets import OffsetCommit
from trioha.config import BrokerConfig
from trioha.errors import RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.services.ha.master_address import MasterAddress
from trioha.services.ha.slave_synchronize import SlaveSynchronizer
from trioha.services.loop.clock import Clock
from trioha.services.remoting.link import RemotingLink
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

TOPICS = RequestCode.GET_ALL_TOPIC_CONFIG
OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET
DELAYS = RequestCode.GET_ALL_DELAY_OFFSET
GROUPS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
ALL = ["topics", "offsets", "delays", "groups"]

Answer = Callable[[RemotingCommand], RemotingCommand | None]


class Tables:
    """Takes bodies; refuses what says so."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, str, bytes]] = []
        self.commits: list[OffsetCommit] = []

    def _take(self, name: str, body: bytes) -> None:
        if body == b"damaged":
            raise RemoteProtocolError("no JSON")
        self.taken.append((round(trio.current_time(), 1), name, body))

    def apply_topics(self, body: bytes) -> None:
        self._take("topics", body)

    def apply_offsets(self, body: bytes) -> None:
        self._take("offsets", body)

    def apply_delay_offsets(self, body: bytes) -> None:
        self._take("delays", body)

    def apply_groups(self, body: bytes) -> None:
        self._take("groups", body)

    def commits_to_tell(self) -> list[OffsetCommit]:
        return list(self.commits)

    def told(self, commit: OffsetCommit) -> None:
        self.commits.remove(commit)

    def names(self) -> list[str]:
        return [name for _, name, _ in self.taken]


@attrs.define(eq=False)
class Slave:
    """A slave under test and the master it asks."""

    listener: MemoryListener
    tables: Tables
    events: RecordedEvents
    address: MasterAddress
    answers: dict[int, Answer]
    links: list[RemotingLink]
    synchronizer: SlaveSynchronizer | None = None
    streams: bool = False


@asynccontextmanager
async def synchronizing(address: str = "master:10911") -> AsyncIterator[Slave]:
    listener, tables, events = MemoryListener(), Tables(), RecordedEvents()
    answers: dict[int, Answer] = {
        code: lambda request: request.response(ResponseCode.SUCCESS, body=b"%d" % request.code)
        for code in (TOPICS, OFFSETS, DELAYS, GROUPS)
    }
    slave = Slave(listener, tables, events, MasterAddress(address), answers, [])

    def handler(code: int) -> Handler:
        def handle(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            return answers[code](request)

        return handle

    async def serve_master() -> None:
        async with trio.open_nursery() as nursery:
            while True:
                transport = await listener.accept()
                table = RequestTable({code: handler(code) for code in answers}, RecordedEvents())
                link = RemotingLink(transport, Clock.virtual(), handle=table.handle)
                slave.links.append(link)
                nursery.start_soon(link.serve)

    slave.synchronizer = SlaveSynchronizer(
        tables,
        BrokerConfig().slave_sync_interval,
        events,
        Clock.virtual(),
        streams=lambda: slave.streams,
        connect_to=listener.connect,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_master)
        nursery.start_soon(slave.synchronizer.run, slave.address)
        yield slave
        nursery.cancel_scope.cancel()


async def test_pulls_all_tables_at_once_then_every_ten_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """SlaveSynchronize.syncAll: topics, offsets, delay offsets, groups."""
    async with synchronizing() as slave:
        await trio.sleep(25)
        assert slave.tables.names() == ALL * 3
        assert [at_s for at_s, _, _ in slave.tables.taken[::4]] == [0, 10, 20]
        assert [body for _, _, body in slave.tables.taken[:4]] == [b"21", b"43", b"45", b"201"]
        assert len(slave.listener.connects) == 1
        told = [str(event["table"]) for event in slave.events.of("slave_synchronized")]
        assert told == ["topics", "consumer_offsets", "delay_offsets", "groups"]


async def test_a_table_that_fails_stops_no_other_and_is_told_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:
        slave.answers[TOPICS] = lambda request: request.response(1, "busy")
        slave.answers[DELAYS] = lambda request: request.response(0, body=b"damaged")
        await trio.sleep(15)
        assert slave.tables.names() == ["offsets", "groups"] * 2
        failures = slave.events.of("slave_synchronize_failed")
        assert failures == [
            {"table": "topics", "reason": "answer 1: busy"},
            {"table": "delay_offsets", "reason": "no JSON"},
        ]
        slave.answers[TOPICS] = lambda request: request.response(0, body=b"new")
        await trio.sleep(10)
        assert slave.events.of("slave_synchronized")[-1] == {"table": "topics"}


async def test_a_master_that_does_not_answer_costs_three_seconds_each(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:
        slave.answers[TOPICS] = slave.answers[DELAYS] = lambda request: None
        await trio.sleep(9)
        assert [(at_s, name) for at_s, name, _ in slave.tables.taken] == [
            (3.0, "offsets"),
            (6.0, "groups"),
        ]
        reasons = [e["reason"] for e in slave.events.of("slave_synchronize_failed")]
        assert reasons == ["no answer within 3 s"] * 2


async def test_a_closed_connection_is_opened_again_and_pulls_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:
        await trio.sleep(2)
        slave.links[0].close_nowait("the master stops")
        await trio.sleep(10.5)
        assert len(slave.listener.connects) == 2
        assert slave.tables.names() == ALL * 2


async def test_a_master_that_is_away_is_told_once(autojump_clock: trio.testing.MockClock) -> None:
    async with synchronizing(address="") as slave:
        slave.listener.refusing = True
        slave.address.set("master:10911")
        await trio.sleep(35)
        assert len(slave.listener.connects) == 4
        (failure,) = slave.events.of("slave_synchronize_failed")
        assert "nobody listens" in str(failure["reason"])
        slave.listener.refusing = False
        await trio.sleep(10)
        assert slave.tables.names() == ALL


async def test_another_master_is_asked_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with synchronizing(address="") as slave:
        await trio.sleep(60)
        assert slave.tables.taken == []
        slave.address.set("first:1")
        await trio.sleep(1)
        slave.address.set("second:2")
        await trio.sleep(1)
        assert slave.tables.names() == ALL * 2
        assert len(slave.listener.connects) == 2


async def test_commits_made_here_while_the_master_was_away_are_told_to_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Fault D1: the returning master must not put consumers back to where it left them."""
    async with synchronizing() as slave:
        asked: list[RemotingCommand] = []

        def take(request: RemotingCommand) -> RemotingCommand:
            asked.append(request)
            return request.response(ResponseCode.SUCCESS)

        slave.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = take
        slave.tables.commits.append(OffsetCommit("G", "T", 3, 77))
        await trio.sleep(15)
        assert slave.tables.commits == []
        assert [request.ext_int("commitOffset") for request in asked] == [77]
        assert asked[0].ext_bool("onlyForward")


async def test_a_record_of_an_unknown_topic_makes_it_hurry_but_not_spin(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:
        await trio.sleep(3)
        assert slave.synchronizer is not None
        asked_before = len(slave.tables.taken)
        for _ in range(1000):
            slave.synchronizer.hurry_nowait()
            await trio.sleep(0.001)
        rounds = (len(slave.tables.taken) - asked_before) // len(ALL)
        assert 4 <= rounds <= 6


async def test_nothing_is_asked_while_the_masters_changes_come_by_themselves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:
        slave.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: request.response()
        await trio.sleep(5)
        assert slave.tables.names() == ALL
        slave.streams = True
        slave.tables.commits.append(OffsetCommit("G", "T", 3, 77))
        await trio.sleep(100)
        assert slave.tables.names() == ALL
        assert slave.tables.commits == [], "what was committed here is told all the same"
        slave.streams = False
        await trio.sleep(11)
        assert slave.tables.names() == ALL * 2


async def test_an_answer_that_a_stream_has_overtaken_is_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with synchronizing() as slave:

        def overtaken(request: RemotingCommand) -> RemotingCommand:
            slave.streams = True
            return request.response(ResponseCode.SUCCESS, body=b"old")

        slave.answers[OFFSETS] = overtaken
        await trio.sleep(5)
        assert slave.tables.names() == ["topics"]
