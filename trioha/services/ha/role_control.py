"""Carries out what the role machine of a real node wants done (`trioha.ha.role_machine`).

What a role means for clients is a matter of a few values, changed in one scheduler pass; the rest
(links, tables from the master) is a nursery (`services.ha.role`), which ends and begins anew. A
promotion does its disk work between the two nurseries.

While a planned switch is under way changes are parked: they are answered here if it is given up,
forwarded to the new master if it is not, and rejected with a code that sends clients back to the
route if no node says that it is master (`trioha.broker.request_gate`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs
import trio

from trioha.broker.failover import Facts
from trioha.broker.request_gate import DEMOTED, PAUSED, SERVING
from trioha.config import BrokerRole
from trioha.errors import DiskFull
from trioha.ha import role_effects as effects
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.role_effects import Effect
from trioha.ha.role_machine import RoleMachine
from trioha.journal import EventSink
from trioha.remoting.channel import Instant
from trioha.services.ha.open_mastership import config_of_role
from trioha.services.ha.views import ControlledNode
from trioha.services.node.namesrv_registration import BrokerIdentity
from trioha.store.accept_loss import forget_loss

_SLICE_BYTES = 262_144


class RoleControl(RoleMachine):
    """The role of one node."""

    def __init__(self, node: ControlledNode) -> None:
        configured = node.config.broker_role
        super().__init__(
            node.config.broker_name,
            node.addresses.listen,
            node.mastership,
            lambda: os.urandom(NONCE_BYTES),
            configured_sync=(
                None if configured is BrokerRole.SLAVE else configured is BrokerRole.SYNC_MASTER
            ),
        )
        self.audit = node.audit
        self.changed = trio.Event()
        """The role's nursery is to end; `carry_out_between` says what comes next."""
        self.scope: trio.CancelScope | None = None
        """Of the role's nursery."""
        self.in_doubt = trio.Event()
        """Members are to be asked who is master now (`services.ha.confirmation`)."""
        self.unsettled = trio.Event()
        """The target of a hand-over is to be asked what became of it (`services.ha.settlement`)."""
        self.began = trio.Event()
        """This node has become master, or has met a new member: the members are to hear of it."""
        self._node = node
        self._configured = node.config
        self._between: list[Effect] = []
        """To be done once the links of the old role have ended."""

    # What other nodes, the machine and the status are told.

    @property
    def role(self) -> BrokerRole:
        return self._node.role

    @property
    def log_end(self) -> int:
        return self._node.store.max_phy_offset

    @property
    def now_ms(self) -> int:
        return self._node.clock.now_ms()

    @property
    def wall_ms(self) -> int:
        return self._node.clock.wall_ms()

    @property
    def follows(self) -> str:
        return self._node.master_remoting_address.value

    @property
    def ticket_holder(self) -> str:
        ticket = self._node.failover.desk.ticket
        return ticket.operator if ticket is not None else ""

    @property
    def metadata_position(self) -> int:
        node = self._node
        if node.role is not BrokerRole.SLAVE:
            return node.core.metadata.position_of_changes
        return node.ha_client.metadata_position if node.ha_client is not None else -1

    def facts(self) -> Facts:
        mastership = self.mastership
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

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        node = self._node
        node.replicas.count_acknowledged(
            min(log_offset, self.log_end), min(metadata_position, self.metadata_position)
        )
        node.slave_reported(node.clock.now_ms())

    def slave_acknowledged(self) -> None:
        """While `awaits_slave_until_ms` is set: a slave has reported."""
        if self._node.replicas.slave_available(self.log_end):
            self.slave_in_sync()

    # Time.

    def next_alarm_ms(self) -> int | None:
        deadlines = (self.next_deadline_ms, self._node.forwarding.next_deadline_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def on_alarm(self, instant: Instant) -> None:
        node = self._node
        if node.stopping:
            return
        self.on_time(instant.now_ms)
        until_ms = node.forwarding.next_deadline_ms
        if until_ms is not None and instant.now_ms >= until_ms:
            node.gate.serve(SERVING, instant)

    # Effects.

    def carry_out(self, effect: Effect) -> None:
        node = self._node
        match effect:
            case effects.ChangeLinks():
                self.changed.set()
                if self.scope is not None:
                    self.scope.cancel()
            case (
                effects.Dispatch()
                | effects.CutHalfRecord()
                | effects.FlushLog()
                | effects.BeginTerm()
            ):
                self._between.append(effect)
            case effects.FollowMaster(address, ha_address, at_once):
                node.master_remoting_address.set(address)
                node.master_address.set(ha_address)
                if at_once and node.ha_client is not None:
                    node.ha_client.hurry()
            case effects.ForgetMaster():
                node.master_remoting_address.set("")
                node.master_address.set("")
                node.registration.forget_master()
            case effects.FollowAnew(reason):
                if node.ha_client is not None:
                    node.ha_client.follow_anew(reason)
            case effects.Suspend(reason):
                if node.ha_client is not None:
                    node.ha_client.suspend(reason)
            case effects.Resume():
                if node.ha_client is not None:
                    node.ha_client.resume()
            case effects.Adopted():
                if self.broker_id != node.registration.identity.broker_id:
                    node.core.become(node.role, self.broker_id)
                    self._register()
            case effects.ParkWrites():
                node.core.pause()
                node.gate.park(PAUSED)
                node.failover_alarm.check()
            case effects.TakeWrites():
                self._take_writes()
            case effects.StopWrites(reason):
                self._stop_writes(reason)
            case effects.ReleaseParked():
                self._release_parked()
            case effects.RefuseParked(reason):
                self._reject_parked(reason)
            case effects.SendClientsOn(address):
                self._forward_clients(address)
            case effects.Register():
                self._register()
            case effects.ForgetClaims():
                node.registration.forget_claims()
            case effects.Announce():
                self.began.set()
            case effects.AskMembers():
                self.in_doubt.set()
            case effects.AskTarget():
                self.unsettled.set()
            case effects.LoseTicket():
                node.failover.role_lost()
            case effects.MasterAnnounced(nonce):
                node.failover.master_announced(nonce)
            case effects.TermBegun(record):
                node.events.event(
                    "epoch_began",
                    epoch=record.epoch,
                    start_offset=record.start_offset,
                    sync=record.sync,
                )
            case effects.Fenced(epoch, reason):
                node.events.event("fenced", epoch=epoch, reason=reason)
            case effects.Promised(epoch):
                node.events.event("promised", epoch=epoch)
            case effects.Confirmed(epoch, reason):
                node.events.event("confirmed", epoch=epoch, reason=reason)
            case effects.PromotionFailed(epoch, reason):
                node.events.event("promotion_failed", epoch=epoch, reason=reason)

    async def carry_out_between(self) -> None:
        """Between two roles, when nothing of the old one runs any more: prepare a promotion."""
        between, self._between = self._between, []
        reason = ""
        for effect in between:
            if isinstance(effect, effects.BeginTerm):
                with self._node.outboxes.batch():
                    self.begin(reason)
            elif not reason:
                reason = await self._prepare(effect)

    async def _prepare(self, effect: Effect) -> str:
        """Bring log and queues into the state that a master needs; why not, if it cannot be."""
        node, store = self._node, self._node.store
        try:
            if isinstance(effect, effects.Dispatch):
                while store.dispatch(_SLICE_BYTES):
                    await trio.lowlevel.checkpoint()
            elif isinstance(effect, effects.CutHalfRecord):
                if store.dispatched_offset < store.max_phy_offset:
                    store.truncate_log(store.dispatched_offset)
                node.on_dispatched()
            else:
                await node.flush.flush_log()
        except DiskFull as error:
            return f"no room to bring the queues up to the log: {error}"
        return ""

    def _take_writes(self) -> None:
        node = self._node
        self._take_role()
        node.replicas.begin_term()
        node.core.become(node.role, self.broker_id)
        self.say_role()
        node.persist.check()
        forget_loss(node.store.config.root)

    def _stop_writes(self, reason: str) -> None:
        node = self._node
        self._take_role()
        if node.ha_master is not None:
            node.ha_master.end_nowait(f"not master any more: {reason}")
            node.ha_master = None
        node.core.become(node.role, self.broker_id)
        node.give_up_waiting()
        # Whatever name servers say from now on is news.
        node.registration.forget_master()
        node.failover_alarm.check()
        self.say_role()

    def _take_role(self) -> None:
        self._node.config = config_of_role(self._configured, self.mastership)
        self._node.role = self._node.config.broker_role

    def _register(self) -> None:
        """Tell every name server at once what we are."""
        node = self._node
        node.registration.identity = BrokerIdentity.of(
            attrs.evolve(node.config, broker_id=self.broker_id), self.mastership
        )
        node.registration.topics_changed()

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

    # Parked requests, and clients with an old route.

    def _forward_clients(self, address: str) -> None:
        node, now_ms = self._node, self.now_ms
        with node.outboxes.batch():
            node.gate.forward(DEMOTED, address, now_ms, node.core.client_registrations(now_ms))
        node.failover_alarm.check()

    def _release_parked(self) -> None:
        node = self._node
        node.core.become(node.role, self.broker_id)
        with node.outboxes.batch():
            node.gate.serve(SERVING, node.clock.instant())
            node.after_batch()
        node.schedule_message.check()

    def _reject_parked(self, reason: str) -> None:
        with self._node.outboxes.batch():
            self._node.gate.reject(SERVING, reason)
