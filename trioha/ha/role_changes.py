"""The role of a node of a master-slave set, and the ways to change it.

`_serve`, `_step_down` and `_become_slave` give out all effects of their change, in order; `_become`
checks every transition. `trioha.ha.role_machine` decides when a role changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from trioha.ha import role_effects as effects
from trioha.ha.mastership import Mastership, Standing
from trioha.ha.promotion import HandOver, Peer
from trioha.ha.role_effects import Effect
from trioha.ha.role_states import MASTERS, State, check_transition, state_of

AWAIT_SLAVE_MS = 1_000
PARKED_MS_MAX = 10_000
"""Limit of parking: no producer waits longer for the answer. A stock one gives up after 3 s."""


class RoleChanges(ABC):
    """State of a node, what the node keeps beside it, and every change of both."""

    def __init__(self, mastership: Mastership) -> None:
        self.mastership = mastership
        self.state = state_of(mastership)
        self.suspended = ""
        """Reason why this node follows no master for now; "" if it may follow one."""
        self.handed_over: HandOver | None = None
        self.awaits_slave_until_ms: int | None = None
        """Time at which AWAITS_SLAVE ends. Until the old master follows, no slave can hold new
        messages as a SYNC_MASTER promises, so writes wait for it, for a moment."""
        self.parks = False
        """Changes are parked; this outlives the states of a master."""
        self._parked_until_ms: int | None = None
        self._clients_wait = False
        """This node stepped down, and does not forward its clients to the new master yet."""
        self._master_home_id: int | None = None

    # Facts of the node, which a subclass provides.

    @property
    @abstractmethod
    def log_end(self) -> int: ...

    @property
    @abstractmethod
    def now_ms(self) -> int: ...

    @property
    @abstractmethod
    def wall_ms(self) -> int: ...

    @property
    @abstractmethod
    def follows(self) -> str:
        """Remoting address of the master that this node follows; "" when none."""

    @abstractmethod
    def carry_out(self, effect: Effect) -> None:
        """Do this now; effects come in the order in which they are to be done."""

    @property
    def is_master(self) -> bool:
        return self.state in MASTERS

    @property
    def broker_id(self) -> int:
        """The brokerId to register: a slave whose configured id is 0 takes the master's."""
        mastership = self.mastership
        is_slave = mastership.standing is Standing.SLAVE
        if is_slave and mastership.home_id == 0 and self._master_home_id is not None:
            return self._master_home_id
        return mastership.broker_id

    def master_known(self, address: str) -> None:
        """Forward clients and their parked requests to the new master; once."""
        if self.is_master or not self._clients_wait:
            return
        self._clients_wait, self.parks, self._parked_until_ms = False, False, None
        self._do(effects.SendClientsOn(address))

    def refuse_parked(self, reason: str) -> None:
        """Reject the parked writes."""
        self.parks, self._parked_until_ms = False, None
        self._do(effects.RefuseParked(reason))

    def _become(self, state: State) -> None:
        check_transition(self.state, state, self.mastership)
        self.state = state

    def _become_slave(self, master: Peer, *, at_once: bool = False) -> None:
        self.mastership.become_slave()
        if self.state not in (State.SLAVE, State.PROMOTING):
            self._become(State.SLAVE)
        self.handed_over, self._master_home_id = None, master.home_id
        self._do(
            effects.FollowMaster(master.address, master.ha_address, at_once), effects.Register()
        )
        self.master_known(master.address)

    def _step_down(self, state: State, reason: str) -> None:
        was_master = self.is_master
        self._become(state)
        self._do(effects.Fenced(self.mastership.known_epoch, reason))
        if not was_master:
            return
        self.awaits_slave_until_ms, self._clients_wait = None, True
        if self.parks:
            self._parked_until_ms = self.now_ms + PARKED_MS_MAX
        self._do(effects.StopWrites(reason), effects.ChangeLinks())

    def _serve(self, *, awaits_slave: bool = False) -> None:
        """Be master: of a new term, or of the old one that no newer term has replaced."""
        self._become(State.AWAITS_SLAVE if awaits_slave else State.MASTER)
        self.handed_over, self.suspended, self._clients_wait = None, "", False
        self._parked_until_ms, self.parks = None, awaits_slave
        self._do(
            effects.ForgetMaster(),
            effects.TakeWrites(),
            effects.LimitReaders(),
            effects.Register(),
            effects.ChangeLinks(),
            effects.Announce(),
        )
        if awaits_slave:
            self.awaits_slave_until_ms = self.now_ms + AWAIT_SLAVE_MS
            self._do(effects.ParkWrites())
        else:
            self._do(effects.ReleaseParked())

    def _do(self, *wanted: Effect) -> None:
        for effect in wanted:
            self.carry_out(effect)
