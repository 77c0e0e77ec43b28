"""Two brokers' tables over a replication link that is cut anywhere: what was acknowledged is there.

Real stores, tables, logs of changes and links; memory streams, and no sockets or threads.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from support.handlers.sending import FakeChannel, send_v2
from support.memory.links import MemoryListener
from support.stores.small import SEGMENT_BYTES, crash, dispatch_all, open_store, small_config

from trioha.broker.core import BrokerCore
from trioha.broker.metadata_waits import NO_SLAVE
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.ha.events import Term
from trioha.remoting.channel import Instant
from trioha.remoting.outboxes import Outboxes
from trioha.services.ha.client_link import HaClientLink, SlaveContext
from trioha.services.ha.client_link_tasks import follow_master
from trioha.services.ha.master import HaMaster, open_replicas
from trioha.services.loop.clock import Clock
from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Transport, take_each
from trioha.services.node.metadata_files import MetadataFiles
from trioha.store.inspect import iter_records
from trioha.testing.recorded_events import RecordedEvents
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.record import Record
from trioha.wire.remoting_command import Buffer, RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

SYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


class Node:
    """A broker's inside, on a disk that outlives it."""

    def __init__(self, root: Path, role: BrokerRole, **settings: object) -> None:
        self.root = root
        self.clock = Clock.virtual()
        self.events = RecordedEvents()
        self.config = attrs.evolve(
            BrokerConfig(),
            broker_role=role,
            broker_ip1="127.0.0.1",
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=SEGMENT_BYTES,
            message_delay_level="1s 5s",
            slave_timeout=3000,
            **settings,  # type: ignore[arg-type]
        )
        self.master: HaMaster | None = None
        self.start()

    def start(self) -> None:
        config, clock, events = self.config, self.clock, self.events
        self.store = open_store(small_config(self.root))
        self.replicas = open_replicas(config, events)
        self.core = BrokerCore(
            config,
            self.store,
            self.replicas,
            events,
            random.Random(1),
            clock.instant(),
            lambda _: {},
            write_metadata=lambda position, body: self.files.keep(position, body),
            on_metadata_body=self.tell_slaves,
        )
        self.store.tell_dispatches(self.core.on_dispatch)
        self.files = MetadataFiles(config, self.core, events, lambda _: None, {})
        self.files.load()
        self.core.schedule.refresh()
        self.outboxes = Outboxes()
        self.outboxes.before_answers = self.core.metadata.flush

    def kill(self) -> None:
        """Kill the node: only what it has written survives."""
        crash(self.store)
        self.master = None

    def tell_slaves(self, position: int, body: bytes) -> None:
        if self.master is not None:
            urgent = self.core.metadata_waits.has_slave_waiters
            self.master.send_metadata_nowait(position, body, urgent=urgent)

    def on_metadata(self, position: int, body: bytes) -> None:
        self.core.metadata.follow(body)

    def become(self, role: BrokerRole) -> None:
        if role is not SLAVE:
            dispatch_all(self.store)
            if self.store.dispatched_offset < self.store.max_phy_offset:
                self.store.truncate_log(self.store.dispatched_offset)
        self.core.become(role, 0)

    def ask(self, channel: FakeChannel, *requests: RemotingCommand) -> None:
        """Handle one read's worth of requests; answers come to the channel, now or later."""
        with self.outboxes.batch():
            for request in requests:
                instant = self.clock.instant()
                try:
                    response = self.core.handlers[request.code](channel, request, instant)
                except CommandError as error:
                    response = request.response(error.code, error.remark)
                if response is not None and not request.is_oneway:
                    channel.send_nowait(response)
        self.after_batch()

    def after_batch(self) -> None:
        if self.master is not None:
            waits = self.core.metadata_waits
            urgent = self.core.pipeline.has_slave_waiters or waits.has_slave_waiters
            self.master.on_log_grown(urgent=urgent)

    def deliver(self, instant: Instant) -> None:
        with self.outboxes.batch():
            self.core.deliveries.run_due(instant)
        self.after_batch()

    def state(self) -> dict[str, object]:
        core = self.core
        return {
            "topics": (core.topics.data_version, dict(core.topics.topics)),
            "groups": (core.groups.data_version, dict(core.groups.groups)),
            "offsets": {key: dict(value) for key, value in core.offsets.table.items() if value},
            "delay": core.schedule.offsets(),
        }


class InPieces:
    """A transport whose reads end anywhere."""

    def __init__(self, inner: Transport, rng: random.Random) -> None:
        self.peer = inner.peer
        self.waited_ms = 0
        self._inner = inner
        self._rng = rng
        self._data = b""

    async def receive_some(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._data:
            self._data = await self._inner.receive_some()
        size = self._rng.choice((1, 7, 40, 400, 1 << 20))
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        return self._inner.try_send(buffers)

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        return await self._inner.send_some(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        await self._inner.send_all(buffers)

    def finish(self) -> None:
        self._inner.finish()

    def close(self) -> None:
        self._inner.close()

    def peer_has_gone(self) -> bool:
        return self._inner.peer_has_gone()

    def abort(self) -> None:
        self._inner.abort()


@attrs.define(eq=False)
class Link:
    """A master that is followed; `cut` and `connect` come and go with the test."""

    master: Node
    slave: Node
    term: Term
    rng: random.Random
    nursery: trio.Nursery
    listener: MemoryListener = attrs.Factory(MemoryListener)
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    acked: trio.Event = attrs.Factory(trio.Event)

    async def connect(self) -> None:
        transport = InPieces(await self.listener.connect("master", 10912), self.rng)
        self.scope = trio.CancelScope()
        self.nursery.start_soon(self._follow, transport, self.scope)

    def cut(self) -> None:
        """Cut the link; bytes on their way are lost."""
        self.scope.cancel()

    async def level(self) -> None:
        """Wait until the slave has everything."""
        self.master.core.metadata.flush()
        with trio.fail_after(600):
            while (
                self.master.replicas.push2slave_max_metadata < self.master.core.metadata.position
                or self.slave.store.max_phy_offset < self.master.store.max_phy_offset
            ):
                self.acked = trio.Event()
                await self.acked.wait()

    async def _follow(self, transport: Transport, scope: trio.CancelScope) -> None:
        slave = self.slave
        context = SlaveContext(
            store=slave.store,
            config=slave.config,
            events=slave.events,
            clock=slave.clock,
            on_appended=lambda: dispatch_all(slave.store),
            on_metadata=slave.on_metadata,
        )
        link = HaClientLink(context, transport, term=self.term, home_id=1)
        with scope:
            await follow_master(link)
        transport.close()


@asynccontextmanager
async def linked(master: Node, slave: Node, epoch: int, rng: random.Random) -> AsyncIterator[Link]:
    async with trio.open_nursery() as nursery:
        link = Link(master, slave, Term(epoch, bytes([epoch]) * 8), rng, nursery)

        def on_report(now_ms: int) -> None:
            with master.outboxes.batch():
                master.core.on_acked(now_ms)
            link.acked.set()

        def on_slave_lost() -> None:
            with master.outboxes.batch():
                master.core.on_slave_lost()

        master.master = HaMaster(
            store=master.store,
            replicas=master.replicas,
            config=master.config,
            events=master.events,
            clock=master.clock,
            on_report=on_report,
            on_slave_lost=on_slave_lost,
            term=link.term,
            metadata_snapshot=master.core.metadata.snapshot,
        )
        nursery.start_soon(master.master.serve, link.listener)
        await link.connect()
        yield link
        nursery.cancel_scope.cancel()
    master.master = None


class Clients:
    """Clients that change things and remember what they were promised. Progress only grows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0
        self.asked: dict[int, tuple[str, str, int]] = {}
        """Kind, name and offset of each request, by opaque."""
        self.promised: dict[str, int] = {}
        """``group/queue`` -> offset."""
        self.sent: dict[str, int] = {}
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.condemned: set[str] = set()
        """Topics whose deletion was requested; they may be gone."""
        self.unsafe: set[str] = set()
        self.slave: Node | None = None
        """Node that holds each change at the moment at which the answer calls it safe."""

    def act(self, node: Node) -> None:
        channel = FakeChannel(on_send=self._take)
        node.ask(channel, *(self._request() for _ in range(self.rng.randint(1, 8))))

    def check(self, node: Node) -> None:
        """Assert that everything promised is there, and nothing that no client requested."""
        core = node.core
        for name, offset in self.promised.items():
            group, _, queue_id = name.partition("/")
            found = core.offsets.query(group, "T", int(queue_id))
            assert offset <= found <= self.sent[name], (name, offset, found, self.sent[name])
        topics = set(core.topics.topics)
        assert self.created - self.condemned <= topics
        assert not self.deleted & topics

    def _request(self) -> RemotingCommand:
        self.number += 1
        number, draw = self.number, self.rng.random()
        if draw < 0.15:
            name = f"Sent{number}"
            self.asked[number] = "send", name, 0
            request = send_v2(body=b"x" * self.rng.randrange(300), b=name)
            request.opaque = number
            return request
        if draw < 0.25:
            self.asked[number] = "create", f"New{number}", 0
            fields = {"topic": f"New{number}", "perm": "6"}
            fields |= {"readQueueNums": "1", "writeQueueNums": "1"}
            return _request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, number)
        if draw < 0.3 and (names := [name for name in self.created if name[0] == "N"]):
            name = self.rng.choice(sorted(names))
            self.condemned.add(name)
            self.asked[number] = "delete", name, 0
            return _request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}, number)
        group, queue_id = self.rng.choice("ab"), self.rng.randrange(3)
        progress = f"{group}/{queue_id}"
        self.sent[progress] = number
        self.asked[number] = "commit", progress, number
        fields = {"topic": "T", "consumerGroup": group, "queueId": str(queue_id)}
        request = _request(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(number)}, number
        )
        request.flag |= ONEWAY_FLAG if draw < 0.5 else 0
        return request

    def _take(self, answer: RemotingCommand) -> None:
        what, name, offset = self.asked[answer.opaque]
        assert answer.code == ResponseCode.SUCCESS or what == "send", answer.remark
        if answer.remark:
            self.unsafe.add(answer.remark)
            return
        assert self.slave is not None
        if what == "commit":
            group, _, queue_id = name.partition("/")
            assert self.slave.core.offsets.query(group, "T", int(queue_id)) >= offset
            self.promised[name] = max(offset, self.promised.get(name, 0))
        elif what in ("create", "send"):
            assert name in self.slave.core.topics.topics or name in self.condemned
            self.created.add(name)
        else:
            assert name not in self.slave.core.topics.topics
            self.deleted.add(name)


def _request(code: RequestCode, fields: dict[str, str], opaque: int) -> RemotingCommand:
    return RemotingCommand(code, {**fields}, opaque=opaque)


async def run_load(link: Link, clients: Clients, rounds: int) -> None:
    """Make changes at the master while the link comes and goes."""
    rng, connected = clients.rng, True
    clients.slave = link.slave
    for _ in range(rounds):
        clients.act(link.master)
        draw = rng.random()
        if draw < 0.5:
            await trio.lowlevel.checkpoint()
        elif draw < 0.7:
            await trio.sleep(rng.choice((0.001, 0.01, 1.0)))
        elif draw < 0.75:
            link.cut()
            connected = False
        elif draw < 0.85 and not connected:
            await trio.sleep(rng.choice((0, 0.5)))
            await link.connect()
            connected = True


@pytest.mark.parametrize("seed", range(15))
async def test_a_promoted_slave_has_whatever_was_acknowledged(tmp_path: Path, seed: int) -> None:
    """Faults D1 and D6."""
    rng = random.Random(seed)
    a, b = Node(tmp_path / "a", SYNC), Node(tmp_path / "b", SLAVE)
    clients = Clients(rng)
    a.core.topics.put(TopicConfig("T", 4, 4), 1000)
    async with linked(a, b, 1, rng) as link:
        await link.level()
        await run_load(link, clients, rng.randrange(200))
        link.cut()
        await trio.testing.wait_all_tasks_blocked()
    a.kill()
    if rng.random() < 0.5:
        before = b.state()
        b.kill()
        b.start()
        assert b.state() == before, "its own log of changes has what it acknowledged"
    b.become(SYNC)
    clients.check(b)

    # The old master comes back with what only it has, and takes over what the new one says.
    a.config = attrs.evolve(a.config, broker_role=SLAVE)
    a.start()
    a.store.truncate_log(min(a.store.max_phy_offset, b.store.max_phy_offset))
    async with linked(b, a, 2, rng) as link:
        await run_load(link, clients, rng.randrange(50))
        if not link.slave.core.metadata.position:
            await link.connect()
        link.cut()
        await trio.testing.wait_all_tasks_blocked()
        await link.connect()
        await link.level()
        assert a.state() == b.state()
    a.become(SYNC)
    clients.check(a)
    a.kill()
    b.kill()


async def test_the_rounds_above_meet_what_they_are_for(tmp_path: Path) -> None:
    """Safe answers and such that say they are not; topics that came and went."""
    rng = random.Random(99)
    a, b = Node(tmp_path / "a", SYNC), Node(tmp_path / "b", SLAVE)
    clients = Clients(rng)
    a.core.topics.put(TopicConfig("T", 4, 4), 1000)
    async with linked(a, b, 1, rng) as link:
        await link.level()
        await run_load(link, clients, 400)
    assert len(clients.promised) == 6
    assert len(clients.created) > 20
    assert len(clients.deleted) > 5
    assert NO_SLAVE in clients.unsafe
    a.kill()
    b.kill()


def bodies_in(node: Node, topic: str) -> list[bytes]:
    dispatch_all(node.store)
    found = []
    for item in iter_records(node.root / "commitlog", end=node.store.max_phy_offset):
        if isinstance(item, Record) and item.topic == topic:
            found.append(bytes(item.body))
    return found


def delay(node: Node, count: int) -> list[bytes]:
    """Have messages delivered to topic T one second from now."""
    bodies = [b"%d" % number for number in range(count)]
    properties = "DELAY\x011\x02WAIT\x01false"
    for body in bodies:
        node.ask(FakeChannel(), send_v2(body=body, properties=properties))
    return bodies


@pytest.mark.parametrize("cut_after", [0, 1, 2, 3])
async def test_delayed_messages_are_delivered_once_by_either_master(
    tmp_path: Path, cut_after: int
) -> None:
    """Fault D2: what one master has delivered the next one does not deliver again.

    Only messages of a turn whose last words did not reach the slave may be there twice.
    """
    rng = random.Random(cut_after)
    a, b = Node(tmp_path / "a", SYNC), Node(tmp_path / "b", SLAVE)
    a.core.topics.put(TopicConfig("T", 4, 4), 1000)
    async with linked(a, b, 1, rng) as link:
        await link.level()
        bodies = delay(a, 1000)
        now = a.clock.instant()
        due = Instant(now.now_ms + 1000, now.wall_ms + 1000)
        for _ in range(cut_after):
            a.deliver(due)
        await link.level()
        a.deliver(due)  # the next turn is on its way
        for _ in range(rng.randrange(30)):
            await trio.lowlevel.checkpoint()
        link.cut()
        await trio.testing.wait_all_tasks_blocked()
    a.kill()
    b.become(SYNC)
    for _ in range(10):
        b.deliver(due)
    delivered = bodies_in(b, "T")
    assert set(delivered) == set(bodies), "none is lost"
    twice = len(delivered) - len(bodies)
    assert 0 <= twice <= 256, "one turn at most"
    assert delivered[: 256 * cut_after] == bodies[: 256 * cut_after]
    assert len(set(delivered[256 * cut_after :]) & set(bodies[: 256 * cut_after])) == 0
    b.kill()


async def test_a_switch_that_lost_nothing_delivers_nothing_twice(tmp_path: Path) -> None:
    """Fault D2."""
    rng = random.Random(5)
    a, b = Node(tmp_path / "a", SYNC), Node(tmp_path / "b", SLAVE)
    a.core.topics.put(TopicConfig("T", 4, 4), 1000)
    async with linked(a, b, 1, rng) as link:
        await link.level()
        bodies = delay(a, 1000)
        now = a.clock.instant()
        due = Instant(now.now_ms + 1000, now.wall_ms + 1000)
        a.deliver(due)
        a.deliver(due)
        await link.level()
        link.cut()
        await trio.testing.wait_all_tasks_blocked()
    a.kill()
    b.kill()
    b.start()
    b.become(SYNC)
    for _ in range(4):
        b.deliver(due)
    assert bodies_in(b, "T") == bodies
    b.kill()
