"""A replica set without sockets: real request processors and masterships, and faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs
import msgpack

from support.handlers.sending import FakeChannel
from trioha.broker.failover import FailoverProcessor
from trioha.broker.failover_audit import AuditTrail
from trioha.errors import CommandError, LocalProtocolError, RemoteProtocolError
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait
from trioha.failover.engine import FailoverEngine, Order
from trioha.failover.outcome import Outcome, Step
from trioha.ha.mastership import Mastership, Standing
from trioha.ha.promotion import Peer, Promotion
from trioha.journal import NullSink
from trioha.remoting.channel import Instant
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

BROKER = "broker-a"
NAMESRV = "10.0.0.9:9876"
T = TypeVar("T")


def address_of(home_id: int) -> str:
    return f"10.0.0.{home_id}:10911"


@attrs.frozen
class Fault:
    """Fault of `times` requests of one code to a node, after `skip` of them."""

    home_id: int
    code: RequestCode
    kind: str
    """``request lost``, ``answer lost``, ``refused``, ``dies before``, ``dies after``"""
    times: int = 1
    skip: int = 0


class FakeNode:
    """One member: its request processor over a role control that changes a real `Mastership`."""

    def __init__(self, replica_set: FakeSet, home_id: int) -> None:
        self.set = replica_set
        self.home_id = home_id
        self.address = address_of(home_id)
        self.alive = True
        self.saved = b""
        self.log_end = 1000
        self.audit = AuditTrail()
        self.start()

    def start(self) -> None:
        """From a process's start: tickets are gone, the mastership is as it was saved."""
        self.mastership = Mastership(self.home_id, self._save, self.saved or None)
        self.paused = False
        self.held_by_target: tuple[int, int] | None = None
        self.suspended = False
        self.follows = ""
        self.handed_over: tuple[Peer, str] | None = None
        self.unsettled = False
        self.processor = FailoverProcessor(BROKER, self, self, self.audit, NullSink())

    def _save(self, data: bytes) -> None:
        self.saved = data

    # trioha.broker.failover.RoleSteps and FailoverNode

    metadata_position = 0

    def facts(self) -> Mapping[str, object]:
        return {**self.mastership.facts(self.log_end), "max_phy_offset": self.log_end}

    def has_begun(self, nonce: bytes) -> bool:
        return self.mastership.has_begun(nonce)

    def pause(self) -> None:
        if self.mastership.standing is not Standing.MASTER:
            raise CommandError(16, f"this node is {self.mastership.standing.value}, not master")
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        self.held_by_target = (log_offset, metadata_position)

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None:
        self.mastership.hand_over(epoch, bytes.fromhex(ticket_id), f"handed over to {target}")
        self.handed_over = (target, ticket_id)

    def take_back(self) -> bool:
        void = bytes.fromhex(self.handed_over[1]) if self.handed_over is not None else b""
        self.paused, self.handed_over = False, None
        return self.mastership.resume(void)

    def promise(self, epoch: int, nonce: bytes) -> None:
        try:
            self.mastership.promise(epoch, nonce)
        except LocalProtocolError as error:
            raise CommandError(16, str(error)) from error

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        if self.mastership.standing is Standing.MASTER:
            raise CommandError(16, "this node is master already")
        if self.log_end < promotion.log_offset:
            done(f"the log ends at {self.log_end}, the old master's at {promotion.log_offset}")
            return
        self.mastership.learn_members(promotion.members)
        absent = self.mastership.lacks_promises(promotion.promised, promotion.written_off)
        if absent:
            raise CommandError(16, absent)
        self.mastership.begin_term(
            promotion.epoch, self.log_end, nonce=promotion.nonce, sync=True, wall_ms=0
        )
        self.paused, self.handed_over, self.suspended = False, None, False
        self.set.registered_master = self.address
        done("")

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None:
        self.mastership.hear(epoch, nonce, str(master), decided=True)
        self.mastership.become_slave()
        self.paused, self.handed_over, self.follows = False, None, master.address
        self.set.shake_hands(self)

    def suspend_following(self, reason: str) -> None:
        self.suspended = True

    def follow_again(self) -> None:
        self.suspended = False

    def left_alone(self) -> None:
        self.unsettled = self.handed_over is not None

    # The server's side.

    def status(self, now_ms: int) -> Mapping[str, object]:
        ticket = self.processor.desk.ticket
        return {
            **self.facts(),
            "name": BROKER,
            "ha_address": self.address.replace("10911", "10912"),
            "follows": self.follows,
            "members": {other.home_id: other.address for other in self.set.nodes.values()},
            "ticket": None if ticket is None else ticket.as_dict(now_ms),
            "slave": {"state": "TRANSFER", "announced_offset": self.log_end},
            "connections": [],
        }

    def answer(self, code: int, body: bytes) -> Answer | None:
        """The answer; None when it does not come yet."""
        instant = Instant(self.set.now_ms, self.set.now_ms)
        if code == RequestCode.TRIOHA_NODE_STATUS:
            return Answer(0, "", msgpack.packb(self.status(self.set.now_ms)))
        channel = FakeChannel()
        request = RemotingCommand(code, body=body)
        try:
            response = self.processor.handlers()[code](channel, request, instant)
        except CommandError as error:
            return Answer(error.code, error.remark)
        except RemoteProtocolError as error:
            return Answer(ResponseCode.SYSTEM_ERROR, str(error))
        response = response or next(iter(channel.sent), None)
        if response is None:
            return None
        return Answer(response.code, response.remark or "", response.body_bytes())


class FakeSet:
    """A master with id 0, slaves, one name server, and the operator's machine."""

    def __init__(self, size: int = 2) -> None:
        self.now_ms = 0
        self.registered_master = address_of(0)
        self.namesrv_alive = True
        self.faults: list[Fault] = []
        self.asked: list[tuple[int, RequestCode]] = []
        self._tickets = 0
        self.nodes = {address_of(home_id): FakeNode(self, home_id) for home_id in range(size)}
        master = self.node(0)
        master.mastership.begin_term(1, 0, nonce=b"first!!!", sync=True, wall_ms=0)
        for slave in list(self.nodes.values())[1:]:
            slave.follows = master.address
            slave.mastership.adopt(master.mastership.history)

    def node(self, home_id: int) -> FakeNode:
        return self.nodes[address_of(home_id)]

    @property
    def masters(self) -> list[int]:
        """Ids of the members that take writes."""
        return [
            node.home_id
            for node in self.nodes.values()
            if node.alive and node.mastership.standing is Standing.MASTER and not node.paused
        ]

    def order(self, *, to: int | None = None, force: bool = False) -> Order:
        self._tickets += 1
        return Order(
            broker_name=BROKER,
            namesrvs=(NAMESRV,),
            ticket_id=f"{self._tickets:016x}",
            operator=f"operator-{self._tickets}@ops",
            to=to,
            force=force,
        )

    def failover(
        self,
        order: Order | None = None,
        *faults: Fault,
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> Outcome:
        """One attempt from its beginning to its end."""
        self.faults = list(faults)
        engine = FailoverEngine(
            order or self.order(),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: self.now_ms,
            on_step=on_step,
        )
        outcome = self.drive(engine.run())
        self.faults = []
        return outcome

    def drive(self, flow: Flow[T]) -> T:
        """Run any flow against the nodes."""
        try:
            effect = next(flow)
            while True:
                if isinstance(effect, Wait):
                    self.pass_ms(int(effect.seconds * 1000))
                    effect = flow.send([])
                else:
                    effect = flow.send([self._ask(one) for one in effect])
        except StopIteration as end:
            result: T = end.value
            return result

    def pass_ms(self, elapsed_ms: int) -> None:
        """Let time pass and deadlines fire; a node left alone after a handover asks the target."""
        self.now_ms += elapsed_ms
        for node in self.nodes.values():
            if not node.alive:
                continue
            deadline_ms = node.processor.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                node.processor.on_time(Instant(self.now_ms, self.now_ms))
            if node.unsettled and node.handed_over is not None:
                self._settle(node, *node.handed_over)
            self.shake_hands(node)

    def settle(self) -> None:
        """Let everything expire and all nodes find out, as after a minute without an operator."""
        for _ in range(40):
            self.pass_ms(2_000)

    def revive(self, home_id: int) -> None:
        """Its process starts again; it hears of a newer epoch from the name server."""
        node = self.node(home_id)
        node.alive = True
        was_own = node.mastership.is_own
        node.start()
        master = self.nodes.get(self.registered_master)
        if master is None or master is node:
            if was_own and node.mastership.known_epoch == node.mastership.epoch:
                node.mastership.standing = Standing.MASTER
            elif was_own:
                node.mastership.standing = Standing.FENCED
            return
        node.follows = master.address
        self.shake_hands(node)

    def shake_hands(self, node: FakeNode) -> None:
        """A slave takes over its master's history."""
        master = self.nodes.get(node.follows)
        if (
            master is not None
            and master.alive
            and not node.suspended
            and node.mastership.standing is Standing.SLAVE
            and master.mastership.standing is Standing.MASTER
            and node.mastership.follows_term(master.mastership.epoch, master.mastership.nonce)
        ):
            node.mastership.adopt(master.mastership.history)

    def _settle(self, node: FakeNode, target: Peer, ticket_id: str) -> None:
        asked = self.nodes[target.address]
        if not asked.alive:
            return
        answer = asked.answer(RequestCode.RELEASE, msgpack.packb({"ticket_id": ticket_id}))
        if answer is None or not answer.is_success:
            return
        if answer.fields()["used"]:
            node.follow(target, asked.mastership.epoch, bytes.fromhex(ticket_id))
        else:
            node.take_back()
        node.unsettled = False

    def _ask(self, request: Ask) -> Reply:
        if request.address == NAMESRV:
            return self._ask_namesrv()
        node = self.nodes[request.address]
        code = RequestCode(request.code)
        if not node.alive:
            return Failed("connection refused", may_have_happened=False)
        self.asked.append((node.home_id, code))
        kind = self._fault_of(node.home_id, code)
        if kind == "refused":
            return Answer(ResponseCode.SYSTEM_ERROR, "no, said the test")
        if kind == "dies before":
            node.alive = False
            return Failed("connection closed")
        if kind == "request lost":
            self.pass_ms(int(request.patience_s * 1000))
            return Failed("no answer")
        answer = node.answer(request.code, request.command().body_bytes())
        if kind == "dies after":
            node.alive = False
            return Failed("connection closed")
        if kind == "answer lost" or answer is None:
            self.pass_ms(int(request.patience_s * 1000))
            return Failed("no answer")
        return answer

    def _ask_namesrv(self) -> Reply:
        if not self.namesrv_alive:
            return Failed("connection refused", may_have_happened=False)
        addresses: dict[int, str] = {}
        for node in self.nodes.values():
            if not node.alive:
                continue
            broker_id = 0 if node.address == self.registered_master else node.home_id or 7
            addresses[broker_id] = node.address
        info = ClusterInfo(
            {BROKER: BrokerData("c", BROKER, addresses)} if addresses else {}, {"c": (BROKER,)}
        )
        return Answer(0, "", info.encode())

    def _fault_of(self, home_id: int, code: RequestCode) -> str:
        for index, fault in enumerate(self.faults):
            if (fault.home_id, fault.code) != (home_id, code):
                continue
            if fault.skip:
                self.faults[index] = attrs.evolve(fault, skip=fault.skip - 1)
                return ""
            if fault.times > 1:
                self.faults[index] = attrs.evolve(fault, times=fault.times - 1)
            else:
                del self.faults[index]
            return fault.kind
        return ""
