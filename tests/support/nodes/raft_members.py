"""Whole members in one process: the real shell and its connections, a fake disk and network.

Every member's log is the simulation's disk, so its invariants (`sim/raft/invariants.py`) watch here
too. Time is Trio's: run it on a MockClock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import attrs
import trio

from trioha.dledger.membership import Configuration, ConfigurationRows, ConfigurationTable
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.messages import RaftMessage, VoteRequest, VoteResponse
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite, Role, SoftState
from trioha.dledger.settings import RaftSettings
from trioha.dledger.term_table import TermTable
from trioha.dledger.vote_record import decode_vote_record
from trioha.errors import DiskFull, StoreError, TriohaError
from trioha.remoting.channel import Channel, Handler
from trioha.remoting.requests import RequestTable
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Listener, Transport
from trioha.services.raft.bootstrap import VoteFile
from trioha.services.raft.interfaces import MemberContext, MemberSetup
from trioha.services.raft.member import RaftMember
from trioha.services.raft.member_tasks import run_member
from trioha.services.remoting.server import RemotingServer
from trioha.sim.raft.disk import DATA, RaftDisk, encode, encode_control
from trioha.sim.raft.invariants import Invariants, Watched
from trioha.testing.network import MemoryNetwork, NetworkListener
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.remoting_command import Buffer

PORT = 1
SETTINGS = RaftSettings()


class FakeSlots:
    """A `TwoSlotFile` that outlives its process."""

    def __init__(self) -> None:
        self.payload: bytes | None = None
        self.failing = False
        self.on_save: Callable[[bytes], None] = lambda _: None

    def save(self, payload: bytes) -> None:
        if self.failing:
            raise StoreError("cannot write raft.0: Input/output error")
        self.payload = payload
        self.on_save(payload)


class FakeRaftLog:
    """`MemberLog` over the simulation's disk."""

    def __init__(self, machine: Machine, invariants: Invariants) -> None:
        self._machine = machine
        self._invariants = invariants
        self._addresses: dict[str, str] = {}
        self.rotten = False
        """Whether reads of the log fail."""

    @property
    def _disk(self) -> RaftDisk:
        return self._machine.disk

    @property
    def end_offset(self) -> int:
        return self._disk.end_offset

    def read(self, phy_offset: int, size_max: int) -> Buffer:
        if self.rotten:
            raise StoreError(f"the log is damaged behind offset {phy_offset}")
        return self._disk.read(phy_offset, size_max)

    def is_boundary(self, phy_offset: int) -> bool:
        return self._disk.is_boundary(phy_offset)

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        return self._disk.configurations_in(phy_offset, term, body)

    def objection_to_begin(self, phy_offset: int) -> str:
        return self._disk.objection_to_begin(phy_offset)

    def recover(
        self, initial_configuration: Configuration
    ) -> tuple[TermTable, ConfigurationTable, int, int]:
        assert isinstance(self._disk, MemberDisk)
        self._disk.begin_with(initial_configuration)
        found = self._disk.recover()
        # Recovery fsyncs what it finds: the core holds it from now on.
        self._disk.synced_offset = found.end_offset
        return found.terms, found.configurations, found.begin_offset, found.end_offset

    def append_control(self, control: Control, addresses: Mapping[str, str], wall_ms: int) -> int:
        first = len(self._disk.ends)
        self._disk.append(encode_control(control, self._disk.end_offset))
        self._addresses.update(addresses)
        self._invariants.appended(self._machine, first, control.term)
        return self._disk.end_offset

    def append(self, payload: bytes, term: int) -> int:
        """The broker's own."""
        first = len(self._disk.ends)
        self._disk.append(encode(DATA, payload))
        self._invariants.appended(self._machine, first, term)
        return self._disk.end_offset

    def write(self, operation: LogWrite) -> None:
        if not self.has_room(len(operation.body)):
            raise DiskFull("no room")
        first = len(self._disk.ends)
        self._disk.append(bytes(operation.body))
        self._invariants.appended(self._machine, first, operation.term)

    def truncate(self, operation: LogTruncate) -> None:
        self._invariants.about_to_cut(self._machine, operation.phy_offset)
        self._disk.truncate(operation.phy_offset)

    def reset(self, operation: LogReset) -> None:
        self._invariants.about_to_cut(self._machine, operation.begin_offset)
        self._disk.reset(operation, self._invariants.committed_chain(operation.begin_offset))

    def has_room(self, size: int) -> bool:
        return self._disk.has_room(size)

    def addresses(self) -> Mapping[str, str]:
        return self._addresses


class MemberDisk(RaftDisk):
    """Its first configuration is told by the shell, as in the real store."""

    _untouched = True

    def begin_with(self, configuration: Configuration) -> None:
        if self._untouched:
            self._base_configuration = (0, configuration)

    def reset(self, reset: LogReset, chain: int) -> None:
        self._untouched = False
        super().reset(reset, chain)


class FakeFlush:
    """Fsyncs take as long as the machine says; the member hears of them as from `LogFlush`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._grown = trio.Event()
        self._ended: tuple[int, int] | None = None
        self.is_quiet = False

    def grown_nowait(self, *, urgent: bool, quiet: bool = False) -> None:
        self._grown.set()
        if self.is_quiet:
            self.awaited_nowait()
        self.is_quiet = quiet

    def collect_nowait(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            assert self._machine.member is not None
            self.is_quiet = False
            self._machine.member.flushed(*ended)

    def awaited_nowait(self) -> None:
        self.is_quiet = False
        self.collect_nowait()

    async def run(self) -> None:
        machine = self._machine
        while True:
            await self._grown.wait()
            self._grown = trio.Event()
            member, disk = machine.member, machine.disk
            assert member is not None
            end, cut_count = disk.end_offset, member.cut_count
            await trio.sleep(machine.fsync_s())
            if machine.fsync_fails:
                error = StoreError("fsync failed: Input/output error")
                member.flush_failed(error)
                raise error
            if cut_count == member.cut_count:
                disk.synced_offset = max(disk.synced_offset, end)
            self._ended = (end, cut_count)
            if not self.is_quiet:
                self.collect_nowait()
                machine.check()


@attrs.define(eq=False)
class Put:
    """Bytes of a client; `safe` is None until it is known."""

    end_offset: int
    safe: bool | None = None
    unknown: bool = False


class Machine:
    """One machine of the rig, on or off.

    Implements `StateMachine` and the simulation's `Watched`.
    """

    def __init__(self, rig: Rig, member_id: str) -> None:
        self.rig = rig
        self.member_id = member_id
        self.disk: RaftDisk = MemberDisk(Configuration.of(*rig.founders))
        self.slots = FakeSlots()
        self.events = RecordedEvents()
        self.member: RaftMember | None = None
        self.server: RemotingServer | None = None
        self.died: BaseException | None = None
        self.fsync_ms = 1.0
        self.fsync_fails = False
        self.is_up = False
        self.puts: deque[Put] = deque()
        self.roles: list[SoftState] = []
        self.on_commit_hook: Callable[[int], None] = lambda _: None
        self.log: FakeRaftLog | None = None
        self.changed = trio.Event()
        self.overrides: dict[str, Any] = {}
        self._scope = trio.CancelScope()

    @property
    def node(self) -> RaftNode:
        assert self.member is not None
        assert self.member.node is not None, f"{self.member_id} has not begun"
        return self.member.node

    @property
    def begun(self) -> bool:
        return self.is_up and self.member is not None and self.member.node is not None

    def now_ms(self) -> int:
        return self.rig.clock.now_ms()

    def fsync_s(self) -> float:
        return self.fsync_ms / 1000

    @property
    def is_leader(self) -> bool:
        return self.begun and self.member is not None and self.member.is_serving

    @property
    def may_append(self) -> bool:
        return self.member is not None and self.member.may_append

    def check(self) -> None:
        self.rig.invariants.check(self)
        self.changed.set()
        self.changed = trio.Event()
        self.rig.wake()

    # `StateMachine`.

    def on_soft_state(self, soft: SoftState) -> None:
        self.roles.append(soft)
        if soft.role is not Role.LEADER:
            for put in self.puts:
                put.unknown = True
            self.puts.clear()
        self.check()

    def on_commit(self, committed_offset: int) -> None:
        self.check()
        while self.puts and self.puts[0].end_offset <= committed_offset:
            put = self.puts.popleft()
            put.safe = True
            self.rig.invariants.acknowledged(put.end_offset)
        self.on_commit_hook(committed_offset)

    def on_log_written(self, end_offset: int) -> None:
        assert end_offset == self.disk.end_offset

    def on_log_cut(self, end_offset: int) -> None:
        assert end_offset == self.disk.end_offset

    def on_settled(self) -> None:
        self.check()

    # Steps of tests.

    def put(self, payload: bytes = b"message") -> Put:
        """Append and tell, as the broker does at the end of a batch."""
        member = self.member
        assert member is not None
        assert member.may_append, f"{self.member_id} must not append"
        put = self.append(payload)
        member.log_grown()
        return put

    def append(self, payload: bytes) -> Put:
        assert self.log is not None
        put = Put(self.log.append(payload, self.node.state.term))
        self.puts.append(put)
        return put

    def kill(self) -> None:
        self._scope.cancel()

    def wipe(self) -> None:
        """Lose the disk; it must be down."""
        assert not self.is_up
        self.disk = MemberDisk(Configuration.of(*self.rig.founders))
        self.slots = FakeSlots()
        self.rig.invariants.forgot(self.member_id)

    async def live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One life of the process."""
        rig, listener = self.rig, NetworkListener()
        self._scope = trio.CancelScope()
        self.died = None
        rig.invariants.restarted(self.member_id)
        self.log = FakeRaftLog(self, rig.invariants)
        setup: MemberSetup = attrs.evolve(rig.setup(self.member_id), **self.overrides)
        self.slots.on_save = lambda payload: self._saved(payload, setup.door)
        flush = FakeFlush(self)
        handlers: dict[int, Handler] = {}
        server = self.server = RemotingServer(
            RequestTable(handlers, self.events).handle,
            rig.clock,
            self.events,
            on_closed=lambda channel: member.channel_closed(channel),
        )
        member = self.member = RaftMember(
            setup,
            self.log,
            VoteFile(self.slots, setup.door),
            self,
            flush,
            MemberContext(server.outboxes, rig.clock, self.events, self._connect),
            Random(rig.rng.random()),
        )
        handlers.update(member.handlers())
        send = member.peers.send

        def send_promised(message: RaftMessage) -> None:
            self._check_promise(message, setup.door)
            send(message)

        member.peers.send = send_promised
        rig.network.listeners[self.member_id] = listener
        self.is_up = True
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(server.accept, cast("Listener", listener), nursery)
                    nursery.start_soon(flush.run)
                    await nursery.start(run_member, member)
                    task_status.started()
                    await trio.sleep_forever()
        except* (TriohaError, AssertionError) as group:
            self.died = group.exceptions[0]
            while isinstance(self.died, BaseExceptionGroup):
                self.died = self.died.exceptions[0]
            if isinstance(self.died, AssertionError):
                raise self.died from None
        finally:
            self.is_up = False
            for put in self.puts:
                put.unknown = True
            self.puts.clear()
            if rig.network.listeners.get(self.member_id) is listener:
                del rig.network.listeners[self.member_id]
            rig.wake()

    def _check_promise(self, message: RaftMessage, door: GroupDoor) -> None:
        """Check that the disk holds the message's term and a candidate's or voter's vote."""
        if isinstance(message, VoteRequest | VoteResponse) and message.is_pre:
            return
        assert self.slots.payload is not None
        hard = decode_vote_record(self.slots.payload, door).hard
        assert hard is not None
        last_term = self.node.state.terms.last_term
        assert max(hard.term, last_term) >= message.term, f"{message} before term {hard.term}"
        if isinstance(message, VoteRequest):
            assert (hard.term, hard.voted_for) == (message.term, self.member_id), hard
        if isinstance(message, VoteResponse) and message.granted:
            assert (hard.term, hard.voted_for) == (message.term, message.target), hard

    def _saved(self, payload: bytes, door: GroupDoor) -> None:
        hard = decode_vote_record(payload, door).hard
        if hard is not None:
            self.rig.invariants.saved(self.member_id, hard)

    def _channel_closed(self, channel: Channel) -> None:
        assert self.member is not None
        self.member.channel_closed(channel)

    async def _connect(self, host: str, port: int) -> Transport:
        return await self.rig.network.connect(self.member_id, host)


class Rig:
    """A group."""

    def __init__(
        self,
        size: int,
        seed: int = 0,
        settings: RaftSettings = SETTINGS,
        secret: str = "",
        *,
        all_disks_whole: bool = True,
        extra: tuple[str, ...] = (),
    ) -> None:
        self.rng = Random(seed)
        self.clock = Clock.virtual()
        self.settings = settings
        self.secret = secret
        self.founders = tuple(f"n{number}" for number in range(size))
        self.network = MemoryNetwork(self.rng)
        self.machines: dict[str, Machine] = {}
        self.invariants = Invariants(
            cast("dict[str, Watched]", self.machines), all_disks_whole=all_disks_whole
        )
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        for name in (*self.founders, *extra):
            self.machines[name] = Machine(self, name)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def setup(self, member_id: str) -> MemberSetup:
        return MemberSetup(
            door=GroupDoor("c", "g", member_id, self.founders),
            founders={name: f"{name}:{PORT}" for name in self.founders},
            address=f"{member_id}:{PORT}",
            settings=self.settings,
            secret=self.secret,
        )

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def start(self, *names: str) -> None:
        assert self._nursery is not None
        for name in names or self.founders:
            await self._nursery.start(self.machines[name].live, name=name)

    async def stop(self, name: str, *, power: bool = False) -> None:
        machine = self.machines[name]
        machine.kill()
        await self.wait(lambda: not machine.is_up)
        if power:
            machine.disk.lose_power(self.rng)

    async def wait(self, done: Callable[[], object], within_s: float = 30) -> None:
        """Wait until `done()`, looking again when a member changes."""
        with trio.fail_after(within_s):
            while not done():
                with trio.move_on_after(0.05):
                    await self._changed.wait()

    def leaders(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_leader]

    async def leader(self, *, other_than: str = "", within_s: float = 30) -> Machine:
        """A leader that serves."""

        def found() -> list[Machine]:
            return [one for one in self.leaders() if one.member_id != other_than]

        await self.wait(found, within_s)
        return max(found(), key=lambda machine: machine.node.state.term)

    async def wait_level(self, *names: str, within_s: float = 30) -> None:
        """Wait until these, or all that are up, hold and have committed the same."""

        def is_level() -> bool:
            up = [self[name] for name in names] or [m for m in self.machines.values() if m.is_up]
            if not all(machine.begun for machine in up):
                return False
            ends = {machine.node.state.end_offset for machine in up}
            commits = {machine.node.state.committed_offset for machine in up}
            return len(ends) == 1 and ends == commits

        await self.wait(is_level, within_s)


@asynccontextmanager
async def member_group(size: int, seed: int = 0, **more: Any) -> AsyncIterator[Rig]:
    """A group whose members are all off."""
    rig = Rig(size, seed, **more)
    async with trio.open_nursery() as nursery:
        rig._nursery = nursery
        yield rig
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def elected(size: int, seed: int = 0, **more: Any) -> AsyncIterator[Rig]:
    """A group with a leader that serves."""
    async with member_group(size, seed, **more) as rig:
        await rig.start()
        await rig.leader()
        yield rig
