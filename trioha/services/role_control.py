"""Changes what a broker is, at run time: `trioha.broker.failover.RoleControl` on a real node.

Theory of operation. What a role means for clients is a matter of a few values, changed in one
scheduler pass; the rest (links, tables from the master) is a nursery (`services.role`).

* To stop being master is immediate. From the pass in which a newer epoch is heard of, or mastership
  is handed over, nothing is appended, who waits for a promise is told as at its deadline, and no
  ack counts.
* To become master takes a moment: the link to the old master ends, half a record at the log's end
  is cut, what has arrived is dispatched, so that queue offsets go on where they stopped, and the
  term is on disk before the first put.

While a planned switch is under way changes are parked: they are answered here if it is given up,
forwarded to the new master if it is not, and rejected with a code that sends clients back to the
route if no node says that it is master (`trioha.broker.request_gate`). Should whoever drives the
switch vanish after the hand-over, the old master asks the target by itself what became of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import msgpack
import trio

from trioha.broker.failover import Facts, Peer, Promotion
from trioha.broker.request_gate import DEMOTED, PAUSED, SERVING
from trioha.config import BrokerRole
from trioha.errors import (
    CommandError,
    DiskFull,
    LocalProtocolError,
    RemoteProtocolError,
    Unreachable,
)
from trioha.ha.candidacy import Candidacy
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.mastership import Standing
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.services.namesrv_registration import BrokerIdentity
from trioha.services.open_mastership import config_of_role
from trioha.services.remoting_client import open_remoting_client, parse_address
from trioha.store.accept_loss import forget_loss
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from trioha.services.master_slave_node import MasterSlaveNode

_SLICE_BYTES = 262_144
SETTLE_INTERVAL_S = 1.0
SETTLE_PATIENCE_S = 3.0
AWAIT_SLAVE_MS = 1_000
PARKED_MS_MAX = 10_000
"""After that nobody waits for the answer any more: a stock producer gives up after 3 s."""


class RoleControl:
    """Changes the role of one node."""

    def __init__(self, node: MasterSlaveNode) -> None:
        self.changed = trio.Event()
        """The role's nursery is to end; `carry_out` says what comes next."""
        self.audit = node.audit
        self._node = node
        self._configured = node.config
        self._parking = False
        self._was_master = False
        """Stepped down, and clients have not been sent on to the new master yet."""
        self._parked_until_ms: int | None = None
        self._promotion: tuple[Promotion, Callable[[str], None]] | None = None
        self._master_home_id: int | None = None
        self._handed_over: tuple[Peer, int, str] | None = None
        self._unsettled = trio.Event()
        self.awaits_slave_until_ms: int | None = None
        """Just promoted in a planned switch: the old master is about to follow, and until it does
        nothing would be as safe as a SYNC_MASTER promises. So writes wait for it, for a moment."""
        self.suspended = ""
        """Why nobody is to be followed from here for now; mostly ""."""
        self.scope: trio.CancelScope | None = None
        """Of the role's nursery."""
        self.in_doubt = trio.Event()
        """Members have to be asked whether this node is still master (`services.confirmation`)."""
        self.candidacy = Candidacy(node.mastership, lambda: os.urandom(NONCE_BYTES))
        self.began = trio.Event()
        """This node has become master, or has met a new member: the members are to hear of it."""

    # What other nodes and the status are told.

    @property
    def log_end(self) -> int:
        return self._node.store.max_phy_offset

    @property
    def metadata_position(self) -> int:
        node = self._node
        if node.role is not BrokerRole.SLAVE:
            return node.core.metadata.position_of_changes
        return node.ha_client.metadata_position if node.ha_client is not None else -1

    @property
    def broker_id(self) -> int:
        """What we register as: a slave whose own id is 0 takes that of the master."""
        mastership = self._node.mastership
        is_slave = mastership.standing is Standing.SLAVE
        if is_slave and mastership.home_id == 0 and self._master_home_id is not None:
            return self._master_home_id
        return mastership.broker_id

    def facts(self) -> Facts:
        mastership = self._node.mastership
        return {
            "home_id": mastership.home_id,
            "standing": mastership.standing.value,
            "epoch": mastership.known_epoch,
            "promised_epoch": mastership.promise_given[0],
            "log_epoch": mastership.history.epoch_at(self.log_end),
            "max_phy_offset": self.log_end,
            "metadata_position": self.metadata_position,
            "sync": mastership.newest.sync if mastership.newest is not None else None,
            "puts_parked": self._node.gate.parked_count,
        }

    def has_begun(self, nonce: bytes) -> bool:
        return self._node.mastership.has_begun(nonce)

    def keep_audit(self, record: Mapping[str, object]) -> None:
        self.audit.keep(record)
        self._node.persist.check()
        self._node.events.event(
            "failover",
            ticket=str(record.get("ticket_id")),
            operator=str(record.get("operator")),
            result=str(record.get("result")),
            message=str(record.get("message")),
        )

    def audit_records(self) -> list[Mapping[str, object]]:
        return self.audit.records

    # A planned switch, at the master.

    def pause(self) -> None:
        node = self._node
        if node.mastership.standing is not Standing.MASTER:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"this node is {node.mastership.standing.value}, not master",
            )
        node.core.pause()
        self._parking, self.awaits_slave_until_ms = True, None
        node.gate.park(PAUSED)

    def resume(self) -> None:
        node = self._node
        if node.mastership.standing is Standing.MASTER:
            node.core.become(node.role, self.broker_id)
            self._answer_parked()
            node.schedule_message.check()

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        node = self._node
        node.replicas.count_acknowledged(
            min(log_offset, self.log_end), min(metadata_position, self.metadata_position)
        )
        node.slave_reported(node.clock.now_ms())

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None:
        node = self._node
        mastership = node.mastership
        if mastership.standing is not Standing.MASTER:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"this node is {mastership.standing.value} in epoch {mastership.known_epoch}",
            )
        try:
            mastership.hand_over(
                epoch, bytes.fromhex(ticket_id), f"handed over to {target} for epoch {epoch}"
            )
        except LocalProtocolError as error:
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        self._handed_over = (target, epoch, ticket_id)
        # Where it was last a slave of is nobody to ask before the target is master.
        self._forget_master()
        self._step_down(mastership.fenced_by)

    def take_back(self) -> bool:
        """What was handed over is void: master again, if nothing newer is known."""
        node = self._node
        void = bytes.fromhex(self._handed_over[2]) if self._handed_over is not None else b""
        if not node.mastership.resume(void):
            if node.mastership.unconfirmed:
                # Another term was promised meanwhile: the members know whether it began.
                self._handed_over = None
                self.in_doubt.set()
            return False
        self._become_master()
        self._end_role()
        return True

    # A master in doubt: after its start, or because its slaves promised a term to another node.

    def doubted(self, reason: str) -> None:
        """Members promised a newer term: take no writes until the members were asked."""
        self._node.failover.role_lost()
        self._step_down(reason)
        self._node.registration.forget_claims()
        self.register()
        self.in_doubt.set()

    def confirmed(self) -> None:
        """Nobody stands against our being master again."""
        self._become_master()
        self._end_role()

    def begin_anew(self, epoch: int, nonce: bytes) -> None:
        """Begin a new term as master.

        Errors: LocalProtocolError when a newer term was promised or has begun meanwhile.
        """
        node, mastership = self._node, self._node.mastership
        newest = mastership.newest
        record = mastership.begin_term(
            epoch,
            node.store.max_phy_offset,
            nonce=nonce,
            sync=newest is not None and newest.sync,
            wall_ms=node.clock.wall_ms(),
        )
        node.events.event(
            "epoch_began",
            epoch=record.epoch,
            start_offset=record.start_offset,
            sync=record.sync,
        )
        self.confirmed()

    # A new master, here or elsewhere.

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        mastership = self._node.mastership
        if mastership.standing is Standing.MASTER:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"this node is master already, in epoch {mastership.epoch}",
            )
        if not mastership.follows_term(promotion.epoch, promotion.nonce):
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"epoch {promotion.epoch} is not newer than {mastership.promised[0]}",
            )
        mastership.learn_members(promotion.members)
        absent = mastership.lacks_promises(promotion.promised, promotion.written_off)
        if absent:
            raise CommandError(ResponseCode.NO_PERMISSION, absent)
        self._promotion = (promotion, done)
        self._end_role()

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None:
        node = self._node
        mastership = node.mastership
        if master.address == node.addresses.listen or epoch < mastership.known_epoch:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"{master} of epoch {epoch} is not to be followed from here, where epoch "
                f"{mastership.known_epoch} is known",
            )
        if mastership.hear(epoch, nonce, str(master), decided=True):
            self._step_down(mastership.fenced_by)
        mastership.become_slave()
        self._handed_over = None
        self._master_home_id = master.home_id
        node.master_remoting_address.set(master.address)
        node.master_address.set(master.ha_address)
        self.register()
        self.master_known(master.address)

    def master_known(self, address: str) -> None:
        """Where clients are to go: those that do not know yet are helped on."""
        node = self._node
        if node.role is not BrokerRole.SLAVE or not self._was_master:
            return
        self._was_master = False
        self._parking, self._parked_until_ms = False, None
        now_ms = node.clock.now_ms()
        with node.outboxes.batch():
            node.gate.forward(DEMOTED, address, now_ms, node.core.client_registrations(now_ms))
        node.failover_alarm.check()

    def promise(self, epoch: int, nonce: bytes) -> None:
        """Promise a term to a candidate of the operator's: nothing older is acknowledged."""
        try:
            self._node.mastership.promise(epoch, nonce)
        except LocalProtocolError as error:
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        self.promised()

    def promised(self) -> None:
        """A promise was given: the link to a master of an older term ends in this pass."""
        node = self._node
        node.events.event("promised", epoch=node.mastership.promised[0])
        if node.ha_client is not None:
            node.ha_client.follow_anew("this node has promised a newer epoch")

    def announced(self, home_id: int, address: str, ha_address: str) -> None:
        """The master of the newest term has named itself: follow it now."""
        node = self._node
        if node.mastership.unconfirmed or address == node.addresses.listen:
            return
        node.failover.master_announced(node.mastership.promise_given[1])
        node.mastership.become_slave()
        self._handed_over, self._master_home_id = None, home_id
        node.master_remoting_address.set(address)
        node.master_address.set(ha_address)
        self.register()
        self.master_known(address)
        if node.ha_client is not None:
            node.ha_client.hurry()

    def member_met(self) -> None:
        """Every member counts the same members when a term needs promises."""
        self.began.set()

    @property
    def follows(self) -> str:
        return self._node.master_remoting_address.value

    @property
    def ticket_holder(self) -> str:
        ticket = self._node.failover.desk.ticket
        return ticket.operator if ticket is not None else ""

    def fenced(self, reason: str) -> None:
        """Somebody holds a newer epoch: stop being master in this very pass."""
        self._node.failover.role_lost()
        self._step_down(reason)
        self.register()
        if address := self._node.master_remoting_address.value:
            self.master_known(address)

    def suspend_following(self, reason: str) -> None:
        self.suspended = reason
        if self._node.ha_client is not None:
            self._node.ha_client.suspend(reason)

    def follow_again(self) -> None:
        self.suspended = ""
        if self._node.ha_client is not None:
            self._node.ha_client.resume()

    def history_adopted(self) -> None:
        """We follow by our master's history from now on: our id may be another by it."""
        if self.broker_id != self._node.registration.identity.broker_id:
            self._node.core.become(self._node.role, self.broker_id)
            self.register()

    def left_alone(self) -> None:
        """Who handed over and was never told to follow asks the target what became of it."""
        if self._handed_over is not None:
            self._unsettled.set()

    async def settle(self) -> None:
        """Whenever a hand-over is left open: ask its target until it says what it is, void or done.

        Runs as long as the node does.
        """
        while True:
            await self._unsettled.wait()
            self._unsettled = trio.Event()
            while self._handed_over is not None:
                target, epoch, ticket_id = self._handed_over
                used = await self._ask_whether_used(target, ticket_id)
                if self._handed_over is None or used is None:
                    await trio.sleep(SETTLE_INTERVAL_S)
                elif used:
                    self.follow(target, epoch, bytes.fromhex(ticket_id))
                elif not self.take_back():
                    break

    async def _ask_whether_used(self, target: Peer, ticket_id: str) -> bool | None:
        """Has the target become master under this ticket? Asking ends it. None: nobody knows."""
        node, (host, port) = self._node, parse_address(target.address)
        body = msgpack.packb({"ticket_id": ticket_id})
        with trio.move_on_after(SETTLE_PATIENCE_S):
            try:
                async with open_remoting_client(
                    host, port, node.clock, connect_to=node.connect_to
                ) as client:
                    response = await client.request(RemotingCommand(RequestCode.RELEASE, body=body))
                if response.code == ResponseCode.SUCCESS:
                    used = decode_map(response.body_bytes()).get("used")
                    return used if isinstance(used, bool) else None
            except (Unreachable, RemoteProtocolError):
                return None
        return None

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (
            self._parked_until_ms,
            self.awaits_slave_until_ms,
            self._node.forwarding.next_deadline_ms,
        )
        return min((one for one in deadlines if one is not None), default=None)

    def on_time(self, instant: Instant) -> None:
        """Nobody has said who is master: clients find out from the route sooner."""
        node = self._node
        if self._parked_until_ms is not None and instant.now_ms >= self._parked_until_ms:
            self._refuse_parked("this node is not master any more, and knows of none")
        waits_ms = self.awaits_slave_until_ms
        if waits_ms is not None and instant.now_ms >= waits_ms:
            self.awaits_slave_until_ms = None
            self.resume()
        until_ms = node.forwarding.next_deadline_ms
        if until_ms is not None and instant.now_ms >= until_ms:
            node.gate.serve(SERVING, instant)

    # The change itself.

    async def carry_out(self) -> None:
        """Between two roles: nothing of the old one runs any more."""
        if self._promotion is None:
            return
        (promotion, done), self._promotion = self._promotion, None
        reason = await self._prepare(promotion)
        node = self._node
        with node.outboxes.batch():
            if not reason:
                reason = self._begin(promotion)
            done(reason)
        if reason:
            node.events.event("promotion_failed", epoch=promotion.epoch, reason=reason)

    async def _prepare(self, promotion: Promotion) -> str:
        """Bring log and queues into the state that a master needs; why not, if it cannot be."""
        node, store = self._node, self._node.store
        try:
            while store.dispatch(_SLICE_BYTES):
                await trio.lowlevel.checkpoint()
            if store.dispatched_offset < store.max_phy_offset:
                # What a cut link left of a record.
                store.truncate_log(store.dispatched_offset)
        except DiskFull as error:
            return f"no room to bring the queues up to the log: {error}"
        end = store.max_phy_offset
        if end < promotion.log_offset:
            return f"the log ends at {end}, the old master's at {promotion.log_offset}"
        node.on_dispatched()
        await node.flush.flush_log()
        return ""

    def _begin(self, promotion: Promotion) -> str:
        node = self._node
        mastership = node.mastership
        configured = self._configured.broker_role
        sync = configured is BrokerRole.SYNC_MASTER
        if configured is BrokerRole.SLAVE:
            newest = mastership.newest
            sync = promotion.sync if promotion.sync is not None else bool(newest and newest.sync)
        end = node.store.max_phy_offset
        try:
            record = mastership.begin_term(
                promotion.epoch,
                end,
                nonce=promotion.nonce,
                sync=sync,
                wall_ms=node.clock.wall_ms(),
            )
        except LocalProtocolError as error:
            # While the disk was at work somebody has told of a newer one.
            return str(error)
        node.events.event(
            "epoch_began", epoch=record.epoch, start_offset=record.start_offset, sync=sync
        )
        self._become_master(awaits_slave=promotion.planned)
        return ""

    def _become_master(self, *, awaits_slave: bool = False) -> None:
        node = self._node
        self._handed_over, self._was_master, self.suspended = None, False, ""
        node.config = config_of_role(self._configured, node.mastership)
        node.role = node.config.broker_role
        node.replicas.begin_term()
        self._forget_master()
        node.core.become(node.role, self.broker_id)
        self.say_role()
        self.register()
        if awaits_slave and node.role is BrokerRole.SYNC_MASTER:
            self.pause()
            self.awaits_slave_until_ms = node.clock.now_ms() + AWAIT_SLAVE_MS
            node.failover_alarm.check()
        else:
            self._answer_parked()
        node.schedule_message.check()
        node.persist.check()
        forget_loss(node.store.config.root)
        self.began.set()

    def slave_acknowledged(self) -> None:
        """While `awaits_slave_until_ms` is set: a slave has reported."""
        if self._node.replicas.slave_available(self.log_end):
            self.awaits_slave_until_ms = None
            self.resume()

    def _step_down(self, reason: str) -> None:
        node = self._node
        node.events.event("fenced", epoch=node.mastership.known_epoch, reason=reason)
        if node.role is BrokerRole.SLAVE:
            return
        node.config = config_of_role(self._configured, node.mastership)
        node.role = BrokerRole.SLAVE
        if node.ha_master is not None:
            node.ha_master.end_nowait(f"not master any more: {reason}")
            node.ha_master = None
        self.awaits_slave_until_ms = None
        node.core.become(node.role, self.broker_id)
        node.give_up_waiting()
        self._was_master = True
        # Whatever name servers say from now on is news.
        node.registration.forget_master()
        if self._parking:
            self._parked_until_ms = node.clock.now_ms() + PARKED_MS_MAX
            node.failover_alarm.check()
        self.say_role()
        self._end_role()

    def _end_role(self) -> None:
        """Links of the old role end at their next checkpoint; then `carry_out`."""
        self.changed.set()
        if self.scope is not None:
            self.scope.cancel()

    def _forget_master(self) -> None:
        node = self._node
        node.master_remoting_address.set("")
        node.master_address.set("")
        node.registration.forget_master()

    def say_role(self, events: EventSink | None = None) -> None:
        """For the journal; to `events` where it is not to count as a change."""
        node = self._node
        (events or node.events).event(
            "role",
            role=node.role.value,
            broker_id=self.broker_id,
            heartbeat_interval_ms=node.config.ha_send_heartbeat_interval,
            heartbeat_limit_ms=node.config.ha_housekeeping_interval,
        )

    def register(self) -> None:
        """Tell every name server at once what we are."""
        node = self._node
        mastership = node.mastership
        node.registration.identity = BrokerIdentity.of(
            attrs.evolve(node.config, broker_id=self.broker_id), mastership
        )
        node.registration.topics_changed()

    def stop(self) -> None:
        """The node ends: who is parked hears so while its connection is there."""
        self._refuse_parked("the broker is shutting down")

    # What was parked.

    def _answer_parked(self) -> None:
        self._parking, self._parked_until_ms = False, None
        with self._node.outboxes.batch():
            self._node.gate.serve(SERVING, self._node.clock.instant())
            self._node.after_batch()

    def _refuse_parked(self, reason: str) -> None:
        self._parking, self._parked_until_ms = False, None
        with self._node.outboxes.batch():
            self._node.gate.reject(SERVING, reason)
