"""The role of a node of a master-slave set: every way from one state to another, and why.

Theory of operation. `trioha.ha.mastership` keeps what a node has promised and begun, on disk. This
machine adds what does not outlive the process: a pause, a hand-over whose target has not spoken
yet, a promotion in progress, parked writes. `trioha.ha.role_states` is the table of its states, and
`trioha.ha.role_changes` has the methods that change the state.

The machine is told what happened: by an operator (`trioha.broker.failover`), by another node's
hello (`trioha.ha.greeting`), by a name server, by the members whom a node in doubt asks, by time.
First the mastership is changed, which is durable when it returns; then the state; then the machine
gives out effects (`trioha.ha.role_effects`), which the node carries out in that order within the
same pass. A real node and a simulated one differ only in how they do so.

* To stop being master is immediate. From the pass in which a newer term is heard of, or mastership
  is handed over, nothing is appended and no acknowledgement counts.
* To become master takes a moment: the link to the old master ends, half a record at the log's end
  is cut, what has arrived is dispatched, the log is flushed, and the term is on disk before the
  first put.

The rules refer to the invariants of docs/decisions/0012-epochs-and-failover.md by their number.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.errors import CommandError, LocalProtocolError
from trioha.ha import role_effects as effects
from trioha.ha.candidacy import Answers, Candidacy, words_in
from trioha.ha.confirmation import Judgement, Ruling, judge
from trioha.ha.epochs import EpochRecord
from trioha.ha.events import Term
from trioha.ha.mastership import Mastership
from trioha.ha.promotion import HandOver, Peer, Promotion
from trioha.ha.role_changes import RoleChanges
from trioha.ha.role_states import State, state_of
from trioha.wire.codes import ResponseCode
from trioha.wire.epoch_numbers import Word

VOID_MS_MAX = 2_000
"""Less than an operator's command needs to find a master silent and to promote another node."""


class RoleMachine(RoleChanges):
    """Implements `trioha.broker.failover.RoleSteps` and `trioha.ha.greeting.Greeted`.

    `configured_sync`: do puts wait for a slave, as configured? None for a node configured as slave.
    `fresh_nonce` draws the nonce of a term that this node begins by itself.
    Errors of operators' steps: CommandError when the node is not what the step needs; nothing has
    changed then.
    """

    def __init__(
        self,
        broker_name: str,
        address: str,
        mastership: Mastership,
        fresh_nonce: Callable[[], bytes],
        *,
        configured_sync: bool | None,
    ) -> None:
        super().__init__(mastership)
        self.address = address
        self.promotion: Promotion | None = None
        """The one that is in progress, in PROMOTING."""
        self._done: Callable[[str], None] = lambda reason: None
        self._candidacy = Candidacy(mastership, fresh_nonce)
        self._broker_name = broker_name
        self._configured_sync = configured_sync

    def has_begun(self, nonce: bytes) -> bool:
        """Was the term with this nonce begun by this node?

        A follower has the term in its history as well. If it said yes, a promotion that was never
        carried out would be reported as done, and a master that asks the target whether it has
        begun would follow a node that has not (invariant 4).
        """
        return self.mastership.has_begun(nonce)

    def started(self) -> None:
        """Take the state of a mastership that was started after this machine was made."""
        self.state = state_of(self.mastership)

    # A planned switch, at the master.

    def pause(self) -> None:
        """Park writes from now on; repeatable."""
        # Only a master has writes to park; a slave's would wait for a switch that is not its own.
        if not self.is_master:
            raise _refusal(f"this node is {self.mastership.standing.value}, not master")
        if self.state is not State.PAUSED:
            self._become(State.PAUSED)
        self.parks, self.awaits_slave_until_ms = True, None
        self._do(effects.ParkWrites())

    def resume(self) -> None:
        """End the pause: the parked writes are carried out, if this node is still master."""
        # A node that stepped down meanwhile must append nothing (invariant 2): what it parked is
        # forwarded or rejected once the new master is known.
        if self.state in (State.PAUSED, State.AWAITS_SLAVE):
            self._become(State.MASTER)
            self.parks, self.awaits_slave_until_ms = False, None
            self._do(effects.ReleaseParked())

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None:
        """Stop being master for a term of the target's; parked writes stay parked."""
        mastership = self.mastership
        # Writes that go on between the target's word and this step would be missing at the target,
        # whose log must be as far as that of every member that promised (invariant 3; seed 105).
        if self.state is not State.PAUSED:
            raise _refusal(
                f"this node is {mastership.standing.value} in epoch {mastership.known_epoch}, and "
                "its writes are not paused"
            )
        nonce = bytes.fromhex(ticket_id)
        reason = f"handed over to {target} for epoch {epoch}"
        try:
            mastership.hand_over(epoch, nonce, reason)
        except LocalProtocolError as error:
            raise _refusal(str(error)) from error
        self.handed_over = HandOver(target, epoch, nonce, self.now_ms)
        # The master that this node followed before its term must not be followed meanwhile.
        self._do(effects.ForgetMaster())
        self._step_down(State.HANDED_OVER, reason)

    def left_alone(self) -> None:
        """The ticket has ended: ask the target of an open hand-over whether it began its term."""
        if self.handed_over is not None:
            self._do(effects.AskTarget())

    def target_said(self, *, used: bool) -> None:
        """Act on the target's word whether it has begun its term; if not, it never will."""
        handed_over = self.handed_over
        if handed_over is None or self.state is not State.HANDED_OVER:
            return
        if not used:
            self.take_back()
        elif self.mastership.follows_term(handed_over.epoch, handed_over.nonce):
            self.follow(handed_over.target, handed_over.epoch, handed_over.nonce)
        else:
            # A newer term was promised or has begun since: following never takes an older one.
            self.handed_over = None
            self._step_down(State.FENCED, self.mastership.fenced_by)

    def take_back(self) -> bool:
        """Be master again, since the target never begins its term; False when that cannot be."""
        # Only a hand-over can come back. A node that was fenced for another reason, as for a log
        # that a member holds and this node lost, would go on from a shorter log (invariant 3).
        if self.state is not State.HANDED_OVER or self.handed_over is None:
            return False
        void, waited_ms = self.handed_over.nonce, self.now_ms - self.handed_over.at_ms
        self.handed_over = None
        resumed = self.mastership.resume(void)
        if resumed and not self._is_late(waited_ms):
            self._serve()
            return True
        if self.mastership.unconfirmed:
            # Another term was promised meanwhile, or may have been: the members know whether one
            # began.
            self._become(State.UNCONFIRMED)
            self._do(effects.ForgetClaims(), effects.AskMembers())
        else:
            self._step_down(State.FENCED, self.mastership.fenced_by)
        return False

    def _is_late(self, waited_ms: int) -> bool:
        """Put a master in doubt that may have been replaced since the hand-over."""
        # The word that the hand-over is void waits in a socket while the process stands still, and
        # the operator may have promoted another node since. No slave would acknowledge to this
        # master, but consumers would read what it stores and loses again (round 91, seed 82001).
        return (
            waited_ms > VOID_MS_MAX
            and bool(self.mastership.members)
            and self.mastership.doubt(
                f"the hand-over was taken back after {waited_ms / 1000:.1f} s"
            )
        )

    # A master in doubt: after its start, or because its slaves promised a term to another node.

    def doubted(self, reason: str) -> None:
        """Take no writes until the members were asked: some promised a newer term.

        Called when `Mastership.doubt` has said so.
        """
        # Its slaves acknowledge nothing any more (invariant 2), so whatever it would take from now
        # on could be acknowledged only by a name server's or an operator's mistake.
        self._do(effects.LoseTicket())
        self._step_down(State.UNCONFIRMED, reason)
        self._do(effects.ForgetClaims(), effects.Register(), effects.AskMembers())

    def members_said(
        self, answers: Answers, *, remembered: bool, moment_over: bool, patience_over: bool
    ) -> Term | None:
        """Do what the members' answers allow; the arguments are those of `judge`.

        Returns a term that the members are to be asked to promise, if a new one is needed.
        """
        # A node that an operator promotes meanwhile has the promises for that term; one that heard
        # of a newer term meanwhile is not in doubt any more.
        if self.state is not State.UNCONFIRMED:
            return None
        judgement = judge(
            self._candidacy.returning(self._broker_name, self.log_end),
            words_in(answers),
            self.mastership.members,
            remembered=remembered,
            moment_over=moment_over,
            patience_over=patience_over,
        )
        if judgement.ruling is Ruling.ANEW:
            return self._candidacy.wish(judgement.epoch)
        self._act_on(judgement, moment_over=moment_over)
        return None

    def has_promises(self, term: Term, answers: Answers) -> bool:
        """May the term begin by itself, after these answers to the wish for it?"""
        return self.state is State.UNCONFIRMED and self._candidacy.has_promises(term, answers)

    def begin_anew(self, term: Term) -> None:
        """Begin a term that enough members have promised; the log is on disk."""
        newest = self.mastership.newest
        # Between the promises and now another node's term, or an operator, may have come first.
        if self.state is not State.UNCONFIRMED or newest is None:
            return
        try:
            self._begin_term(term.epoch, term.nonce, sync=newest.sync)
        except LocalProtocolError:
            # A newer one was promised or has begun while the log was brought to disk.
            self._candidacy.give_up()
        else:
            self._serve()

    def _act_on(self, judgement: Judgement, *, moment_over: bool) -> None:
        mastership, words = self.mastership, judgement.words
        match judgement.ruling:
            case Ruling.CONFIRMED:
                if mastership.confirm():
                    self._do(effects.Confirmed(mastership.epoch, words))
                    self._serve()
            case Ruling.NEWER:
                self.hear(*judgement.known, words, decided=True)
            case Ruling.AHEAD:
                mastership.fence(words)
                self.fenced(words)
            case Ruling.WAIT:
                if moment_over and words != mastership.fenced_by:
                    mastership.wait_for(words)
                    self._do(effects.Fenced(mastership.known_epoch, words))

    # A newer term, here.

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        """Become master; `done` gets "" or why not, later."""
        mastership = self.mastership
        # A master hands over first; else a term of its own would end without its slaves' promises.
        if self.is_master:
            raise _refusal(f"this node is master already, in epoch {mastership.epoch}")
        if self.state is State.PROMOTING:
            raise _refusal("this node is being promoted already")
        # A promise or a newer term keeps the older ones from beginning (invariant 2).
        if not mastership.follows_term(promotion.epoch, promotion.nonce):
            raise _refusal(f"epoch {promotion.epoch} is not newer than {mastership.promised[0]}")
        if doubt := mastership.disbelief(promotion.epoch, Word.ORDERED):
            raise _refusal(doubt)
        mastership.learn_members(promotion.members)
        # All members but one have promised the term, or were given up by force (invariant 2).
        absent = mastership.lacks_promises(promotion.promised, promotion.written_off)
        if absent:
            raise _refusal(absent)
        self._become(State.PROMOTING)
        self.promotion, self._done = promotion, done
        self._do(
            effects.ChangeLinks(),
            effects.Dispatch(),
            effects.CutHalfRecord(),
            effects.FlushLog(),
            effects.BeginTerm(),
        )

    def begin(self, reason: str = "") -> None:
        """Begin the term of the promotion, now that the log is ready; `reason`: why it is not."""
        promotion = self.promotion
        assert promotion is not None, "no promotion is in progress"
        reason = reason or self._begin_promoted(promotion)
        done, self._done, self.promotion = self._done, lambda reason: None, None
        if reason:
            self._become(state_of(self.mastership, handed_over=self.handed_over is not None))
            self._do(effects.PromotionFailed(promotion.epoch, reason), effects.ChangeLinks())
        else:
            newest = self.mastership.newest
            self._serve(awaits_slave=promotion.planned and newest is not None and newest.sync)
        done(reason)

    def _begin_promoted(self, promotion: Promotion) -> str:
        # The log of the old master may have been acknowledged up to its end (invariant 3).
        if self.log_end < promotion.log_offset:
            return f"the log ends at {self.log_end}, the old master's at {promotion.log_offset}"
        newest, sync = self.mastership.newest, self._configured_sync
        if sync is None:
            sync = promotion.sync if promotion.sync is not None else bool(newest and newest.sync)
        try:
            self._begin_term(promotion.epoch, promotion.nonce, sync=sync)
        except LocalProtocolError as error:
            # A newer term was heard of while the log was brought to disk.
            return str(error)
        return ""

    def _begin_term(self, epoch: int, nonce: bytes, *, sync: bool) -> EpochRecord:
        record = self.mastership.begin_term(
            epoch, self.log_end, nonce=nonce, sync=sync, wall_ms=self.wall_ms
        )
        self._do(effects.TermBegun(record))
        return record

    # A newer term, elsewhere.

    def hear(self, epoch: int, nonce: bytes, holder: str, *, decided: bool = False) -> None:
        """Note that `holder` holds an epoch; `decided` as in `Mastership.hear`."""
        if self.mastership.hear(epoch, nonce, holder, decided=decided):
            self.fenced(self.mastership.fenced_by)

    def fenced(self, reason: str) -> None:
        """Stop being master in this pass: `Mastership.hear` or `fence` has said so."""
        if self.state is State.PROMOTING:
            # The term that is being prepared will not begin if this one is newer.
            self._do(effects.Fenced(self.mastership.known_epoch, reason))
            return
        self._do(effects.LoseTicket())
        self._step_down(State.FENCED, reason)
        self._do(effects.Register())
        if self.follows:
            self.master_known(self.follows)

    def promise(self, epoch: int, nonce: bytes) -> None:
        """Promise a term to a candidate of the operator's: nothing older is acknowledged."""
        try:
            self.mastership.promise(epoch, nonce)
        except LocalProtocolError as error:
            raise _refusal(str(error)) from error
        self.promised()

    def promised(self) -> None:
        """End the link to a master of an older term in this pass: a promise was given."""
        # On that link the node would acknowledge to the older master (invariant 2).
        self._do(
            effects.Promised(self.mastership.promised[0]),
            effects.FollowAnew("this node has promised a newer epoch"),
        )

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None:
        """Be a slave of this master."""
        mastership = self.mastership
        # Following never takes an older epoch than what was promised or has begun: the node would
        # acknowledge to a master that has been replaced (invariants 2 and 4).
        is_own = mastership.is_own and (epoch, nonce) == (mastership.epoch, mastership.nonce)
        if master.address == self.address or epoch < mastership.promised[0] or is_own:
            raise _refusal(
                f"{master} of epoch {epoch} is not to be followed from here, where epoch "
                f"{mastership.promised[0]} is known"
            )
        if doubt := mastership.disbelief(epoch, Word.ORDERED):
            raise _refusal(doubt)
        if (
            mastership.hear(epoch, nonce, str(master), decided=True, word=Word.ORDERED)
            and not self.promotion
        ):
            self._step_down(State.FENCED, mastership.fenced_by)
        if self.is_master:
            raise _refusal(f"this node is master of epoch {mastership.epoch}")
        self._become_slave(master)

    def announced(self, home_id: int, address: str, ha_address: str) -> None:
        """Follow the master of the newest term at once: it has named itself."""
        # A node in doubt waits for the words of all members, or it would believe the one that is
        # quickest. And no node follows itself.
        if self.mastership.unconfirmed or address == self.address:
            return
        self._do(effects.MasterAnnounced(self.mastership.promise_given[1]))
        peer = Peer(home_id=home_id, address=address, ha_address=ha_address)
        self._become_slave(peer, at_once=True)

    def adopted(self) -> None:
        """Be a slave: the handshake has taken over the history of the master."""
        if self.state not in (State.SLAVE, State.PROMOTING):
            self._become(State.SLAVE)
        self.handed_over = None
        self._do(effects.Adopted(), effects.LimitReaders())

    def member_lost_power(self, address: str) -> None:
        """End the link to this member, which may have lost the last bytes of its log."""
        # The link still carries bytes that the member sent before. Appended after this node has
        # said where its log ends, they would stand where the member writes others in the same term,
        # and only an operator could make the two logs one again (seed 17017).
        if address == self.follows:
            self._do(effects.FollowAnew("the master lost power"))

    def member_met(self) -> None:
        """Tell the members of a new member: a term needs the promises of all but one."""
        self._do(effects.LimitReaders(), effects.Announce())

    def suspend_following(self, reason: str) -> None:
        """Acknowledge nothing to any master from this pass on, until `follow_again`."""
        self.suspended = reason
        self._do(effects.Suspend(reason))

    def follow_again(self) -> None:
        """Follow a master again."""
        self.suspended = ""
        self._do(effects.Resume())

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (self._parked_until_ms, self.awaits_slave_until_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """Do what is due."""
        if self._parked_until_ms is not None and now_ms >= self._parked_until_ms:
            # No master is known; clients find it in the route sooner.
            self.refuse_parked("this node is not master any more, and knows of none")
        if self.awaits_slave_until_ms is not None and now_ms >= self.awaits_slave_until_ms:
            self.resume()

    def slave_in_sync(self) -> None:
        """Take writes if they waited for a slave of this term: a slave now holds the log."""
        if self.state is State.AWAITS_SLAVE:
            self.resume()


def _refusal(words: str) -> CommandError:
    return CommandError(ResponseCode.NO_PERMISSION, words)
