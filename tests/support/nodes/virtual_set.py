"""Whole brokers of a master-slave set on a MockClock: real stores, a network in memory.

A name server and an operator, who runs the real failover engine, stand beside them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import attrs
import pytest
import trio

from support.nodes.live_node import NAME, SUCCESS, send_request
from support.nodes.virtual_group import host_of, without_threads
from support.suite.drawn_seed import drawn_seed
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import StoreError, Unreachable
from trioha.failover.outcome import Outcome
from trioha.ha.mastership import Standing, kept_history
from trioha.security.node_signer import unsigned
from trioha.security.signature import Credentials
from trioha.services.ha.client import SlaveState
from trioha.services.ha.replication import SetReplication
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import is_simulated, random_source
from trioha.services.node.broker_node import BrokerNode
from trioha.services.remoting.client import open_remoting_client
from trioha.store.inspect import diff_logs, iter_records
from trioha.testing.memory_node import (
    HA_PORT,
    NAMESRV_PORT,
    PORT,
    MemoryBroker,
    MemoryNamesrv,
    MemoryWorld,
)
from trioha.testing.network import MemoryNetwork
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.message_id import decode_message_id
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand

NAMESRV, OPERATOR, CLIENT = "10.0.9.1", "10.0.9.2", "10.0.9.3"
CLIENT_PATIENCE_S = 5.0
HAMMER_PAUSE_S = 0.25
_POLL_S = 0.01


def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run threads' work on the loop, and ask no disk for anything.

    The kernel keeps what a killed process wrote: no fsync changes what its next life reads.
    """
    without_threads(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@attrs.frozen
class Acknowledged:
    """One SEND_OK."""

    body: bytes
    queue_id: int
    queue_offset: int
    phy_offset: int
    node: str
    """Machine that was asked; one that has stepped down forwards."""


class VirtualBroker(MemoryBroker):
    """One machine of a set, whose process may die inside a promotion."""

    before_next_term: Callable[[], None] | None = None
    """Called once, right before the node's own next term is durable in its `epochs` file."""
    after_next_term: Callable[[], None] | None = None
    """Called once, right after it is."""

    def __init__(self, set_: VirtualSet, home_id: int, role: BrokerRole) -> None:
        self.home_id = home_id
        self.role = role
        self.events = RecordedEvents()
        host = host_of(home_id)
        config = BrokerConfig(
            broker_name=NAME,
            broker_id=home_id,
            broker_role=role,
            namesrv_addr=f"{NAMESRV}:{NAMESRV_PORT}",
            store_path_root_dir=str(set_.root / str(home_id)),
            mapped_file_size_commit_log=1 << 20,
            max_message_size=1 << 16,
            max_hash_slot_num=100,
            max_index_num=400,
            broker_ip1=host,
            broker_ip2=host,
            listen_port=PORT,
            ha_listen_port=HA_PORT,
            vip_channel=False,
            admin_http_enable=False,
        )
        config = attrs.evolve(config, **set_.settings)
        self.sign = unsigned if set_.credentials is None else set_.credentials.sign
        super().__init__(set_.world, host, config, self._new_journal)

    @property
    def replication(self) -> SetReplication:
        return cast("SetReplication", self.node.replication)

    @property
    def is_master(self) -> bool:
        return self.is_up and self.replication.mastership.standing is Standing.MASTER

    @property
    def epoch(self) -> int:
        return self.replication.mastership.epoch

    @property
    def follows(self) -> str:
        """Address of the master that this node copies at this moment; "" for none."""
        client = self.replication.ha_client
        if client is None or client.statistics().state != SlaveState.TRANSFER.value:
            return ""
        return self.replication.master_remoting_address.value

    def opened(self, node: BrokerNode) -> None:
        mastership = self.replication.mastership
        save = mastership._save

        def save_and_tell(data: bytes) -> None:
            newest = kept_history(data).newest
            is_next = newest is not None and newest.epoch > mastership.epoch
            if newest is None or newest.home_id != self.home_id or not is_next:
                save(data)
                return
            before, self.before_next_term = self.before_next_term, None
            if before is not None:
                before()
            save(data)
            after, self.after_next_term = self.after_next_term, None
            if after is not None:
                after()

        mastership._save = save_and_tell

    def _new_journal(self) -> RecordedEvents:
        self.events = RecordedEvents()
        return self.events

    def _failed(self, error: StoreError) -> None:
        raise error

    async def ask(self, request: RemotingCommand, by: str = CLIENT) -> RemotingCommand:
        """Errors: Unreachable and OSError when the node cannot be asked."""
        transport = await self.world.network.connect(by, self.host, PORT)
        async with open_remoting_client(
            self.host, PORT, self.world.clock, transport=transport, sign=self.sign
        ) as client:
            return await client.request(request)


def _network_seed() -> int:
    """Return the seed of packets' delays: of the round, if this Trio run is one of a campaign."""
    return random_source().getrandbits(64) if is_simulated() else drawn_seed("virtual set")


@attrs.define(eq=False)
class VirtualSet:
    """The machines of one set, its name server, and the network between them and their clients."""

    root: Path
    nursery: trio.Nursery
    settings: dict[str, Any]
    credentials: Credentials | None = None
    """The account of all clients."""
    clock: Clock = attrs.Factory(Clock.virtual)
    network: MemoryNetwork = attrs.Factory(lambda: MemoryNetwork(Random(_network_seed())))
    brokers: list[VirtualBroker] = attrs.Factory(list)
    acknowledged: list[Acknowledged] = attrs.Factory(list)
    world: MemoryWorld = attrs.field(init=False)
    namesrv: MemoryNamesrv = attrs.field(init=False)
    _cuts: dict[str, set[tuple[str, str]]] = attrs.Factory(dict)
    _serials: Any = attrs.Factory(count)

    def __attrs_post_init__(self) -> None:
        self.world = MemoryWorld(self.network, self.nursery, self.clock)
        self.namesrv = MemoryNamesrv(self.world, NAMESRV, self.root)

    def __getitem__(self, home_id: int) -> VirtualBroker:
        return self.brokers[home_id]

    @property
    def masters(self) -> list[int]:
        return [broker.home_id for broker in self.brokers if broker.is_master]

    @property
    def hosts(self) -> list[str]:
        return [*(broker.host for broker in self.brokers), NAMESRV, OPERATOR, CLIENT]

    async def forget(self) -> None:
        """Kill the name server and start another one with an empty memory."""
        self.namesrv.kill()
        await self.namesrv.start()

    def cut(self, host: str, *others: str) -> None:
        """Cut a machine off both ways: from `others`, or from all."""
        from_all = others or tuple(one for one in self.hosts if one != host)
        ways = {(host, one) for one in from_all} | {(one, host) for one in from_all}
        self._cuts.setdefault(host, set()).update(ways)
        self._set_cuts()

    def heal(self, *hosts: str) -> None:
        """Undo `cut` for these machines, or for all; what waited arrives first."""
        for host in hosts or list(self._cuts):
            self._cuts.pop(host, None)
        self._set_cuts()

    def _set_cuts(self) -> None:
        self.network.set_cuts(*(way for ways in self._cuts.values() for way in ways))

    async def fail_over(self, *, to: int | None = None, force: bool = False) -> Outcome:
        """Carry out `trioha failover` from the operator's machine."""
        config = ClusterConfig(
            connector=partial(self.network.connect, OPERATOR),
            clock=self.clock,
            rng=Random(1),
            credentials=self.credentials,
        )
        async with open_cluster(f"{NAMESRV}:{NAMESRV_PORT}", config) as cluster:
            return await run_failover(cluster, new_order(cluster, NAME, to=to, force=force))

    async def send(self, home_id: int) -> int | None:
        """Send one message to one node; the code of the answer, None when there is none."""
        body = b"%d to %d" % (next(self._serials), home_id)
        try:
            with trio.fail_after(CLIENT_PATIENCE_S):
                answer = await self[home_id].ask(send_request(body))
        except (trio.TooSlowError, OSError, Unreachable):
            return None
        if answer.code == SUCCESS:
            _, _, phy_offset = decode_message_id(answer.ext_str("msgId"))
            queue = (answer.ext_int("queueId"), answer.ext_int("queueOffset"))
            self.acknowledged.append(Acknowledged(body, *queue, phy_offset, str(home_id)))
        return answer.code

    async def send_ok(self, home_id: int, messages: int = 5) -> None:
        """Send until so many messages are acknowledged one after the other."""
        for _ in range(messages):
            code = await self.send(home_id)
            assert code == SUCCESS, f"broker {home_id} answered {code}"

    @asynccontextmanager
    async def hammered(self) -> AsyncIterator[None]:
        """Ask every node to store messages, all the time while the block runs."""

        async def hammer(home_id: int) -> None:
            while not over.is_set():
                await self.send(home_id)
                await trio.sleep(HAMMER_PAUSE_S)

        over = trio.Event()
        async with trio.open_nursery() as nursery:
            for broker in self.brokers:
                nursery.start_soon(hammer, broker.home_id)
            yield
            over.set()

    async def wait(self, done: Callable[[], object], within_s: float = 60.0) -> None:
        with trio.fail_after(within_s):
            while not done():  # noqa: ASYNC110 - time costs nothing here
                await trio.sleep(_POLL_S)

    async def wait_master(self, home_id: int | None = None, within_s: float = 60.0) -> int:
        """Wait until exactly one node is master, and it acknowledges; return its home id."""
        with trio.fail_after(within_s):
            while True:
                masters = self.masters
                is_it = len(masters) == 1 and home_id in (None, *masters)
                if is_it and await self.send(masters[0]) == SUCCESS and self.masters == masters:
                    return masters[0]
                await trio.sleep(_POLL_S)

    def is_level(self) -> bool:
        """Has the set one master whose log all the others hold, on links from it?"""
        masters = [broker for broker in self.brokers if broker.is_master]
        if len(masters) != 1 or not all(broker.is_up for broker in self.brokers):
            return False
        (master,) = masters
        end = master.node.store.max_phy_offset
        return all(
            broker.follows == master.address and broker.node.store.max_phy_offset == end
            for broker in self.brokers
            if broker is not master
        )

    async def check_converged(self, master: int | None = None) -> None:
        """One node is master and acknowledges; all logs are one log, which lacks nothing."""
        home_id = await self.wait_master(master)
        await self.wait(self.is_level)
        logs = [broker.root / "commitlog" for broker in self.brokers]
        for log in logs[1:]:
            assert diff_logs(logs[0], log).equal, f"{logs[0]} and {log}"
        end = self[home_id].node.store.max_phy_offset
        records = [one for one in iter_records(logs[home_id], 0, end) if isinstance(one, Record)]
        places = Counter((one.topic, one.queue_id, one.queue_offset) for one in records)
        twice = [place for place, times in places.items() if times > 1]
        assert not twice, f"given out twice: {twice}"
        held = {one.phy_offset: one for one in records}
        assert self.acknowledged
        lost = [one for one in self.acknowledged if not _is_held(one, held.get(one.phy_offset))]
        assert not lost, f"{len(lost)} of {len(self.acknowledged)} lost, the first {lost[0]}"


def _is_held(one: Acknowledged, record: Record | None) -> bool:
    return record is not None and (record.body, record.queue_id, record.queue_offset) == (
        one.body,
        one.queue_id,
        one.queue_offset,
    )


@asynccontextmanager
async def virtual_set(
    root: Path, size: int = 3, credentials: Credentials | None = None, **settings: Any
) -> AsyncIterator[VirtualSet]:
    """A SYNC_MASTER (0) and its slaves, in sync; run it on an `autojump_clock`, `without_waits`.

    All of it ends with the block.
    """
    async with trio.open_nursery() as nursery:
        set_ = VirtualSet(root, nursery, settings, credentials)
        await set_.namesrv.start()
        for home_id in range(size):
            role = BrokerRole.SLAVE if home_id else BrokerRole.SYNC_MASTER
            set_.brokers.append(VirtualBroker(set_, home_id, role))
            await set_[home_id].start()
        await set_.wait(set_.is_level)
        await set_.send_ok(0)
        await set_.wait(set_.is_level)
        yield set_
        nursery.cancel_scope.cancel()
