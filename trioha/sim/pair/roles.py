"""Carries out what the role machine of a simulated node wants done (`trioha.ha.role_machine`).

The machine is the one of real nodes; `services/ha/role_control.py` carries out its effects there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trioha.ha import role_effects as effects
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.role_effects import Effect
from trioha.ha.role_machine import RoleMachine
from trioha.ha.role_states import State, check_state
from trioha.sim.pair.master_role import MasterRole, Reply
from trioha.sim.pair.messages import Put, PutAnswer
from trioha.sim.pair.open_mastership import open_mastership, start_mastership
from trioha.sim.pair.questions import Questions
from trioha.sim.pair.slave_role import SlaveRole
from trioha.sim.pair.views import SimProcess

PARKED_MAX = 64


class Roles(RoleMachine):
    """The role of one simulated node."""

    def __init__(self, node: SimProcess) -> None:
        super().__init__(
            node.status_name,
            node.host,
            open_mastership(node),
            partial(node.world.rng.randbytes, NONCE_BYTES),
            configured_sync=True,
        )
        self.master: MasterRole | None = None
        self.slave: SlaveRole | None = None
        self.questions = Questions(node)
        self._parked: list[tuple[Put, Reply]] = []
        self._node = node

    def start(self) -> None:
        node = self._node
        start_mastership(node, self.mastership)
        self.started()
        node.tell(f"starts as {self.state.value}, log end {node.log_end}")
        self.mastership.meet_members(node.members)
        self.carry_out(effects.ChangeLinks())
        if self.is_master:
            self.carry_out(effects.Announce())

    def tick(self) -> None:
        """Do what is due at this moment."""
        check_state(self.state, self.mastership)
        if self.master is not None:
            self.master.on_time()
        if self.slave is not None:
            self.slave.on_time()
        self.on_time(self.now_ms)
        self.questions.on_time()

    def put(self, put: Put, answer: Reply) -> None:
        if self.parks and len(self._parked) < PARKED_MAX:
            self._parked.append((put, answer))
        elif self.master is None or self.parks:
            answer(PutAnswer.REFUSED)
        else:
            self.master.put(put, answer)

    @property
    def log_end(self) -> int:
        return self._node.log_end

    @property
    def now_ms(self) -> int:
        return self._node.now_ms

    wall_ms = now_ms

    @property
    def follows(self) -> str:
        return self.slave.follows if self.slave is not None else ""

    def carry_out(self, effect: Effect) -> None:
        node = self._node
        match effect:
            case effects.ChangeLinks():
                self._change_links()
            case effects.FollowMaster(address):
                if self.slave is None or self.slave.follows != address:
                    self._change_links()
                if self.slave is not None:
                    self.slave.follows = address
            case effects.FollowAnew(reason):
                if self.slave is not None:
                    self.slave.follow_anew(reason)
            case effects.Suspend():
                if self.slave is not None:
                    self.slave.suspend()
            case effects.ReleaseParked():
                self._answer_parked(self.put)
            case effects.SendClientsOn() | effects.RefuseParked():
                # Clients look at the route and find the new master sooner than a parked put would.
                self._answer_parked(lambda _, answer: answer(PutAnswer.REFUSED))
            case effects.LimitReaders():
                node.show_readers()
            case effects.CutHalfRecord():
                node.log.drop_torn_tail()
            case effects.FlushLog():
                node.machine.file.flush()
            case effects.BeginTerm():
                self.begin()
            case effects.Register():
                node.register_soon()
            case effects.ForgetClaims():
                self.questions.remembered = False
            case effects.Announce():
                self.questions.announce()
            case effects.AskMembers():
                self.questions.doubt()
            case effects.AskTarget():
                self.questions.ask_target()
            case effects.LoseTicket():
                node.failover.role_lost()
            case effects.MasterAnnounced(nonce):
                node.failover.master_announced(nonce)
            case effects.Fenced() if self.state is State.FENCED and self.slave is None:
                node.tell(str(effect))
                self._change_links()
            case _:
                node.tell(str(effect))

    def _answer_parked(self, answer_one: Callable[[Put, Reply], None]) -> None:
        parked, self._parked = self._parked, []
        for put, answer in parked:
            answer_one(put, answer)

    def _change_links(self) -> None:
        """End what we were, begin what we are."""
        if self.master is not None:
            self.master.end()
        if self.slave is not None:
            self.slave.end()
        self.master = self.slave = None
        if self.is_master:
            self.master = MasterRole(self._node, self.mastership.epoch)
        elif self.state in (State.SLAVE, State.FENCED):
            self.slave = SlaveRole(self._node)
        self._node.register_soon()
