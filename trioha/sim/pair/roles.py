"""Who a simulated node is: its mastership, its role, and every way from one to another.

This is the simulation's half of `trioha.broker.failover.RoleControl`, as `services/role.py` is the
real node's; what both must do is in docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trioha.broker.failover import Peer, Promotion
from trioha.errors import CommandError, LocalProtocolError
from trioha.ha.confirmation import Answer as Finds
from trioha.ha.confirmation import MemberWord, Returning, judge
from trioha.ha.epochs import NONCE_BYTES, EpochRecord
from trioha.ha.mastership import Mastership, Standing
from trioha.sim.pair.master_role import Answer, MasterRole
from trioha.sim.pair.messages import Put, PutStatus
from trioha.sim.pair.slave_role import SlaveRole
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

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
        home_id = self.mastership.home_id
        return any(
            record.nonce == nonce and record.home_id == home_id
            for record in self.mastership.history
        )

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
        self.mastership.fence(f"handed over to {target}", epoch=epoch)
        self._handed_to, self._asks_target = (target, ticket_id), False
        self._node.tell(f"hands epoch {epoch} over to {target}")
        self.take_role()

    def take_back(self) -> bool:
        if not self.mastership.resume():
            return False
        self._node.tell("the hand-over is void; goes on as master")
        self._handed_to = None
        self.take_role()
        self.resume()
        return True

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        node = self._node
        if node.log_end < promotion.log_offset:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the log ends at {node.log_end}, not at {promotion.log_offset}",
            )
        self._end_roles()
        node.log.drop_torn_tail()
        node.machine.file.flush()
        try:
            record = self.mastership.begin_term(
                promotion.epoch,
                node.log_end,
                nonce=promotion.nonce,
                sync=True,
                wall_ms=node.now_ms,
            )
        except LocalProtocolError as error:
            self.take_role()
            raise CommandError(ResponseCode.NO_PERMISSION, str(error)) from error
        self._tell_checker(record, ticket_id=promotion.nonce.hex())
        self.take_role()
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

    def _ask_members(self) -> None:
        """May we be master again? `trioha.ha.confirmation` judges what the others say."""
        node = self._node
        words: dict[int, MemberWord | None] = {}

        def hear(home_id: int, answer: object) -> None:
            fields = node.fields_of(answer)
            words[home_id] = None
            if fields is not None:
                words[home_id] = MemberWord(
                    fields["epoch"], fields["log_epoch"], fields["max_phy_offset"]
                )
            if len(words) == len(node.members) and self.mastership.unconfirmed:
                self._judge(words)

        for home_id, host in node.members.items():
            node.ask(
                host,
                RemotingCommand(RequestCode.TRIOHA_NODE_STATUS),
                lambda answer, home_id=home_id: hear(home_id, answer),  # type: ignore[misc]
            )

    def _judge(self, words: Mapping[int, MemberWord | None]) -> None:
        node, mastership = self._node, self.mastership
        waited_ms = node.now_ms - self._started_ms
        # Not ideal: neither a name server nor the members that answer have heard of a node that was
        # promoted and died before it registered. Two nodes cannot acknowledge anything while it is
        # away; three can (seed 737), so a set of three waits for everybody here.
        is_pair = len(node.members) == 1
        returning = Returning(
            broker_name=node.status_name,
            home_id=mastership.home_id,
            epoch=mastership.epoch,
            log_epoch=mastership.history.epoch_at(self.log_end),
            end=self.log_end,
            may_have_lost=mastership.may_have_lost,
            sync=True,
        )
        finding = judge(
            returning,
            words,
            node.members,
            remembered=self.remembered and is_pair,
            moment_over=waited_ms > RESTART_PATIENCE_MS and is_pair,
            patience_over=waited_ms > CONFIRM_PATIENCE_MS,
        )
        if finding.answer is Finds.CONFIRMED and mastership.confirm():
            self.take_role()
        elif finding.answer is Finds.NEWER:
            self.hear_epoch(finding.known_epoch, b"", finding.words)
        elif finding.answer is Finds.AHEAD:
            mastership.fence(finding.words)
            self._fenced()

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

    def _tell_checker(self, record: EpochRecord, ticket_id: str) -> None:
        node = self._node
        told = node.world.operations.get(ticket_id)
        node.world.checker.term_begun(
            node.host,
            record,
            node.log,
            forced=told is not None and told.by_force,
            gives_up=(told is not None and told.gives_up) or node.machine.lacks_lost_tail,
        )
