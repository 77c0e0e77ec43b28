"""Carries out what the role machine of a simulated node wants done (`trioha.ha.role_machine`).

The machine is the one of real nodes; `services/ha/role_control.py` carries out its effects there.
The simulation's own part is what a master's writes, links and questions are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from trioha.ha import role_effects as effects
from trioha.ha.candidacy import Answers
from trioha.ha.epochs import NONCE_BYTES
from trioha.ha.hello import Hello, HelloAnswer
from trioha.ha.mastership import Mastership, kept_history
from trioha.ha.role_effects import Effect
from trioha.ha.role_machine import RoleMachine
from trioha.ha.role_states import State, check_state
from trioha.sim.pair.master_role import Answer, MasterRole
from trioha.sim.pair.messages import Put, PutStatus
from trioha.sim.pair.slave_role import SlaveRole
from trioha.sim.pair.views import SimProcess
from trioha.wire.codes import RequestCode

PARKED_MAX = 64
CONFIRM_MS = 300
RESTART_PATIENCE_MS = 1500
CONFIRM_PATIENCE_MS = 3000


class Roles(RoleMachine):
    """The role of one simulated node."""

    def __init__(self, node: SimProcess) -> None:
        machine = node.machine
        mastership = Mastership(
            machine.home_id,
            self._save,
            machine.epochs.payload,
            boot=machine.boot.to_bytes(4, "big"),
        )
        super().__init__(
            node.status_name,
            node.host,
            mastership,
            partial(node.world.rng.randbytes, NONCE_BYTES),
            configured_sync=True,
        )
        self.master: MasterRole | None = None
        self.slave: SlaveRole | None = None
        self.remembered = False
        """The name server remembers our claim from before our doubt."""
        self._told_nonce = mastership.nonce
        """Of the newest term that the judge knows of."""
        self._doubts_since_ms = node.now_ms
        self._parked: list[tuple[Put, Answer]] = []
        self._asks_target = False
        """The attempt is over, and nobody has said whom to follow."""
        self._ask_at_ms = 0
        self._node = node

    def start(self) -> None:
        node, mastership = self._node, self.mastership
        mastership.start(
            configured_master=node.machine.home_id == 0,
            log_end=node.log_end,
            nonce=node.world.rng.randbytes(NONCE_BYTES),
            sync=True,
            wall_ms=node.now_ms,
            # Every process here ends in a crash.
            clean=False,
        )
        self.started()
        node.tell(f"starts as {self.state.value}, log end {node.log_end}")
        mastership.meet_members(node.members)
        self.carry_out(effects.ChangeLinks())
        if self.is_master:
            self.carry_out(effects.Announce())

    def tick(self) -> None:
        """What is due at this moment."""
        check_state(self.state, self.mastership)
        if self.master is not None:
            self.master.on_time()
        if self.slave is not None:
            self.slave.on_time()
        self.on_time(self.now_ms)
        asks_target = self._asks_target and self.state is State.HANDED_OVER
        if self.now_ms >= self._ask_at_ms and (asks_target or self.state is State.UNCONFIRMED):
            self._ask_at_ms = self.now_ms + CONFIRM_MS
            if asks_target:
                self._ask_target()
            else:
                self._hear_members(self._node.hello(), self._conclude)

    def put(self, put: Put, answer: Answer) -> None:
        if self.parks and len(self._parked) < PARKED_MAX:
            self._parked.append((put, answer))
        elif self.master is None or self.parks:
            answer(PutStatus.REFUSED)
        else:
            self.master.put(put, answer)

    # What other nodes and the machine are told.

    @property
    def log_end(self) -> int:
        return self._node.log_end

    @property
    def now_ms(self) -> int:
        return self._node.now_ms

    @property
    def wall_ms(self) -> int:
        return self._node.now_ms

    @property
    def metadata_position(self) -> int:
        return 0  # nothing but the log is simulated

    @property
    def follows(self) -> str:
        return self.slave.follows if self.slave is not None else ""

    @property
    def ticket_holder(self) -> str:
        ticket = self._node.failover.desk.ticket
        return ticket.operator if ticket is not None else ""

    def facts(self) -> Mapping[str, object]:
        return self._node.status()

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        pass

    def keep_audit(self, record: Mapping[str, object]) -> None:
        pass

    def audit_records(self) -> list[Mapping[str, object]]:
        return []

    # Effects.

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
                parked, self._parked = self._parked, []
                for put, answer in parked:
                    self.put(put, answer)
            case effects.SendClientsOn() | effects.RefuseParked():
                # Clients look at the route and find the new master sooner than a parked put would.
                parked, self._parked = self._parked, []
                for _, answer in parked:
                    answer(PutStatus.REFUSED)
            case effects.CutHalfRecord():
                node.log.drop_torn_tail()
            case effects.FlushLog():
                node.machine.file.flush()
            case effects.BeginTerm():
                self.begin()
            case effects.Register():
                node.register_soon()
            case effects.ForgetClaims():
                self.remembered = False
            case effects.Announce():
                self._announce()
            case effects.AskMembers():
                self._doubts_since_ms = node.now_ms
            case effects.AskTarget():
                self._asks_target = True
            case effects.LoseTicket():
                node.failover.role_lost()
            case effects.MasterAnnounced(nonce):
                node.failover.master_announced(nonce)
            case effects.Fenced():
                node.tell(str(effect))
                if self.state is State.FENCED and self.slave is None:
                    self._change_links()
            case _:
                node.tell(str(effect))

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

    def _announce(self) -> None:
        """Every member hears at once who is master."""
        hello = attrs.evolve(self._node.hello(), ha_address=self._node.host)
        for host in self._node.members.values():
            self._node.ask(host, hello, lambda answer: None)

    def _conclude(self, answers: Answers) -> None:
        """May we be master again?"""
        waited_ms = self.now_ms - self._doubts_since_ms
        term = self.members_said(
            answers,
            remembered=self.remembered,
            moment_over=waited_ms > RESTART_PATIENCE_MS,
            patience_over=waited_ms > CONFIRM_PATIENCE_MS,
        )
        if term is None:
            return

        def begin(answers: Answers) -> None:
            if self.has_promises(term, answers):
                self._node.machine.file.flush()
                self.begin_anew(term)

        wish = attrs.evolve(self._node.hello(), wants_epoch=term.epoch, wants_nonce=term.nonce)
        self._hear_members(wish, begin)

    def _hear_members(self, hello: Hello, conclude: Callable[[Answers], None]) -> None:
        node = self._node
        answers: dict[int, HelloAnswer | None] = {}
        members = dict(self.mastership.members)

        def hear(home_id: int, answer: object) -> None:
            is_it = isinstance(answer, HelloAnswer) and answer.home_id == home_id
            answers[home_id] = answer if is_it else None  # type: ignore[assignment]
            if len(answers) == len(members) and self.state is State.UNCONFIRMED:
                conclude(answers)

        for home_id, host in members.items():
            node.ask(host, hello, lambda answer, home_id=home_id: hear(home_id, answer))  # type: ignore[misc]

    def _ask_target(self) -> None:
        """Has the one that we handed over to begun? If not, it never will."""
        handed_over = self.handed_over
        assert handed_over is not None, "only a hand-over has a target"

        def hear(answer: object) -> None:
            fields = self._node.fields_of(answer)
            if fields is not None and self.handed_over is handed_over:
                self.target_said(used=bool(fields["used"]))

        request = self._node.request(RequestCode.RELEASE, {"ticket_id": handed_over.ticket_id})
        self._node.ask(handed_over.target.address, request, hear)

    # The judge hears of a term that is on disk, also if the node stopped right then.

    def _save(self, payload: bytes) -> None:
        try:
            self._node.machine.epochs.save(payload)
        finally:
            self._tell_checker()

    def _tell_checker(self) -> None:
        node, saved = self._node, self._node.machine.epochs.payload
        newest = kept_history(saved).newest if saved is not None else None
        if newest is None or newest.home_id != node.machine.home_id:
            return
        if newest.nonce == self._told_nonce:
            return
        self._told_nonce = newest.nonce
        told = node.world.operations.get(newest.nonce.hex())
        written_off = self.promotion.written_off if self.promotion is not None else ()
        node.world.checker.term_begun(
            node.host,
            newest,
            node.log,
            forced=told is not None and told.by_force,
            written_off=frozenset(node.members[home_id] for home_id in written_off),
            gives_up=(told is not None and told.gives_up) or node.machine.lacks_lost_tail,
        )
