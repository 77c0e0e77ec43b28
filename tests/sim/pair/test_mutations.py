"""The detector is proven: each known fault, put back, is found by a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import attrs
import pytest
from sim.pair import test_promotions as told
from sim.pair import test_roles as rules

from trioha.failover.asking import Flow
from trioha.failover.engine import FailoverEngine
from trioha.ha.confirmation import Judgement, MemberWord, Returning, Ruling
from trioha.ha.confirmation import judge as real_judge
from trioha.ha.epochs import EpochHistory, EpochRecord, Meeting
from trioha.ha.hello import HelloAnswer
from trioha.ha.mastership import Mastership, Standing
from trioha.ha.promotion import Peer, Promotion
from trioha.ha.readers import ReadersLimit
from trioha.ha.replicas import Replicas, SlaveReplica
from trioha.ha.role_effects import ChangeLinks, CutHalfRecord, Effect, ReleaseParked
from trioha.ha.role_machine import RoleMachine
from trioha.ha.role_states import State
from trioha.sim.pair.node import SimNode
from trioha.sim.pair.roles import Roles
from trioha.sim.pair.simulation import SeedFailed, run_seed
from trioha.sim.pair.slave_role import SlaveRole

pytestmark = pytest.mark.slow
SEEDS_MAX = 400

Mutation = Callable[[pytest.MonkeyPatch], None]


def acknowledges_what_is_sent(patch: pytest.MonkeyPatch) -> None:
    """push2slave_max_offset counts bytes on their way."""
    real = Replicas.transferred

    def transferred(
        self: Replicas, replica: SlaveReplica, size: int, next_transfer_offset: int, now_ms: int
    ) -> None:
        real(self, replica, size, next_transfer_offset, now_ms)
        self.push2slave_max_offset = max(self.push2slave_max_offset, next_transfer_offset)

    patch.setattr(Replicas, "transferred", transferred)


def shows_what_no_slave_holds(patch: pytest.MonkeyPatch) -> None:
    """Readers of a master see its whole log."""
    patch.setattr(ReadersLimit, "offset", lambda self, acknowledged: None)


def shows_its_own_tail_from_before(patch: pytest.MonkeyPatch) -> None:
    """Readers see what lies before the newest term, whichever node wrote it."""

    def begin(self: ReadersLimit, nonce: bytes) -> None:
        newest = self._mastership.newest
        assert newest is not None
        self._nonce, self._limit = nonce, newest.start_offset

    patch.setattr(ReadersLimit, "_begin", begin)


def shows_everything_once_it_is_deposed(patch: pytest.MonkeyPatch) -> None:
    """A deposed master shows its whole log before it has cut it."""
    real = ReadersLimit.offset

    def offset(self: ReadersLimit, acknowledged: int) -> int | None:
        is_master = self._mastership.standing is Standing.MASTER
        return real(self, acknowledged) if is_master else None

    patch.setattr(ReadersLimit, "offset", offset)


def goes_on_after_it_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """A master hears of a newer epoch and does nothing."""
    patch.setattr(Mastership, "hear", lambda self, *args, **more: False)


def follows_a_life_that_is_over(patch: pytest.MonkeyPatch) -> None:
    """A slave takes what its master sent before it lost power, after it has told the end."""
    patch.setattr(RoleMachine, "member_lost_power", lambda self, address: None)


def forgets_the_term_it_began(patch: pytest.MonkeyPatch) -> None:
    """begin_term is not durable."""
    real = Mastership.begin_term

    def begin_term(self: Mastership, *args: int, **more: object) -> EpochRecord:
        save, self._save = self._save, lambda payload: None
        try:
            return real(self, *args, **more)  # type: ignore[arg-type]
        finally:
            self._save = save

    patch.setattr(Mastership, "begin_term", begin_term)


def does_not_cut(patch: pytest.MonkeyPatch) -> None:
    """A slave takes over the history and keeps its own bytes."""
    patch.setattr(SimNode, "cut", lambda self, phy_offset: None)


def meets_at_the_shorter_log(patch: pytest.MonkeyPatch) -> None:
    """The common offset is the smaller end, whatever the epochs say."""

    def meet(self: EpochHistory, our_end: int, theirs: EpochHistory, their_end: int) -> Meeting:
        return Meeting(min(our_end, their_end), min(self.epoch, theirs.epoch) or 1)

    patch.setattr(EpochHistory, "meet", meet)
    patch.setattr("trioha.sim.pair.slave_role.checksum", lambda log, span: None)
    patch.setattr("trioha.ha.greeting.checksum", lambda log, span: 0)
    patch.setattr(
        "trioha.sim.pair.slave_role.agree",
        lambda found, ours, theirs, sums: found[0].common_offset if found else ours.log.end,
    )


def hands_over_before_the_target_is_level(patch: pytest.MonkeyPatch) -> None:
    """Writes are not paused, and the engine does not wait until the target has them."""

    def catch_up(*_: object) -> Flow[dict[str, int]]:
        yield from ()
        return {"log_offset": 0, "metadata_position": 0}

    real_pause, real_promote = RoleMachine.pause, RoleMachine.promote

    def pause(self: RoleMachine) -> None:
        real_pause(self)
        self.parks = False

    def promote(self: RoleMachine, promotion: Promotion, done: Callable[[str], None]) -> None:
        real_promote(self, attrs.evolve(promotion, log_offset=0), done)

    patch.setattr(RoleMachine, "pause", pause)
    patch.setattr(RoleMachine, "promote", promote)
    patch.setattr(FailoverEngine, "_catch_up", catch_up)


def resumes_its_term_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A master that lost its tail goes on without asking which node holds it."""
    real = Roles.start

    def start(self: Roles) -> None:
        real(self)
        if self.mastership.confirm():
            self._serve()

    patch.setattr(Roles, "start", start)


def lets_links_live_on(patch: pytest.MonkeyPatch) -> None:
    """A slave that promised a newer term goes on acknowledging to its old master."""
    patch.setattr(SlaveRole, "suspend", lambda self: None)
    patch.setattr(SlaveRole, "follow_anew", lambda self, reason: None)


def begins_without_promises(patch: pytest.MonkeyPatch) -> None:
    """A target begins its term without the promises that it needs."""
    patch.setattr(Mastership, "lacks_promises", lambda self, promised, written_off=(): "")
    patch.setattr(FailoverEngine, "_promises_of", _nobody_promises)


def _nobody_promises(*_: object) -> Flow[list[int]]:
    yield from ()
    return []


def follows_whatever_it_promised(patch: pytest.MonkeyPatch) -> None:
    """A promise keeps no older term away, and the old master does not mind it."""

    def follows_term(self: Mastership, epoch: int, nonce: bytes) -> bool:
        return epoch >= self.known_epoch

    patch.setattr(Mastership, "follows_term", follows_term)
    patch.setattr(Mastership, "is_deserted", lambda self, promise: False)
    patch.setattr("trioha.ha.hello._is_followed", lambda ours, theirs: True)


def forgets_promises(patch: pytest.MonkeyPatch) -> None:
    """A promise does not outlive the process."""
    real = Mastership.promise

    def promise(self: Mastership, epoch: int, nonce: bytes) -> None:
        save, self._save = self._save, lambda payload: None
        try:
            real(self, epoch, nonce)
        finally:
            self._save = save

    patch.setattr(Mastership, "promise", promise)


def believes_a_name_server_in_any_set(patch: pytest.MonkeyPatch) -> None:
    """A returning master goes on because a name server remembers its claim."""

    def judge(node: Returning, *args: Any, remembered: bool, **more: Any) -> Judgement:
        found = real_judge(node, *args, remembered=remembered, **more)
        if remembered and found.ruling in (Ruling.WAIT, Ruling.ANEW) and not node.may_have_lost:
            return Judgement(Ruling.CONFIRMED)
        return found

    patch.setattr("trioha.ha.role_machine.judge", judge)


def goes_on_in_silence(patch: pytest.MonkeyPatch) -> None:
    """A returning master that was never failed over goes on when a moment has passed."""

    def judge(node: Returning, *args: Any, moment_over: bool, **more: Any) -> Judgement:
        found = real_judge(node, *args, moment_over=moment_over, **more)
        silent = found.ruling in (Ruling.WAIT, Ruling.ANEW)
        if moment_over and silent and node.epoch <= 1 and not node.may_have_lost:
            return Judgement(Ruling.CONFIRMED)
        return found

    patch.setattr("trioha.ha.role_machine.judge", judge)


def goes_on_in_the_old_term_beside_a_promise(patch: pytest.MonkeyPatch) -> None:
    """Words of members that promised another node a term are taken as if they had not."""
    real = MemberWord.told_by.__func__  # type: ignore[attr-defined]

    def told_by(cls: type[MemberWord], answer: HelloAnswer) -> MemberWord:
        word: MemberWord = real(cls, answer)
        return attrs.evolve(word, promised=(0, b""))

    patch.setattr(MemberWord, "told_by", classmethod(told_by))


def counts_logs_that_lost_power(patch: pytest.MonkeyPatch) -> None:
    """A member that lost its tail with its power is evidence of what was acknowledged."""
    patch.setattr(
        "trioha.failover.ranking.missing_logs",
        lambda facts: [one for one in facts.replicas if not one.answers],
    )
    patch.setattr(
        "trioha.failover.plan.missing_logs",
        lambda facts: [one for one in facts.replicas if not one.answers],
    )


def leaves_no_room(patch: pytest.MonkeyPatch) -> None:
    """A term of a quorum takes the next number, as one that was begun by force does."""
    patch.setattr("trioha.ha.quorum.EPOCH_ROOM", 1)


def gives_one_number_twice_in_a_pair(patch: pytest.MonkeyPatch) -> None:
    """A node of a pair that is alone takes the next number, as the other node does."""
    patch.setattr("trioha.ha.quorum._own_number", lambda least, home_id, others: least)


def forgets_forced_switches(patch: pytest.MonkeyPatch) -> None:
    """A member does not say that an operator is failing the broker over."""
    real = MemberWord.told_by.__func__  # type: ignore[attr-defined]

    def told_by(cls: type[MemberWord], answer: HelloAnswer) -> MemberWord:
        word: MemberWord = real(cls, answer)
        return attrs.evolve(word, ticket_holder="")

    patch.setattr(MemberWord, "told_by", classmethod(told_by))


def gives_up_members_that_answered(patch: pytest.MonkeyPatch) -> None:
    """An operator who gives up a silent member by force gives up all that have not promised."""
    real = Mastership.lacks_promises

    def lacks_promises(
        self: Mastership, promised: Collection[int], written_off: Collection[int] = ()
    ) -> str:
        return real(self, promised, self.members if written_off else ())

    patch.setattr(Mastership, "lacks_promises", lacks_promises)


def begins_by_the_word_of_another_nodes_term(patch: pytest.MonkeyPatch) -> None:
    """A node takes every term in its history for one that it began itself."""

    def has_begun(self: Mastership, nonce: bytes) -> bool:
        return any(record.nonce == nonce for record in self.history)

    patch.setattr(Mastership, "has_begun", has_begun)


def follows_an_older_term(patch: pytest.MonkeyPatch) -> None:
    """A node follows any master that it is told to, whatever it knows or has promised."""

    def follow(self: RoleMachine, master: Peer, epoch: int, nonce: bytes) -> None:
        if self.mastership.hear(epoch, nonce, str(master), decided=True):
            self._step_down(State.FENCED, "")
        self._become_slave(master)

    patch.setattr(RoleMachine, "follow", follow)


def follows_a_target_behind_a_newer_promise(patch: pytest.MonkeyPatch) -> None:
    """A target that says that it has begun its term is followed, whatever was promised since."""

    def target_said(self: RoleMachine, *, used: bool) -> None:
        if used and self.handed_over is not None:
            self._become_slave(self.handed_over.target)
        else:
            self.take_back()

    patch.setattr(RoleMachine, "target_said", target_said)


def puts_what_it_parked_after_it_was_fenced(patch: pytest.MonkeyPatch) -> None:
    """Parked writes go into the log of a master that hears of a newer term, and are answered."""
    real = RoleMachine._step_down

    def step_down(self: RoleMachine, state: State, reason: str) -> None:
        if self.parks:
            self.parks = False
            self.carry_out(ReleaseParked())
        real(self, state, reason)

    patch.setattr(RoleMachine, "_step_down", step_down)


def stays_master_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """A master whose slaves promised another node a term takes writes until it has asked."""
    patch.setattr(RoleMachine, "doubted", lambda self, reason: None)


def stays_master_when_fenced(patch: pytest.MonkeyPatch) -> None:
    """The mastership knows of a newer term, and the role goes on."""
    patch.setattr(RoleMachine, "fenced", lambda self, reason: None)


def takes_back_whatever_ended_its_term(patch: pytest.MonkeyPatch) -> None:
    """A node that was fenced goes on in its term when an operator's ticket is void."""

    def take_back(self: RoleMachine) -> bool:
        self.handed_over = None
        self.mastership.standing, self.mastership.unconfirmed = Standing.MASTER, False
        self._serve()
        return True

    patch.setattr(RoleMachine, "take_back", take_back)


def hands_over_without_a_pause(patch: pytest.MonkeyPatch) -> None:
    """A pause parks nothing, and a hand-over does not ask for one."""
    real = RoleMachine.hand_over

    def hand_over(self: RoleMachine, target: Peer, epoch: int, ticket_id: str) -> None:
        self.state = State.PAUSED if self.is_master else self.state
        real(self, target, epoch, ticket_id)

    patch.setattr(RoleMachine, "pause", lambda self: None)
    patch.setattr(RoleMachine, "hand_over", hand_over)


def begins_behind_the_old_master(patch: pytest.MonkeyPatch) -> None:
    """A target does not look how far the old master's log went, and the engine does not wait."""

    def catch_up(*_: object) -> Flow[dict[str, int]]:
        yield from ()
        return {"log_offset": 0, "metadata_position": 0}

    real = RoleMachine._begin_promoted

    def begin_promoted(self: RoleMachine, promotion: Promotion) -> str:
        return real(self, attrs.evolve(promotion, log_offset=0))

    patch.setattr(RoleMachine, "_begin_promoted", begin_promoted)
    patch.setattr(FailoverEngine, "_catch_up", catch_up)


def begins_with_half_a_record(patch: pytest.MonkeyPatch) -> None:
    """Half a record, left by a link that ended, stays in the log of a new term."""
    real = Roles.carry_out

    def carry_out(self: Roles, effect: Effect) -> None:
        if not isinstance(effect, CutHalfRecord):
            real(self, effect)

    patch.setattr(Roles, "carry_out", carry_out)


def keeps_the_links_of_a_term_that_ended(patch: pytest.MonkeyPatch) -> None:
    """A master that steps down goes on shipping its log and taking acknowledgements."""
    real = Roles.carry_out

    def carry_out(self: Roles, effect: Effect) -> None:
        if not isinstance(effect, ChangeLinks) or self.slave is not None or self.is_master:
            real(self, effect)

    patch.setattr(Roles, "carry_out", carry_out)


def begins_before_the_members_promised(patch: pytest.MonkeyPatch) -> None:
    """A node in doubt begins a term without the promises of its members."""
    patch.setattr(RoleMachine, "has_promises", lambda self, term, answers: True)


PROOFS: list[tuple[Mutation, int | Callable[[], None]]] = [
    (acknowledges_what_is_sent, 0),
    (goes_on_after_it_is_fenced, 2),
    (follows_a_life_that_is_over, 17017),
    (forgets_the_term_it_began, 0),
    (does_not_cut, 0),
    (meets_at_the_shorter_log, 0),
    (shows_what_no_slave_holds, 424),
    (shows_its_own_tail_from_before, 424),
    (shows_everything_once_it_is_deposed, 424),
    (hands_over_before_the_target_is_level, 184),
    (resumes_its_term_after_a_crash, 0),
    (
        begins_without_promises,
        partial(
            told.test_a_returning_master_begins_a_term_that_nobody_can_depose,
            switches=0,
            wiped=False,
        ),
    ),
    (
        follows_whatever_it_promised,
        partial(
            told.test_a_slave_that_promised_a_term_acknowledges_nothing_to_the_old_master,
            restarts=False,
        ),
    ),
    (
        lets_links_live_on,
        partial(
            told.test_a_slave_that_promised_a_term_acknowledges_nothing_to_the_old_master,
            restarts=False,
        ),
    ),
    (
        forgets_promises,
        partial(
            told.test_a_slave_that_promised_a_term_acknowledges_nothing_to_the_old_master,
            restarts=True,
        ),
    ),
    (
        believes_a_name_server_in_any_set,
        partial(
            told.test_a_returning_master_begins_a_term_that_nobody_can_depose,
            switches=1,
            wiped=False,
        ),
    ),
    (
        goes_on_in_silence,
        partial(
            told.test_a_returning_master_begins_a_term_that_nobody_can_depose,
            switches=0,
            wiped=True,
        ),
    ),
    (
        goes_on_in_the_old_term_beside_a_promise,
        partial(
            told.test_a_returning_master_begins_a_term_that_nobody_can_depose,
            switches=0,
            wiped=False,
        ),
    ),
    (
        counts_logs_that_lost_power,
        told.test_a_slave_that_lost_power_is_no_evidence_that_nothing_is_lost,
    ),
    (leaves_no_room, told.test_no_epoch_is_given_out_twice_by_the_documented_next_step),
    (
        gives_one_number_twice_in_a_pair,
        told.test_two_nodes_of_a_pair_that_were_promoted_alone_have_two_numbers,
    ),
    # Rules of the role machine (`trioha.ha.role_machine`), which real nodes run as well.
    (stays_master_when_fenced, 2),
    (keeps_the_links_of_a_term_that_ended, 9),
    (hands_over_without_a_pause, 105),
    (begins_behind_the_old_master, 184),
    (begins_with_half_a_record, rules.test_half_a_record_is_cut_before_a_term_begins),
    (
        stays_master_in_doubt,
        rules.test_a_master_whose_slave_promised_another_node_a_term_serves_in_it_no_more,
    ),
    (
        puts_what_it_parked_after_it_was_fenced,
        rules.test_a_fenced_master_appends_nothing_of_what_it_parked,
    ),
    (follows_an_older_term, rules.test_a_node_follows_nothing_older_than_what_it_promised),
    (
        follows_a_target_behind_a_newer_promise,
        rules.test_a_target_that_says_it_began_is_not_followed_behind_a_newer_promise,
    ),
    (
        begins_by_the_word_of_another_nodes_term,
        rules.test_a_term_of_another_node_was_not_begun_here,
    ),
    (takes_back_whatever_ended_its_term, rules.test_only_a_hand_over_is_taken_back),
    (
        begins_before_the_members_promised,
        rules.test_a_node_in_doubt_begins_no_term_that_its_members_did_not_promise,
    ),
    (gives_up_members_that_answered, rules.test_force_gives_up_no_member_that_answers),
    (
        forgets_forced_switches,
        rules.test_a_returning_master_waits_while_an_operator_fails_the_broker_over,
    ),
]
"""Each mutation with the seed or the script that is known to notice it."""


@pytest.mark.parametrize(("mutate", "proof"), PROOFS, ids=[one.__name__ for one, _ in PROOFS])
def test_a_known_fault_is_found(
    mutate: Mutation, proof: int | Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    if callable(proof):
        with pytest.raises(AssertionError):
            proof()
        return
    if is_noticed(proof):
        return
    # The known seed draws another history by now.
    for seed in range(SEEDS_MAX):
        if is_noticed(seed):
            pytest.fail(f"seed {proof} does not notice it any more; write {seed} in its place")
    pytest.fail(f"{mutate.__name__}: not found in {SEEDS_MAX} seeds")


def is_noticed(seed: int) -> bool:
    """Return whether the judge finds fault. An exception of a mutated simulation proves nothing."""
    try:
        run_seed(seed)
    except SeedFailed as failure:
        return isinstance(failure.__cause__, AssertionError)
    return False
