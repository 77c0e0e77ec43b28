"""Who a simulated node is: its mastership, its role, and every way from one to another.

This is the simulation's half of `trioha.broker.failover.RoleControl`, as `services/role.py` is the
real node's; what both must do is in docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from trioha.errors import CommandError, LocalProtocolError
from trioha.ha.candidacy import Answers, Candidacy, words_in
from trioha.ha.confirmation import Answer as Finds
from trioha.ha.confirmation import Finding, judge
from trioha.ha.epochs import NONCE_BYTES, EpochRecord
from trioha.ha.hello import Hello, HelloAnswer
from trioha.ha.mastership import Mastership, Standing, kept_history
from trioha.ha.promotion import Peer, Promotion
from trioha.sim.pair.master_role import Answer, MasterRole
from trioha.sim.pair.messages import Put, PutStatus
from trioha.sim.pair.slave_role import SlaveRole
from trioha.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from trioha.sim.pair.node import SimNode

PARKED_MAX = 64
CONFIRM_MS = 300
RESTART_PATIENCE_MS = 1500
CONFIRM_PATIENCE_MS = 3000


class Roles:
    """The one place where a node's standing changes."""

    def __init__(self, node: SimNode) -> None:
        machine = node.machine
        self.mastership = Mastership(
            machine.home_id,
            machine.epochs.save,
            machine.epochs.payload,
            boot=machine.boot.to_bytes(4, "big"),
        )
        self.master: MasterRole | None = None
        self.slave: SlaveRole | None = None
        self.paused = False
        self.suspended = False
        """A forced failover is under way: nothing is acknowledged to the old master."""
        self._started_ms = node.now_ms
        self.remembered = False
        """The name server remembers our claim from before our start."""
        self.candidacy = Candidacy(self.mastership, partial(node.world.rng.randbytes, NONCE_BYTES))
        self._parked: list[tuple[Put, Answer]] = []
        self._handed_to: tuple[Peer, str] | None = None
        self._asks_target = False
        """The attempt is over, and nobody has said whom to follow."""
        self._confirm_at_ms = 0
        self._node = node

    def start(self) -> None:
        node, mastership = self._node, self.mastership
        before = mastership.newest
        mastership.start(
            configured_master=node.machine.home_id == 0,
            log_end=node.log_end,
            nonce=node.world.rng.randbytes(NONCE_BYTES),
            sync=True,
            wall_ms=node.now_ms,
            # Every process here ends in a crash.
            clean=False,
        )
        node.tell(f"starts as {mastership.standing.value}, log end {node.log_end}")
        mastership.meet_members(node.members)
        if mastership.standing is Standing.FENCED and not mastership.unconfirmed:
            mastership.become_slave()
        if mastership.newest is not None and mastership.newest is not before:
            self._tell_checker(mastership.newest, ticket_id="")
        self.take_role()

    def take_role(self) -> None:
        """End what we were, begin what we are."""
        self._end_roles()
        mastership = self.mastership
        if mastership.standing is Standing.MASTER:
            self._node.tell(f"is master of epoch {mastership.epoch}")
            self.master = MasterRole(self._node, mastership.epoch)
            self._announce()
        elif mastership.standing is Standing.SLAVE:
            self.slave = SlaveRole(self._node)
        self._node.register_soon()

    def on_time(self) -> None:
        if self.master is not None:
            self.master.on_time()
        if self.slave is not None:
            self.slave.on_time()
        asks = self.mastership.unconfirmed or self._asks_target
        if asks and self._node.now_ms >= self._confirm_at_ms:
            self._confirm_at_ms = self._node.now_ms + CONFIRM_MS
            if self._handed_to is not None:
                self._ask_target(*self._handed_to)
            else:
                self._ask_members()

    def put(self, put: Put, answer: Answer) -> None:
        if self.paused and len(self._parked) < PARKED_MAX:
            self._parked.append((put, answer))
        elif self.master is None or self.paused:
            answer(PutStatus.REFUSED)
        else:
            self.master.put(put, answer)

    def hear_epoch(self, epoch: int, nonce: bytes, holder: str, *, decided: bool = False) -> None:
        """Somebody says who holds an epoch."""
        if self.mastership.hear(epoch, nonce, holder, decided=decided):
            self._fenced()

    def _fenced(self) -> None:
        self._node.tell(f"fenced: {self.mastership.fenced_by}")
        self._node.failover.role_lost()
        self.mastership.become_slave()
        self.resume()
        self.take_role()

    # trioha.ha.greeting.Greeted

    def fenced(self, reason: str) -> None:
        self._fenced()

    def doubted(self, reason: str) -> None:
        self._node.tell(f"is in doubt: {reason}")
        self._node.failover.role_lost()
        self._started_ms, self.remembered = self._node.now_ms, False
        self.resume()
        self.take_role()

    def promised(self) -> None:
        self._node.tell(f"promises {self.mastership.promise_given[0]}")
        if self.slave is not None:
            self.slave.follow_anew("promised a newer epoch")

    def announced(self, home_id: int, address: str, ha_address: str) -> None:
        if not self.mastership.unconfirmed:
            self._node.failover.master_announced(self.mastership.promise_given[1])
            self._follow(address)

    def member_met(self) -> None:
        self._announce()

    @property
    def follows(self) -> str:
        return self.slave.follows if self.slave is not None else ""

    @property
    def ticket_holder(self) -> str:
        ticket = self._node.failover.desk.ticket
        return ticket.operator if ticket is not None else ""

    def _announce(self) -> None:
        """Every member hears at once who is master."""
        hello = attrs.evolve(self._node.hello(), ha_address=self._node.host)
        for host in self._node.members.values():
            self._node.ask(host, hello, lambda answer: None)

    # trioha.broker.failover.RoleControl

    @property
    def metadata_position(self) -> int:
        return 0  # nothing but the log is simulated

    @property
    def log_end(self) -> int:
        return self._node.log_end

    def facts(self) -> Mapping[str, object]:
        return self._node.status()

    def has_begun(self, nonce: bytes) -> bool:
        return self.mastership.has_begun(nonce)

    def pause(self) -> None:
        if self.master is None:
            raise CommandError(ResponseCode.NO_PERMISSION, "not the master")
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        parked, self._parked = self._parked, []
        for put, answer in parked:
            self.put(put, answer)

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        pass

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None:
        try:
            self.mastership.hand_over(epoch, bytes.fromhex(ticket_id), f"handed over to {target}")
        except LocalProtocolError as error:
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        self._handed_to, self._asks_target = (target, ticket_id), False
        self._node.tell(f"hands epoch {epoch} over to {target}")
        self.take_role()

    def take_back(self) -> bool:
        void = bytes.fromhex(self._handed_to[1]) if self._handed_to is not None else b""
        if not self.mastership.resume(void):
            if self.mastership.unconfirmed:
                self._handed_to = None
                self._started_ms, self.remembered = self._node.now_ms, False
            return False
        self._node.tell("the hand-over is void; goes on as master")
        self._handed_to = None
        self.take_role()
        self.resume()
        return True

    def promise(self, epoch: int, nonce: bytes) -> None:
        try:
            self.mastership.promise(epoch, nonce)
        except LocalProtocolError as error:
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        self.promised()

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        node = self._node
        self.mastership.learn_members(promotion.members)
        absent = self.mastership.lacks_promises(promotion.promised, promotion.written_off)
        if absent:
            raise CommandError(ResponseCode.NO_PERMISSION, absent)
        if node.log_end < promotion.log_offset:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the log ends at {node.log_end}, not at {promotion.log_offset}",
            )
        self._end_roles()
        node.log.drop_torn_tail()
        try:
            self._begin(promotion.epoch, promotion.nonce, promotion.written_off)
        except LocalProtocolError as error:
            self.take_role()
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        done("")

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None:
        if self.mastership.standing is Standing.MASTER:
            self.mastership.hear(epoch, nonce, str(master))
        self._follow(master.address)

    def suspend_following(self, reason: str) -> None:
        self.suspended = True
        if self.slave is not None:
            self.slave.suspend()

    def follow_again(self) -> None:
        self.suspended = False

    def left_alone(self) -> None:
        self._asks_target = True

    def keep_audit(self, record: Mapping[str, object]) -> None:
        pass

    def audit_records(self) -> list[Mapping[str, object]]:
        return []

    def _follow(self, address: str) -> None:
        self._handed_to = None
        self.mastership.become_slave()
        self.take_role()
        assert self.slave is not None
        self.slave.follows = address
        # Clients look at the route and find the new master sooner than a parked put would.
        self.resume()

    def _begin(self, epoch: int, nonce: bytes, written_off: tuple[int, ...] = ()) -> None:
        """Begin a term: the log is on disk before its record is."""
        node = self._node
        node.machine.file.flush()
        mastership = self.mastership
        try:
            mastership.begin_term(epoch, node.log_end, nonce=nonce, sync=True, wall_ms=node.now_ms)
        finally:
            # The judge hears of a term that is on disk, also if the node stopped right then.
            saved = node.machine.epochs.payload
            newest = kept_history(saved).newest if saved is not None else None
            if newest is not None and newest.nonce == nonce:
                hosts = frozenset(node.members[home_id] for home_id in written_off)
                self._tell_checker(newest, ticket_id=nonce.hex(), written_off=hosts)
        self._handed_to = None
        self.take_role()
        self.resume()

    def _ask_members(self) -> None:
        """May we be master again? `trioha.ha.confirmation` judges what the others say."""
        self._hear_members(self._node.hello(), self._judge)

    def _hear_members(self, hello: Hello, conclude: Callable[[Answers], None]) -> None:
        node = self._node
        answers: dict[int, HelloAnswer | None] = {}
        members = dict(self.mastership.members)

        def hear(home_id: int, answer: object) -> None:
            is_it = isinstance(answer, HelloAnswer) and answer.home_id == home_id
            answers[home_id] = answer if is_it else None  # type: ignore[assignment]
            if len(answers) == len(members) and self.mastership.unconfirmed:
                conclude(answers)

        for home_id, host in members.items():
            node.ask(host, hello, lambda answer, home_id=home_id: hear(home_id, answer))  # type: ignore[misc]

    def _judge(self, answers: Answers) -> None:
        node, mastership = self._node, self.mastership
        waited_ms = node.now_ms - self._started_ms
        finding = judge(
            self.candidacy.returning(node.status_name, self.log_end),
            words_in(answers),
            mastership.members,
            remembered=self.remembered,
            moment_over=waited_ms > RESTART_PATIENCE_MS,
            patience_over=waited_ms > CONFIRM_PATIENCE_MS,
        )
        if finding.answer is Finds.CONFIRMED and mastership.confirm():
            node.tell(f"is confirmed: {finding.words}")
            self.take_role()
        elif finding.answer is Finds.ANEW:
            self._begin_anew(finding)
        elif finding.answer is Finds.NEWER:
            self.hear_epoch(*finding.known, finding.words, decided=True)
        elif finding.answer is Finds.AHEAD:
            mastership.fence(finding.words)
            self._fenced()

    def _begin_anew(self, finding: Finding) -> None:
        """Begin a new term once a quorum has promised it; the next round tries again."""
        node, candidacy = self._node, self.candidacy
        term = candidacy.wish(finding.epoch)
        if term is None:
            return

        def conclude(answers: Answers) -> None:
            if not candidacy.has_promises(term, answers):
                return
            try:
                self._begin(term.epoch, term.nonce)
            except LocalProtocolError:
                candidacy.give_up()
            else:
                node.tell(f"begins epoch {term.epoch} anew")

        wish = attrs.evolve(node.hello(), wants_epoch=term.epoch, wants_nonce=term.nonce)
        self._hear_members(wish, conclude)

    def _ask_target(self, target: Peer, ticket_id: str) -> None:
        """Has the one that we handed over to begun? If not, it never will."""

        def hear(answer: object) -> None:
            fields = self._node.fields_of(answer)
            if fields is None or self._handed_to is None:
                return
            if fields["used"]:
                self._follow(target.address)
            else:
                self.take_back()

        request = self._node.request(RequestCode.RELEASE, {"ticket_id": ticket_id})
        self._node.ask(target.address, request, hear)

    def _end_roles(self) -> None:
        if self.master is not None:
            self.master.end()
        if self.slave is not None:
            self.slave.end()
        self.master = self.slave = None

    def _tell_checker(
        self, record: EpochRecord, ticket_id: str, written_off: frozenset[str] = frozenset()
    ) -> None:
        node = self._node
        told = node.world.operations.get(ticket_id)
        node.world.checker.term_begun(
            node.host,
            record,
            node.log,
            forced=told is not None and told.by_force,
            written_off=written_off,
            gives_up=(told is not None and told.gives_up) or node.machine.lacks_lost_tail,
        )
