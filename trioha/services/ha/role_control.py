"""Carries out the effects of a real node's role machine (`trioha.ha.role_machine`).

For clients a change of role sets a few values, in one scheduler pass
(`services.ha.client_service`). Links and the copying of tables run in a nursery
(`services.ha.role`), which ends and begins anew. A promotion prepares its term between the two
nurseries (`services.ha.term_preparation`).
"""

from __future__ import annotations

import attrs

from trioha.config import BrokerRole
from trioha.ha import role_effects as effects
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.role_effects import BeginTerm, CutHalfRecord, Dispatch, Effect, FlushLog
from trioha.ha.role_machine import RoleMachine
from trioha.services.ha.client_service import ClientService
from trioha.services.ha.role_journal import tell_effect
from trioha.services.ha.role_links import RoleLinks
from trioha.services.ha.term_preparation import TermPreparation
from trioha.services.ha.views import ControlledNode
from trioha.services.loop.host import random_source
from trioha.services.loop.signal import Signal
from trioha.services.node.namesrv_registration import BrokerIdentity


class RoleControl(RoleMachine):
    """The role of one node."""

    def __init__(
        self,
        node: ControlledNode,
        address: str,
        links: RoleLinks,
        clients: ClientService,
        preparation: TermPreparation,
    ) -> None:
        configured = node.config.broker_role
        super().__init__(
            node.config.broker_name,
            address,
            node.mastership,
            lambda: random_source().randbytes(NONCE_BYTES),
            configured_sync=(
                None if configured is BrokerRole.SLAVE else configured is BrokerRole.SYNC_MASTER
            ),
        )
        self.in_doubt = Signal()
        """Set to ask the members whether this node may be master (`services.ha.confirmation`)."""
        self.unsettled = Signal()
        """Set to ask the target of a hand-over whether it began (`services.ha.settlement`)."""
        self.began = Signal()
        """Set to announce this node to the members (`services.ha.announcement`)."""
        self._node = node
        self._links = links
        self._clients = clients
        self._preparation = preparation

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

    def carry_out(self, effect: Effect) -> None:
        node = self._node
        match effect:
            case effects.ChangeLinks():
                self._links.change()
            case effects.FollowMaster(address, ha_address, at_once):
                node.master_remoting_address.set(address)
                node.master_address.set(ha_address)
                node.registration.master_told()
                if at_once:
                    self._links.hurry()
            case effects.ForgetMaster():
                node.master_remoting_address.set("")
                node.master_address.set("")
                node.registration.forget_master()
            case effects.FollowAnew(reason):
                self._links.follow_anew(reason)
            case effects.Suspend(reason):
                self._links.suspend(reason)
            case effects.Resume():
                self._links.resume()
            case effects.Adopted():
                if self.broker_id != node.registration.identity.broker_id:
                    node.core.become(node.role, self.broker_id)
                    self._register()
            case effects.TakeWrites():
                self._clients.take_writes()
            case effects.StopWrites(reason):
                self._links.end_to_slaves(reason)
                self._clients.stop_writes()
                # The next master that a name server names counts as a new one.
                node.registration.forget_master()
            case effects.ParkWrites():
                self._clients.park()
            case effects.ReleaseParked():
                self._clients.release()
            case effects.RefuseParked(reason):
                self._clients.reject(reason)
            case effects.LimitReaders():
                node.reader_service.limit()
            case effects.SendClientsOn(address):
                self._clients.forward(address)
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
            case Dispatch() | CutHalfRecord() | FlushLog() | BeginTerm():
                self._preparation.add(effect)
            case _:
                tell_effect(node.events, effect)

    async def carry_out_between(self) -> None:
        """Prepare a promotion: the links of the old role have ended, the new role has not begun."""
        await self._preparation.run(self.begin)

    def _register(self) -> None:
        """Tell every name server at once what this node is."""
        config = attrs.evolve(self._node.config, broker_id=self.broker_id)
        self._node.registration.register_as(BrokerIdentity.of(config, self.mastership))
