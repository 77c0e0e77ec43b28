"""Nodes of one replica set with real stores and real handshakes, and no brokers around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio
import trio.testing

from support.memory.streams import StreamTransport
from support.stores.small import (
    SEGMENT_BYTES,
    crash,
    dispatch_all,
    message,
    open_store,
    small_config,
)
from trioha.config import BrokerConfig
from trioha.ha.events import Term
from trioha.ha.greeting import Greeting
from trioha.ha.mastership import Mastership, Standing
from trioha.remoting.channel import Handler
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.remoting.requests import RequestTable
from trioha.services.ha.greeting import HaGreeting
from trioha.services.ha.handshake import Handshake
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.remoting.server import RemotingServer
from trioha.store.cuts import Cut, list_cuts
from trioha.store.inspect import iter_records
from trioha.store.two_slot_file import TwoSlotFile
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.record import Record


@attrs.frozen
class GreetedNode:
    """Keeps what hellos told a member."""

    member: Member

    def fenced(self, reason: str) -> None:
        self.member.fenced.append(reason)

    def doubted(self, reason: str) -> None:
        self.member.fenced.append(reason)

    def promised(self) -> None:
        pass

    def announced(self, home_id: int, address: str, ha_address: str) -> None:
        self.member.announced.append(address)

    def member_lost_power(self, address: str) -> None:
        pass

    def member_met(self) -> None:
        pass

    @property
    def follows(self) -> str:
        return self.member.master.value


class Member:
    """One node. `crash_and_start` keeps nothing but its disk."""

    def __init__(self, greeted_set: GreetedSet, home_id: int, root: Path, **settings: str) -> None:
        self.set = greeted_set
        self.home_id = home_id
        self.address = f"node{home_id}:10911"
        self.store_config = small_config(root)
        self.config = BrokerConfig(
            broker_id=home_id,
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=SEGMENT_BYTES,
            **settings,  # type: ignore[arg-type]
        )
        self.master = MasterAddress()
        self.events = RecordedEvents()
        self.fenced: list[str] = []
        self.fenced_by_answers: list[str] = []
        self.announced: list[str] = []
        self.cuts: list[Cut] = []
        self.knows_hello = True
        self.start()

    def start(self) -> None:
        self.store = open_store(self.store_config)
        file = TwoSlotFile(self.store_config.root / "epochs")
        self.mastership = Mastership(self.home_id, file.save, file.payload)
        self.mastership.start(
            configured_master=self.home_id == 0,
            log_end=self.store.max_phy_offset,
            nonce=self.set.nonce(),
            sync=True,
            wall_ms=0,
        )
        greeting = Greeting(
            self.config.broker_name,
            self.address,
            self.mastership,
            self.store,
            GreetedNode(self),
            ticket_holder=lambda: "",
        )
        self.greeting = HaGreeting(greeting, self.config, RefusalNotes(self.events))
        self.handshake = Handshake(
            self.mastership,
            self.store,
            self.config,
            self.address,
            self.master,
            self.events,
            self.set.clock,
            on_cut=self.cuts.append,
            on_fenced=self.fenced_by_answers.append,
            connect_to=partial(self.set.connect, self),
        )

    def crash_and_start(self) -> None:
        crash(self.store)
        self.start()

    def write(self, count: int = 1) -> None:
        """Store messages as clients would send them to a master."""
        assert self.mastership.standing is Standing.MASTER
        for _ in range(count):
            put = message(self.set.body(self.home_id), topic="AB"[self.set.written % 2])
            assert self.store.put_message(put, 1000 + self.set.written).size

    def promote(self, epoch: int | None = None) -> None:
        """Promote this node as a forced failover does its target."""
        dispatch_all(self.store)
        if self.store.dispatched_offset < self.store.max_phy_offset:
            self.store.truncate_log(self.store.dispatched_offset)
        known = max(member.mastership.known_epoch for member in self.set.members)
        self.mastership.begin_term(
            known + 1 if epoch is None else epoch,
            self.store.max_phy_offset,
            nonce=self.set.nonce(),
            sync=True,
            wall_ms=0,
        )

    async def shake(self, master: Member) -> Term | None:
        self.master.set(master.address)
        return await self.handshake.shake()

    async def follow(self, master: Member, bytes_max: int = 1 << 30) -> Term | None:
        """Shake hands and copy some of the master's log, as a link would."""
        term = await self.shake(master)
        self.copy(master, bytes_max)
        return term

    def copy(self, master: Member, bytes_max: int = 1 << 30) -> None:
        while bytes_max > 0:
            offset = self.store.max_phy_offset
            if not offset:
                offset = master.store.min_phy_offset
            data = master.store.read_log(offset, bytes_max)
            if not data:
                break
            self.store.append_log(offset, data)
            bytes_max -= len(data)
        dispatch_all(self.store)

    @property
    def log(self) -> bytes:
        data, offset = b"", self.store.min_phy_offset
        while piece := self.store.read_log(offset, SEGMENT_BYTES):
            data += piece
            offset += len(piece)
        return data

    @property
    def bodies(self) -> set[bytes]:
        """The bodies of every message in the log."""
        return _bodies(self.store_config.commitlog_path)

    @property
    def kept(self) -> set[bytes]:
        """The bodies of every message in a folder of what was cut."""
        root = self.store_config.root
        return set().union(*(_bodies(cut.commitlog_path) for cut in list_cuts(root)))


def _bodies(path: Path) -> set[bytes]:
    return {item.body for item in iter_records(path) if isinstance(item, Record)}


@attrs.define(eq=False)
class GreetedSet:
    root: Path
    nursery: trio.Nursery
    clock: Clock = attrs.Factory(Clock.virtual)
    members: list[Member] = attrs.Factory(list)
    written: int = 0
    nonces: int = 0

    def add(self, **settings: str) -> Member:
        home_id = len(self.members)
        member = Member(self, home_id, self.root / str(home_id), **settings)
        self.members.append(member)
        return member

    def nonce(self) -> bytes:
        self.nonces += 1
        return self.nonces.to_bytes(8, "big")

    def body(self, home_id: int) -> bytes:
        self.written += 1
        return f"message {self.written} of {home_id}".encode().ljust(200, b".")

    async def connect(self, caller: Member, host: str, port: int) -> Transport:
        """Reach a member's remoting port."""
        callee = self.members[int(host.removeprefix("node"))]
        handlers: dict[int, Handler] = (
            {RequestCode.HA_HELLO: callee.greeting.answer} if callee.knows_hello else {}
        )
        server = RemotingServer(
            RequestTable(handlers, callee.events).handle, self.clock, callee.events
        )
        ours, theirs = trio.testing.memory_stream_pair()
        peer = StreamTransport(theirs, f"127.0.0.{caller.home_id + 1}:40000")
        self.nursery.start_soon(server.serve_connection, peer)
        return StreamTransport(ours, f"{host}:{port}")


@asynccontextmanager
async def greeted_set(root: Path, count: int = 2, **settings: str) -> AsyncIterator[GreetedSet]:
    """A master, node 0, and slaves that have not met it yet."""
    async with trio.open_nursery() as nursery:
        members = GreetedSet(root, nursery)
        for _ in range(count):
            members.add(**settings)
        try:
            yield members
        finally:
            for member in members.members:
                crash(member.store)
            nursery.cancel_scope.cancel()
