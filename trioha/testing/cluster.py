"""A cluster under test: its brokers, clients for it, hands and eyes.

`MemoryCluster` runs the brokers in this process, `ProcessCluster` as processes of their own. A test
that uses what both have runs on either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar

import attrs
import trio

from trioha.client import (
    Admin,
    ClusterConfig,
    ConsumeFrom,
    Producer,
    ProducerConfig,
    PushConsumer,
    PushConsumerConfig,
    ReceivedMessage,
    SendResult,
    TransactionalProducer,
    open_admin,
    open_producer,
    open_push_consumer,
    open_transactional_producer,
)
from trioha.client.cluster import Cluster
from trioha.client.delivery import Handler
from trioha.client.failover import new_order, run_failover
from trioha.client.raft import ask_leader
from trioha.client.transactions import Check
from trioha.errors import CommandError, RemoteProtocolError, TriohaError, Unreachable
from trioha.failover.outcome import Result
from trioha.journal import EventLevel
from trioha.services.admin.task_tree import tree_lines
from trioha.testing.cluster_broker import ClusterBroker, HandFailed
from trioha.testing.load import Load, serve_load
from trioha.testing.reading import handed_back, lags, read_topic
from trioha.testing.stores import stores_differ
from trioha.testing.story import MessageLost, loss_report, status_lines
from trioha.testing.timeline import EventStream, NotSeen, Timeline, TimelineEvent
from trioha.watch.raft_change import ChangePlan, Do

T = TypeVar("T")

PATIENCE_S = 60.0
_FAILURES = (Unreachable, CommandError, RemoteProtocolError, TriohaError)


@attrs.frozen
class BrokerView:
    """One broker and what it says of itself."""

    broker: ClusterBroker
    status: Mapping[str, Any]


class TriohaCluster(ABC):
    """Brokers, a name server, and the test's view of them."""

    namesrv: str
    """Address for any client: ``host:port``."""

    def __init__(self, layout: str, seed: int, brokers: Iterable[ClusterBroker]) -> None:
        self.layout = layout
        self.seed = seed
        self.brokers = tuple(brokers)
        self.timeline = Timeline()
        self.rng = Random(seed)
        self.operator: Cluster
        """The connections of `fail_over` and `transfer_leadership`."""
        self.observer: Cluster
        """The connections of the eyes; no cut reaches them."""
        self._serials = count(1)
        self._topics_of: dict[str, set[str]] = {}

    # Clients.

    @abstractmethod
    def client_config(self) -> ClusterConfig:
        """Return a configuration for one client of `trioha.client`."""

    def producer(
        self, group: str = "test-producer", config: ProducerConfig | None = None
    ) -> AbstractAsyncContextManager[Producer]:
        """Open a producer."""
        return open_producer(
            self.namesrv, group=group, config=config, cluster_config=self.client_config()
        )

    def transactional_producer(
        self,
        check: Check,
        group: str = "test-producer",
        *,
        topics: Collection[str] = (),
        config: ProducerConfig | None = None,
    ) -> AbstractAsyncContextManager[TransactionalProducer]:
        """Open a producer of transactional messages; it registers with the brokers of `topics`."""
        return open_transactional_producer(
            self.namesrv,
            check,
            group=group,
            topics=topics,
            config=config,
            cluster_config=self.client_config(),
        )

    def consumer(
        self,
        topics: str | Mapping[str, str],
        handler: Handler | None = None,
        *,
        group: str = "test-consumer",
        config: PushConsumerConfig | None = None,
    ) -> AbstractAsyncContextManager[PushConsumer]:
        """Open a member of a consumer group, which begins with the first message.

        `topics` is one topic, or maps topics to tags (``*`` for all).
        """
        subscriptions = {topics: "*"} if isinstance(topics, str) else dict(topics)
        self._topics_of.setdefault(group, set()).update(subscriptions)
        return open_push_consumer(
            self.namesrv,
            group,
            subscriptions,
            handler,
            config=config or PushConsumerConfig(consume_from=ConsumeFrom.FIRST),
            cluster_config=self.client_config(),
        )

    def admin(self) -> AbstractAsyncContextManager[Admin]:
        """Open a client for administration."""
        return open_admin(self.namesrv, cluster_config=self.client_config())

    @asynccontextmanager
    async def load(
        self, topic: str, *, tasks: int = 4, pause_s: float = 0.005
    ) -> AsyncIterator[Load]:
        """Send to `topic` while the block runs; `Load.sent` has what was stored."""
        async with (
            self.producer(group=f"load-{topic}") as producer,
            serve_load(producer, topic, tasks, pause_s, self.story_soon) as load,
        ):
            yield load

    async def consume(
        self, topic: str, group: str = "test-consumer", *, within_s: float = PATIENCE_S
    ) -> list[ReceivedMessage]:
        """Consume all messages of `topic` as a member of `group` and return them."""
        received: list[ReceivedMessage] = []

        async def keep(message: ReceivedMessage) -> None:
            received.append(message)

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, commit_interval_s=0.2)
        async with self.consumer(topic, keep, group=group, config=config):
            await self.wait_level(group, topic, within_s=within_s)
        return received

    # Hands.

    def broker(self, name: str = "broker-a", number: int = 0) -> ClusterBroker:
        """Return one broker, by its name and its id (`k` of member ``n<k>`` of a group).

        Errors: TriohaError that lists the brokers.
        """
        for broker in self.brokers:
            if (broker.machine.name, broker.machine.number) == (name, number):
                return broker
        known = ", ".join(f"({one.machine.name}, {one.machine.number})" for one in self.brokers)
        raise TriohaError(f"no broker ({name}, {number}) is in this cluster; it has {known}")

    def members(self, name: str = "broker-a") -> list[ClusterBroker]:
        """Return the brokers of one set or group."""
        return [broker for broker in self.brokers if broker.machine.name == name]

    @abstractmethod
    async def stop_namesrv(self) -> None:
        """Kill the name server."""

    @abstractmethod
    async def start_namesrv(self) -> None:
        """Start the name server again; it has forgotten every route."""

    def cut(self, a: object, b: object = None, *, one_way: bool = False) -> None:
        """Let nothing pass between `a` and `b`, or all others; `one_way`: nothing from `a`.

        Each is a broker, its label, ``namesrv``, ``clients``, or ``operator``, who fails over.
        Connections stay open.
        """
        raise HandFailed("cut needs a cluster in this process: open it without processes=True")

    def heal(self, a: object = None, b: object = None) -> None:
        """Undo cuts and slowness: between two, of one, or all of them."""
        raise HandFailed("heal needs a cluster in this process: open it without processes=True")

    def slow(self, a: object, b: object, latency_s: float) -> None:
        """Delay what passes between `a` and `b`, both ways."""
        raise HandFailed("slow needs a cluster in this process: open it without processes=True")

    async def fail_over(
        self, name: str = "broker-a", *, to: int | None = None, force: bool = False
    ) -> ClusterBroker:
        """Make another member master, as `trioha failover` does, and return the new master.

        A DLEDGER group elects its leader: a leader that is up hands over, else this waits for the
        election. Errors: HandFailed with the reason and the story.
        """
        self.note("fail_over", broker=name, to=to, force=force)
        if self._is_raft(name):
            if any(place.status["standing"] == "MASTER" for place in await self.places(name)):
                return await self.transfer_leadership(name, to=to)
            return await self.master_of(name)
        order = attrs.evolve(
            new_order(self.operator, name, to=to, force=force),
            ticket_id=self.rng.randbytes(8).hex(),
            operator="test",
        )
        outcome = await run_failover(self.operator, order)
        if outcome.result is not Result.DONE:
            raise HandFailed(
                f"failover of {name}: {outcome.result.value}: {outcome.message}\n"
                + await self.story()
            )
        return await self.master_of(name)

    async def transfer_leadership(
        self, name: str = "broker-a", *, to: int | None = None
    ) -> ClusterBroker:
        """Let the leader of a DLEDGER group hand over, and return the new leader."""
        leader = await self.master_of(name)
        if leader.machine.number == to:
            return leader
        others = [one for one in self.members(name) if one.is_up and one is not leader]
        wanted = [one for one in others if to in (None, one.machine.number)]
        if not wanted:
            raise HandFailed(f"no other member of {name} is up to lead it")
        target = wanted[0]
        plan = ChangePlan(
            broker_name=name,
            do=Do.TRANSFER,
            member=f"n{target.machine.number}",
            address="",
            leader=None,
            leader_address=leader.address,
            would="",
            costs="",
            refusals=(),
        )
        try:
            await ask_leader(self.operator, plan)
        except TriohaError as error:
            raise HandFailed(f"transfer of {name}: {error}\n{await self.story()}") from error
        return await self.master_of(name)

    # Eyes.

    def events(self) -> EventStream:
        """Return the journals of all nodes as one async iterator, from the first event on."""
        return EventStream(self.timeline)

    async def places(self, name: str | None = None) -> list[BrokerView]:
        """Return the brokers that answer, with their status."""
        found: list[BrokerView] = []
        for broker in self.brokers if name is None else self.members(name):
            if broker.is_up and (status := await self._status(broker)) is not None:
                found.append(BrokerView(broker, status))
        return found

    async def master_of(
        self, name: str = "broker-a", *, within_s: float = PATIENCE_S
    ) -> ClusterBroker:
        """Wait until one member is master, in the newest term, and return it."""

        async def newest() -> ClusterBroker | None:
            masters = [one for one in await self.places(name) if one.status["standing"] == "MASTER"]
            masters.sort(key=lambda one: int(one.status["epoch"]))
            return masters[-1].broker if masters else None

        return await self._wait_for(newest, f"no member of {name} became master", within_s)

    async def wait_in_sync(self, name: str | None = None, *, within_s: float = PATIENCE_S) -> None:
        """Wait until every member that is up has all that its master acknowledged."""
        names = {broker.machine.name for broker in self.brokers} if name is None else {name}

        async def in_sync() -> bool:
            places = await self.places()
            up_count = sum(broker.is_up for broker in self.brokers)
            return len(places) == up_count and all(self._is_in_sync(one, places) for one in names)

        await self._wait_for(in_sync, f"{' '.join(sorted(names))} did not get in sync", within_s)

    async def wait_level(
        self, group: str, topic: str | None = None, *, within_s: float = PATIENCE_S
    ) -> None:
        """Wait until a consumer group has consumed all of `topic`, redeliveries included.

        Without `topic`: of the topics that `consumer` has subscribed it to.
        """
        topics = {topic} if topic is not None else self._topics_of.get(group, set())
        if not topics:
            raise TriohaError(f"name the topic: group {group} was not opened by this cluster")

        async def level() -> bool:
            behind.clear()
            for one in sorted(topics):
                behind.update(await lags(admin, group, one))
            return not behind

        behind: dict[str, int] = {}
        async with self.admin() as admin:
            await self._wait_for(level, f"group {group} did not consume all", within_s, behind)

    async def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what consumers can read of `topic`, queue by queue."""
        return await read_topic(self.namesrv, topic, self.client_config())

    async def assert_nothing_lost(
        self,
        sent: Iterable[SendResult],
        *,
        handled: Iterable[ReceivedMessage | str] | None = None,
    ) -> None:
        """Check that every acknowledged message can be read, and that the application handled it.

        `sent` has what producers returned; `handled` the messages, or ids, that were handled.
        Errors: MessageLost, which says what is missing where, and what happened before.
        """
        wanted = list(sent)
        stored: set[str] = set()
        for topic in sorted({one.queue.topic for one in wanted}):
            stored |= {message.msg_id for message in await self.messages(topic)}
        done = stored
        if handled is not None:
            done = {one if isinstance(one, str) else one.msg_id for one in handled}
        lost = [one for one in wanted if not set(one.msg_id.split(",")) <= stored & done]
        if lost:
            again = await handed_back(self.namesrv, self.client_config())
            roots = {broker.label: broker.root for broker in self.brokers}
            report = loss_report(wanted, lost, stored, roots, again)
            raise MessageLost(f"{report}\n{await self.story()}")

    async def assert_stores_equal(
        self, name: str = "broker-a", *, within_s: float = PATIENCE_S
    ) -> None:
        """Wait until the members of a set are in sync, and compare their logs byte by byte."""
        await self.wait_in_sync(name, within_s=within_s)
        problems = stores_differ({one.label: one.root for one in self.members(name) if one.is_up})
        if problems:
            raise HandFailed("\n".join([*problems, await self.story()]))

    async def story(self) -> str:
        """Tell the state of each broker, of both ends of its links, and the last events."""
        places = {one.broker.label: one.status for one in await self.places()}
        lines = [f"Cluster {self.layout}, seed {self.seed}:"]
        for broker in self.brokers:
            lines += status_lines(broker.label, broker.is_up, places.get(broker.label))
        return "\n".join([*lines, "Events:", *self.timeline.story()])

    async def report(self) -> str:
        """Tell the story with all events, samples too, and the tasks of the nodes."""
        lines = [await self.story(), "Journals:"]
        lines += self.timeline.story(last=1000, least=EventLevel.DEBUG)
        for label, tree in (await self.task_trees()).items():
            lines += [f"Tasks of {label}:", *tree_lines(tree["root"], indent="  ")]
        return "\n".join(lines)

    @abstractmethod
    async def task_trees(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the tree of tasks of each process."""

    def story_soon(self) -> str:
        """Tell the last events; for places that cannot wait."""
        return "\n".join(["Events:", *self.timeline.story()])

    def note(self, name: str, **fields: object) -> None:
        """Add what the test did to the events."""
        wall_ms = self.observer.clock.wall_ms()
        self.timeline.add(TimelineEvent(wall_ms, "test", name, fields))

    # Parts.

    async def _status(self, broker: ClusterBroker) -> Mapping[str, Any] | None:
        try:
            return await Admin(self.observer).node_status(broker.address)
        except _FAILURES:
            return None

    async def _wait_for(
        self,
        look: Callable[[], Awaitable[T | None]],
        failure: str,
        within_s: float,
        detail: object = "",
    ) -> T:
        """Look again and again until there is something, and return it.

        Not ideal: a status changes without an event, so this asks again.
        Errors: NotSeen with the story after `within_s`.
        """
        pause_s = 0.005
        deadline_s = trio.current_time() + within_s
        while trio.current_time() < deadline_s:
            found = await look()
            if found:
                return found
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.25)
        raise NotSeen(f"{failure} within {within_s:g} s {detail or ''}\n{await self.story()}")

    def _is_raft(self, name: str) -> bool:
        return any(broker.machine.is_raft for broker in self.members(name))

    def _is_in_sync(self, name: str, places: list[BrokerView]) -> bool:
        here = [one for one in places if one.broker.machine.name == name]
        masters = [one.status for one in here if one.status["standing"] == "MASTER"]
        if len(masters) != 1:
            return False
        (master,) = masters
        if self._is_raft(name):
            ends = {one.status["max_phy_offset"] for one in here}
            return len(ends) == 1 and master["raft"]["committed_offset"] in ends
        level = [link for link in master["connections"] if link["in_sync"]]
        slaves = [one.status for one in here if one.status is not master]
        return len(level) >= len(slaves) and all(
            one["max_phy_offset"] == master["max_phy_offset"] for one in slaves
        )
