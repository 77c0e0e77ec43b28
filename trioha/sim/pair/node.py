"""One broker process: how it starts, what it is asked, and the clock that drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgpack

from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.errors import CommandError, RemoteProtocolError
from trioha.ha.greeting import Greeting
from trioha.ha.hello import Hello
from trioha.ha.readers import OTHERS_MIN, ReadersLimit
from trioha.journal import NullSink
from trioha.remoting.channel import Instant
from trioha.sim.disk import Crashed, CrashPoint, LogFile, SavedBytes
from trioha.sim.network import End, Item
from trioha.sim.pair.master_role import Reply
from trioha.sim.pair.messages import BROKER, Put, RegisterAnswer, RegisterNode
from trioha.sim.pair.records import RecordLog
from trioha.sim.pair.roles import Roles
from trioha.sim.pair.views import SimWorld
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand

TICK_MS = 100
FLUSH_MS = 500
REGISTER_MS = 500
ASK_PATIENCE_MS = 700


@attrs.define(eq=False)
class Machine:
    """State that outlives a process: the disk, and the page cache while there is power."""

    host: str
    home_id: int
    file: LogFile
    epochs: SavedBytes
    log: RecordLog
    node: SimNode | None = None
    boot: int = 1
    """Count of the times that the machine was switched on."""
    lost_end: int = 0
    """Largest end of the log at a loss of power, lost bytes included; 0 without one."""

    @classmethod
    def make(cls, host: str, home_id: int, crash_point: CrashPoint) -> Machine:
        file = LogFile(crash_point)
        return cls(host, home_id, file, SavedBytes(crash_point), RecordLog(file))

    @property
    def lacks_lost_tail(self) -> bool:
        """The machine has lost bytes with its power, and not copied as many since.

        No node knows of the acknowledgements that went with them, if the master is gone, too.
        """
        return self.log.max_phy_offset < self.lost_end

    @property
    def running(self) -> SimNode | None:
        return self.node if self.node is not None and self.node.alive else None


class SimNode:
    """One process of a node, from its start to its end."""

    def __init__(self, world: SimWorld, machine: Machine, on_crash: Callable[[], None]) -> None:
        """`on_crash`: a disk operation was the last one of this process."""
        self.world = world
        self.machine = machine
        self.host = machine.host
        self.alive = True
        self.stopped = False
        """SIGSTOP: nothing happens until it goes on, then all of it."""
        self.roles = Roles(self)
        self.failover = FailoverProcessor(
            BROKER, self.roles, self, AuditTrail(), NullSink(), check_address=str
        )
        self.greeting = Greeting(
            BROKER,
            self.host,
            self.roles.mastership,
            self.log,
            self.roles,
            ticket_holder=self.failover.desk.holder,
        )
        self._handlers = self.failover.handlers()
        self._on_crash = on_crash
        self._backlog: list[Callable[[], None]] = []
        self._register_at_ms = 0
        self._flush_at_ms = 0
        self._readers = ReadersLimit(self.roles.mastership)
        self._shown = 0
        """Count of the log's records that readers have seen."""

    @property
    def status_name(self) -> str:
        return BROKER

    @property
    def members(self) -> dict[int, str]:
        """The other nodes by their configured ids."""
        return {
            machine.home_id: host
            for host, machine in self.world.machines.items()
            if host != self.host
        }

    @property
    def now_ms(self) -> int:
        return self.world.scheduler.now_ms

    @property
    def instant(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    @property
    def log(self) -> RecordLog:
        return self.machine.log

    @property
    def log_end(self) -> int:
        return self.machine.log.max_phy_offset

    @property
    def metadata_position(self) -> int:
        return 0  # nothing but the log is simulated

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        """Count nothing: parked puts were not appended, and nothing else waits here."""

    def start(self) -> None:
        """Recover, find out who we are, serve."""
        self.log.drop_torn_tail()
        network = self.world.network
        network.listen(self.host, "remoting", self._accept)
        network.listen(self.host, "ha", self._accept_slave)
        self.roles.start()
        self._tick()

    def run(self, action: Callable[[], None]) -> None:
        """Run an action: now, or after SIGCONT if the process is stopped; never if it is dead."""
        if not self.alive:
            return
        if self.stopped:
            self._backlog.append(action)
            return
        try:
            action()
        except Crashed as crash:
            self.tell(f"stops {crash}")
            self._on_crash()

    def awake(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: self.run(action)

    def waking(self, action: Callable[[Item], None]) -> Callable[[Item], None]:
        return lambda item: self.run(lambda: action(item))

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.run(action)

    def ask(self, host: str, request: object, hear: Callable[[object], None]) -> None:
        """One request; None is heard when no answer came in time."""
        self.world.ask(self.host, host, request, self.waking(hear), ASK_PATIENCE_MS)

    def request(self, code: int, fields: Mapping[str, object]) -> RemotingCommand:
        return RemotingCommand(code, body=msgpack.packb(fields))

    def fields_of(self, answer: object) -> Mapping[str, Any] | None:
        """The map in an answer; None if there is no such answer."""
        if not isinstance(answer, RemotingCommand) or answer.code != ResponseCode.SUCCESS:
            return None
        return decode_map(answer.body_bytes())

    def tell(self, text: str) -> None:
        self.world.scheduler.tell(self.host, text)

    def register_soon(self) -> None:
        self._register_at_ms = 0

    def show_readers(self) -> None:
        """Show readers of this node all that they may see: they read everywhere, at all times."""
        entries, master = self.log.entries, self.roles.master
        limit = self._readers.offset(master.replicas.push2slave_max_offset if master else 0)
        # A set of two shows more than is safe: see `trioha.ha.readers`.
        if len(self.members) < OTHERS_MIN:
            return
        while self._shown < len(entries):
            entry = entries[self._shown]
            if limit is not None and entry.end > limit:
                return
            self._shown += 1
            self.world.checker.shown(self.host, entry)

    def cut(self, phy_offset: int) -> None:
        self.log.truncate(phy_offset)
        self._shown = min(self._shown, len(self.log.entries))
        self.world.checker.counts.cuts += 1

    def hello(self) -> Hello:
        """Return the hello with which this node describes itself to another one."""
        return Hello.of(BROKER, self.host, self.roles.mastership, self.log)

    def facts(self) -> Mapping[str, object]:
        """NODE_STATUS, as far as a failover reads it."""
        roles = self.roles
        slave: dict[str, object] = {}
        if roles.slave is not None:
            slave = {
                "state": "TRANSFER" if roles.slave.linked else "READY",
                "announced_offset": roles.slave.announced_offset,
            }
        connections = []
        if roles.master is not None:
            for host, machine in self.world.machines.items():
                replica = roles.master.follows(host)
                if replica is not None:
                    connections.append({"home_id": machine.home_id, "in_sync": replica.in_sync})
        ticket = self.failover.desk.ticket
        return {
            "name": BROKER,
            **roles.mastership.facts(self.log_end),
            "max_phy_offset": self.log_end,
            "ha_address": self.host,
            "follows": roles.slave.follows if roles.slave is not None else "",
            "ticket": None if ticket is None else ticket.as_dict(self.now_ms),
            "slave": slave,
            "connections": connections,
        }

    def _tick(self) -> None:
        self.roles.tick()
        self.show_readers()
        deadline_ms = self.failover.next_deadline_ms
        if deadline_ms is not None and self.now_ms >= deadline_ms:
            self.failover.on_time(self.instant)
        self.failover.on_log_grown()
        if self.now_ms >= self._flush_at_ms:
            self._flush_at_ms = self.now_ms + FLUSH_MS
            self.machine.file.flush()
        if self.now_ms >= self._register_at_ms:
            self._register_at_ms = self.now_ms + REGISTER_MS
            self._register()
        self.world.scheduler.after(TICK_MS, self.awake(self._tick))

    def _register(self) -> None:
        mastership = self.roles.mastership
        in_doubt = mastership.unconfirmed
        claim = RegisterNode(
            self.host,
            mastership.broker_id,
            mastership.epoch,
            mastership.nonce.hex(),
            in_doubt=in_doubt,
        )

        def hear(answer: object) -> None:
            if not isinstance(answer, RegisterAnswer):
                return
            if answer.stands:
                nonce = bytes.fromhex(answer.nonce)
                self.roles.hear(answer.epoch, nonce, answer.stands, decided=True)
            elif in_doubt:
                self.roles.questions.remembered = answer.remembers

        if mastership.broker_id or in_doubt or self.roles.master is not None:
            self.ask(self.world.namesrv.host, claim, hear)

    def _accept(self, end: End) -> None:
        channel = _Channel(end)

        def hear(item: Item) -> None:
            if isinstance(item, RemotingCommand):
                response = self._command(channel, item)
                if response is not None:
                    channel.send_nowait(response)
            else:
                self._handle(item, end.send)

        end.on_item = self.waking(hear)

    def _accept_slave(self, end: End) -> None:
        accepted = False

        def hear(item: Item) -> None:
            nonlocal accepted
            if accepted:
                # It had arrived while we were stopped, before a role was there to receive it.
                end.on_item(item)
                return
            mastership, master = self.roles.mastership, self.roles.master
            if master is None or item != (mastership.epoch, mastership.nonce):
                end.close()
            else:
                accepted = True
                master.accept(end)

        end.on_item = self.waking(hear)

    def _command(self, channel: _Channel, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.TRIOHA_NODE_STATUS:
            return request.response(body=msgpack.packb(self.facts()))
        try:
            return self._handlers[request.code](channel, request, self.instant)
        except CommandError as error:
            return request.response(error.code, error.remark)
        except RemoteProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))

    def _handle(self, request: Item, answer: Reply) -> None:
        if isinstance(request, Put):
            self.roles.put(request, answer)
        elif isinstance(request, Hello):
            answer(self.greeting.greet(request))


class _Channel:
    """A connection as the handlers see it."""

    peer_host = b"\x7f\0\0\x01\0\0\0\0"

    def __init__(self, end: End) -> None:
        self._end = end

    @property
    def peer(self) -> str:
        return self._end.peer

    @property
    def closed(self) -> bool:
        return not self._end.open

    def send_nowait(self, command: RemotingCommand) -> None:
        self._end.send(command)

    def request_nowait(
        self,
        command: RemotingCommand,
        deadline_ms: int,
        on_response: Callable[[RemotingCommand | None], None],
    ) -> None:
        raise AssertionError("a simulated node asks no client")

    def go_on_nowait(self, request: RemotingCommand) -> None:
        raise AssertionError("a simulated node is sent nothing that takes long")

    def mark_replication(self) -> None:
        pass

    def close_nowait(self, reason: str) -> None:
        self._end.close()
