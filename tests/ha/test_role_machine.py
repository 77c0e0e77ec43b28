"""The role machine: its table, its guards, and switches as they are told in testdata/role_*.txt."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import attrs
import pytest
from ha.role_recorder import RecordedRole, promotion, ticket

from trioha.errors import CommandError
from trioha.ha.confirmation import TermId
from trioha.ha.hello import HelloAnswer, LogExtent
from trioha.ha.mastership import Standing
from trioha.ha.promotion import Peer
from trioha.ha.role_changes import PARKED_MS_MAX
from trioha.ha.role_machine import VOID_MS_MAX
from trioha.ha.role_states import (
    MASTERS,
    TRANSITIONS,
    IllegalTransition,
    State,
    check_transition,
    diagram,
)

TESTDATA = Path(__file__).with_name("testdata")
DOCS = Path(__file__).parents[2] / "docs"
TARGET = Peer(home_id=1, address="node-1", ha_address="node-1-ha")


def pair() -> tuple[RecordedRole, RecordedRole]:
    """A master of epoch 1 and its slave, both logs at 100."""
    master, slave = RecordedRole(0, log_end=100), RecordedRole(1, log_end=100)
    for one, other in ((master, slave), (slave, master)):
        one.mastership.meet_members({other.mastership.home_id: other.address})
    slave.mastership.adopt(master.mastership.history)
    slave.adopted()
    slave.told.clear()
    return master, slave


def in_state(state: State) -> RecordedRole:
    """A node that came into this state by the events of its own."""
    master, slave = pair()
    match state:
        case State.SLAVE:
            return slave
        case State.PAUSED | State.HANDED_OVER:
            master.pause()
            if state is State.HANDED_OVER:
                master.hand_over(TARGET, 2, ticket(2).hex())
        case State.AWAITS_SLAVE:
            slave.promote(promotion(2, planned=True), lambda reason: None)
            return slave
        case State.PROMOTING:
            slave.prepares = False
            slave.promote(promotion(2), lambda reason: None)
            return slave
        case State.FENCED:
            master.hear(7, ticket(7), "node-1")
        case State.UNCONFIRMED:
            master.mastership.doubt("node-1 promised")
            master.doubted("node-1 promised")
    return master


def answer(
    node: RecordedRole, *, promised: TermId = (0, b""), standing: Standing = Standing.SLAVE
) -> HelloAnswer:
    mastership = node.mastership
    return HelloAnswer(
        broker_name="broker-a",
        home_id=mastership.home_id,
        address=node.address,
        log=LogExtent(mastership.history, 0, node.log_end),
        known_epoch=mastership.begun[0],
        known_nonce=mastership.begun[1],
        promised_epoch=promised[0],
        promised_nonce=promised[1],
        standing=standing,
    )


@pytest.mark.parametrize("state", State)
def test_every_state_is_reached_and_agrees_with_the_disk(state: State) -> None:
    node = in_state(state)
    assert node.state is state
    assert node.is_master == (state in MASTERS) == (node.mastership.standing is Standing.MASTER)


@pytest.mark.parametrize(("before", "after"), [*product(State, State)])
def test_a_transition_that_is_not_in_the_table_raises(before: State, after: State) -> None:
    mastership = in_state(after).mastership
    if (before, after) in TRANSITIONS:
        check_transition(before, after, mastership)
    else:
        with pytest.raises(IllegalTransition, match="cannot become"):
            check_transition(before, after, mastership)


def test_a_state_that_the_disk_contradicts_raises() -> None:
    slave = in_state(State.SLAVE).mastership
    with pytest.raises(IllegalTransition, match="MASTER, while the mastership is SLAVE"):
        check_transition(State.PAUSED, State.MASTER, slave)
    doubtful = in_state(State.UNCONFIRMED).mastership
    with pytest.raises(IllegalTransition, match="FENCED, while the mastership is unconfirmed"):
        check_transition(State.MASTER, State.FENCED, doubtful)


STEPS: dict[str, tuple[Callable[[RecordedRole], None], frozenset[State]]] = {
    "pause": (RecordedRole.pause, MASTERS),
    "hand over": (
        lambda node: node.hand_over(TARGET, 9, ticket(9).hex()),
        frozenset({State.PAUSED}),
    ),
    "promote": (
        lambda node: node.promote(promotion(9), lambda reason: None),
        frozenset(State) - MASTERS - {State.PROMOTING},
    ),
    "promise": (lambda node: node.promise(9, ticket(9)), frozenset(State) - MASTERS),
    "follow": (
        lambda node: node.follow(Peer(home_id=2, address="node-2"), 9, ticket(9)),
        frozenset(State),
    ),
    "follow an older term": (
        lambda node: node.follow(Peer(home_id=2, address="node-2"), 0, ticket(9)),
        frozenset(),
    ),
    "follow itself": (
        lambda node: node.follow(Peer(home_id=0, address=node.address), 9, ticket(9)),
        frozenset(),
    ),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("state", State)
def test_a_step_is_refused_where_it_is_not_safe_and_changes_nothing_then(
    name: str, state: State
) -> None:
    step, allowed = STEPS[name]
    node = in_state(state)
    node.told.clear()
    disk = node.disk.payload
    if state in allowed:
        step(node)
        return
    with pytest.raises(CommandError):
        step(node)
    assert (node.state, node.told, node.disk.payload) == (state, [], disk)


def test_a_master_follows_nobody_in_its_own_term() -> None:
    master, _ = pair()
    mastership = master.mastership
    with pytest.raises(CommandError, match="is not to be followed from here"):
        master.follow(TARGET, mastership.epoch, mastership.nonce)
    assert master.state is State.MASTER


@pytest.mark.parametrize("state", [State.MASTER, State.HANDED_OVER, State.FENCED, State.SLAVE])
def test_a_pause_that_ends_elsewhere_releases_nothing(state: State) -> None:
    node = in_state(state)
    node.told.clear()
    node.resume()
    assert (node.state, node.told) == (state, [])


def test_what_is_parked_is_forwarded_once_the_new_master_is_known() -> None:
    node = in_state(State.HANDED_OVER)
    node.told.clear()
    node.follow(TARGET, 2, ticket(2))
    assert node.effects_of() == ["FollowMaster", "Register", "SendClientsOn"]
    node.master_known("node-1")
    assert node.told == []


def test_what_is_parked_is_refused_where_nobody_says_who_is_master() -> None:
    node = in_state(State.HANDED_OVER)
    node.elapse(PARKED_MS_MAX - 1)
    assert node.parks
    node.elapse(1)
    assert "  RefuseParked reason=this node is not master any more, and knows of none" in node.told
    assert (node.parks, node.next_deadline_ms) == (False, None)


def test_a_promotion_that_cannot_begin_leaves_the_node_what_it_was() -> None:
    for state in (State.SLAVE, State.FENCED, State.UNCONFIRMED, State.HANDED_OVER):
        node = in_state(state)
        reasons: list[str] = []
        node.promote(promotion(9, log_offset=101), reasons.append)
        assert reasons == ["the log ends at 100, the old master's at 101"]
        assert (node.state, node.promotion) == (state, None)


def test_a_newer_term_that_is_heard_of_during_a_promotion_ends_it() -> None:
    node = in_state(State.PROMOTING)
    with node.step("node-2 says that epoch 9 has begun"):
        node.hear(9, ticket(9), "node-2")
    assert node.told[-1] == "  = PROMOTING"
    with node.step("the log is ready"):
        node.begin()
    assert node.told[-1] == "  = PROMOTING -> SLAVE"
    assert "epoch 2 is not newer than 9" in "".join(node.told)


def test_the_members_words_change_nothing_while_an_operator_promotes_the_node() -> None:
    node, member = in_state(State.UNCONFIRMED), pair()[1]
    node.prepares = False
    node.promote(promotion(9), lambda reason: None)
    node.told.clear()
    term = node.members_said(
        {1: answer(member)}, remembered=True, moment_over=True, patience_over=True
    )
    assert (term, node.state, node.told) == (None, State.PROMOTING, [])


def test_a_target_that_cannot_be_asked_leaves_the_hand_over_open() -> None:
    node = in_state(State.HANDED_OVER)
    node.told.clear()
    node.left_alone()
    assert node.effects_of() == ["AskTarget"]
    follower = in_state(State.SLAVE)
    follower.left_alone()
    assert follower.told == []


def test_a_void_hand_over_behind_another_promise_is_a_doubt() -> None:
    node = in_state(State.HANDED_OVER)
    node.promise(12, ticket(12))
    node.told.clear()
    node.target_said(used=False)
    assert node.state is State.UNCONFIRMED
    assert node.effects_of() == ["ForgetClaims", "AskMembers"]


def test_a_node_that_handed_over_follows_the_term_that_its_target_began() -> None:
    node = in_state(State.HANDED_OVER)
    node.told.clear()
    node.target_said(used=True)
    assert (node.state, node.follows) == (State.SLAVE, "node-1")


def test_a_node_that_promised_a_newer_term_follows_the_targets_older_one_no_more() -> None:
    node = in_state(State.HANDED_OVER)
    node.promise(12, ticket(12))
    node.target_said(used=True)
    assert (node.state, node.handed_over, node.follows) == (State.FENCED, None, "")


@pytest.mark.parametrize("state", [one for one in State if one is not State.HANDED_OVER])
def test_only_a_hand_over_is_taken_back(state: State) -> None:
    """A fenced node may lack what a member holds (invariant 3)."""
    node = in_state(state)
    node.told.clear()
    disk = node.disk.payload
    assert not node.take_back()
    assert (node.state, node.told, node.disk.payload) == (state, [], disk)


def test_a_node_is_not_promoted_to_a_term_older_than_its_promise() -> None:
    """Invariant 2: the promise keeps older terms from beginning."""
    node = in_state(State.SLAVE)
    node.promise(12, ticket(12))
    with pytest.raises(CommandError, match="epoch 9 is not newer than 12"):
        node.promote(promotion(9), lambda reason: None)
    assert (node.state, node.promotion) == (State.SLAVE, None)


def test_a_term_that_a_newer_promise_overtook_does_not_begin() -> None:
    """Invariant 2: the promise came while the log was brought to disk."""
    node = in_state(State.UNCONFIRMED)
    epoch = node.mastership.epoch
    wished = node._candidacy.wish(9)
    assert wished is not None
    node.promise(12, ticket(12))
    node.begin_anew(wished)
    assert (node.state, node.mastership.epoch) == (State.UNCONFIRMED, epoch)
    # The number that was overtaken is not asked for again.
    assert node._candidacy.wish(9) is None
    anew = node._candidacy.wish(13)
    assert anew is not None
    assert anew.nonce != wished.nonce


@pytest.mark.parametrize("waited_ms", [VOID_MS_MAX, VOID_MS_MAX + 1])
def test_a_hand_over_that_is_taken_back_late_is_a_doubt(waited_ms: int) -> None:
    """The word that it is void may be older than another switch: the process stood still."""
    node = in_state(State.HANDED_OVER)
    node.mastership.meet_members({1: "node-1"})
    node.elapse(waited_ms)
    node.told.clear()
    is_late = waited_ms > VOID_MS_MAX
    assert node.take_back() is not is_late
    assert node.state is (State.UNCONFIRMED if is_late else State.MASTER)
    wanted = node.effects_of()
    assert ("AskMembers" in wanted, "TakeWrites" in wanted) == (is_late, not is_late)


def test_a_slave_ends_its_link_to_a_master_that_lost_power_and_to_nobody_else() -> None:
    node = in_state(State.SLAVE)
    node.announced(0, "node-0", "node-0-ha")
    node.told.clear()
    node.member_lost_power("node-2")
    assert node.effects_of() == []
    node.member_lost_power("node-0")
    assert node.effects_of() == ["FollowAnew"]


# Switches, told.


def planned_switch() -> list[str]:
    master, target = pair()
    with master.step("the operator pauses writes"):
        master.pause()
    with master.step("the operator hands epoch 2 over to node-1"):
        master.hand_over(TARGET, 2, ticket(2).hex())
    with target.step("the operator promotes this node to epoch 2"):
        target.promote(promotion(2, planned=True), lambda reason: None)
    with master.step("the operator tells this node to follow node-1"):
        master.follow(TARGET, 2, ticket(2))
    master.follow_history_of(target)
    with target.step("a slave is in sync"):
        target.slave_in_sync()
    return _both(master, target)


def forced_switch() -> list[str]:
    master, target = pair()
    target.mastership.meet_members({2: "node-2"})
    with target.step("the operator takes a forced ticket"):
        target.suspend_following("anna fails this broker over")
    with target.step("the operator promotes this node to epoch 2, promised by nobody"):
        try:
            target.promote(promotion(2), lambda reason: None)
        except CommandError as error:
            target.told.append(f"  refused: {error.remark}")
    with target.step("the operator promotes it again; node-0 is given up"):
        target.mastership.learn_members({0: "node-0"})
        promised = attrs.evolve(promotion(2), promised=(2,), written_off=(0,))
        target.promote(promised, lambda reason: None)
    with master.step("is told by node-2 that epoch 2 has begun"):
        master.hear(2, ticket(2), "node-2")
    with master.step("the master of epoch 2 names itself"):
        master.announced(1, "node-1", "node-1-ha")
    master.follow_history_of(target)
    return _both(master, target)


def fencing() -> list[str]:
    master, _ = pair()
    with master.step("the operator pauses writes"):
        master.pause()
    with master.step("a name server says that node-1 holds epoch 3"):
        master.hear(3, ticket(3), "node-1, says name server 9876,", decided=True)
    with master.step("the pause of the operator's ticket ends"):
        master.resume()
    with master.step("a name server names the master"):
        master.master_known("node-1")
    return _one(master)


def void_hand_over() -> list[str]:
    master, _ = pair()
    with master.step("the operator pauses writes"):
        master.pause()
    with master.step("the operator hands epoch 2 over to node-1"):
        master.hand_over(TARGET, 2, ticket(2).hex())
    with master.step("the ticket ends, and nobody said whom to follow"):
        master.left_alone()
    with master.step("node-1 says that the ticket was not used; now it never will be"):
        master.target_said(used=False)
    return _one(master)


def return_after_a_crash() -> list[str]:
    master, member = pair()
    master.mastership.meet_members({2: "node-2"})
    returned = RecordedRole(0, master.disk, log_end=100)
    returned.told.append(f"0 starts\n  = {returned.state.value}")
    with returned.step("node-1 and node-2 are silent"):
        nobody = {1: None, 2: None}
        returned.members_said(nobody, remembered=True, moment_over=True, patience_over=False)
    with returned.step("node-1 answers, and has promised epoch 4 to another node"):
        member.mastership.promise(4, ticket(4))
        term = returned.members_said(
            {1: answer(member, promised=(4, ticket(4))), 2: None},
            remembered=False,
            moment_over=True,
            patience_over=False,
        )
        assert term is not None
        returned.told.append(f"  asks for a promise of epoch {term.epoch}")
    with returned.step("node-1 promises it, and node-2 is silent"):
        assert returned.has_promises(
            term, {1: answer(member, promised=(term.epoch, term.nonce)), 2: None}
        )
        returned.begin_anew(term)
    return _one(returned)


def _one(node: RecordedRole) -> list[str]:
    return [f"# {node.address}", *node.told]


def _both(master: RecordedRole, target: RecordedRole) -> list[str]:
    return [*_one(master), "", *_one(target)]


@pytest.mark.parametrize(
    "switch",
    [planned_switch, forced_switch, fencing, void_hand_over, return_after_a_crash],
    ids=lambda switch: switch.__name__,
)
def test_a_switch_is_told_as_it_is_written(switch: Callable[[], list[str]]) -> None:
    _check_written(TESTDATA / f"role_{switch.__name__}.txt", "\n".join(switch()) + "\n")


def test_the_diagram_in_the_documentation_is_that_of_the_table() -> None:
    path = DOCS / "failover.md"
    text = path.read_text()
    head, begin, rest = text.partition("```mermaid\n")
    _, end, tail = rest.partition("\n```")
    assert begin, "docs/failover.md has no diagram"
    assert end
    _check_written(path, f"{head}{begin}{diagram()}{end}{tail}")


def _check_written(path: Path, told: str) -> None:
    if os.environ.get("TRIOHA_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(told)
    assert path.read_text() == told, "`just rewrite` writes it anew; read the difference"
