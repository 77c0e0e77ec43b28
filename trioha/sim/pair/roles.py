"""Who a simulated node is: its mastership, its role, and every way from one to another.

This is the simulation's half of `trioha.broker.failover.RoleControl`, as `services/role.py` is the
real node's; what both must do is in docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trioha.broker.failover import Peer, Promotion
from trioha.errors import CommandError, LocalProtocolError
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


class Roles:
    """The one place where a node's standing changes."""

    def __init__(self, node: SimNode) -> None:
        self.mastership = Mastership(
            node.machine.home_id, node.machine.epochs.save, node.machine.epochs.payload
        )
        self.master: MasterRole | None = None
        self.slave: SlaveRole | None = None
        self.paused = False
        self.suspended = False
        """A forced failover is under way: nothing is acknowledged to the old master."""
        self.doubts_tail = False
        """Others may hold acknowledged bytes of our own term that a crash took from us."""
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
        )
        node.tell(f"starts as {mastership.standing.value}, log end {node.log_end}")
        # Every process here ends in a crash.
        self.doubts_tail = before is not None and mastership.is_own
        if mastership.standing is Standing.FENCED and not mastership.unconfirmed:
            mastership.become_slave()
            self.doubts_tail = False
        if mastership.newest is not None and mastership.newest is not before:
            self._tell_checker(mastership.newest, ticket_id="")
        self.take_role()

    def take_role(self) -> None:
        """End what we were, begin what we are."""
        self._end_roles()
        mastership = self.mastership
        if mastership.standing is Standing.MASTER and not self.doubts_tail:
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
        fenced = self.mastership.standing is Standing.FENCED
        if (fenced or self.doubts_tail) and self._node.now_ms >= self._confirm_at_ms:
            self._confirm_at_ms = self._node.now_ms + CONFIRM_MS
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
        was_doubtful = self.doubts_tail and self.mastership.standing is Standing.MASTER
        heard = self.mastership.hear(epoch, nonce, holder, decided=decided)
        if (heard or was_doubtful) and self.mastership.standing is Standing.FENCED:
            self._node.tell(f"fenced: {self.mastership.fenced_by}")
            self.doubts_tail = False
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
        self.doubts_tail = False
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
        self.doubts_tail = False
        self.mastership.become_slave()
        self.take_role()
        assert self.slave is not None
        self.slave.follows = address
        # Clients look at the route and find the new master sooner than a parked put would.
        self.resume()

    def _ask_members(self) -> None:
        """May we write? Only if nobody is newer, and nobody holds more of our own term."""
        node = self._node
        if self._handed_to is not None:
            if self._asks_target:
                self._ask_target(*self._handed_to)
            return
        others = [host for host in node.world.machines if host != node.host]
        told: dict[str, Mapping[str, Any]] = {}

        def hear(host: str, answer: object) -> None:
            fields = node.fields_of(answer)
            if fields is None:
                return
            told[host] = fields
            epoch = fields["epoch"]
            assert isinstance(epoch, int)
            if epoch > self.mastership.epoch:
                self.hear_epoch(epoch, b"", host)
                if self.mastership.standing is Standing.FENCED:
                    self.mastership.become_slave()
                    self.take_role()
            elif len(told) == len(others):
                self._judge_members(told)

        for host in others:
            node.ask(
                host,
                RemotingCommand(RequestCode.TRIOHA_NODE_STATUS),
                lambda answer, host=host: hear(host, answer),  # type: ignore[misc]
            )

    def _judge_members(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        mastership = self.mastership
        ours = (mastership.history.epoch_at(self.log_end), self.log_end)
        ahead = [
            host
            for host, fields in told.items()
            if (fields["log_epoch"], fields["max_phy_offset"]) > ours
        ]
        if ahead:
            if mastership.standing is Standing.MASTER or mastership.unconfirmed:
                mastership.fence(f"{ahead[0]} holds more of our epoch than we do")
                self._node.tell(mastership.fenced_by)
                self.take_role()
        elif self.doubts_tail or mastership.unconfirmed:
            self.doubts_tail = False
            mastership.confirm()
            self.take_role()

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
