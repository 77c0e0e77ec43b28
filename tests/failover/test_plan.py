from __future__ import annotations

import attrs
import pytest

from trioha.failover.facts import HeldTicket, Make, NamesrvFacts, ReplicaFacts, SetFacts
from trioha.failover.plan import Kind, Plan, make_plan
from trioha.failover.ranking import LossWindow
from trioha.ha.mastership import Standing

MASTER = ReplicaFacts(
    home_id=0,
    address="10.0.0.1:10911",
    make=Make.TRIOHA,
    standing=Standing.MASTER,
    epoch=3,
    log_epoch=3,
    max_phy_offset=1000,
    sync=True,
)
SLAVE = ReplicaFacts(
    home_id=1,
    address="10.0.0.2:10911",
    make=Make.TRIOHA,
    standing=Standing.SLAVE,
    epoch=3,
    log_epoch=3,
    max_phy_offset=900,
    sync=True,
    in_sync=True,
    announced_offset=1000,
    follows=MASTER.address,
)
SECOND = attrs.evolve(SLAVE, home_id=2, address="10.0.0.3:10911", max_phy_offset=700)
DEAD = ReplicaFacts(home_id=0, address=MASTER.address, error="connection refused")
NAMESRV = NamesrvFacts(address="10.0.0.9:9876", master=MASTER.address)


def facts(*replicas: ReplicaFacts, namesrv: NamesrvFacts = NAMESRV) -> SetFacts:
    return SetFacts(broker_name="broker-a", replicas=replicas, namesrvs=(namesrv,))


def refusals(plan: Plan) -> str:
    return "\n".join(str(refusal) for refusal in plan.refusals)


def test_with_both_alive_the_switch_is_planned_and_loses_nothing() -> None:
    plan = make_plan(facts(MASTER, SLAVE))
    assert plan.may_run
    assert (plan.kind, plan.epoch, plan.target, plan.master) == (Kind.PLANNED, 4, SLAVE, MASTER)
    assert plan.loss == LossWindow(0, exact=True, acknowledged=False)


def test_of_a_dead_sync_master_the_furthest_slave_takes_over_without_force() -> None:
    plan = make_plan(facts(DEAD, SECOND, SLAVE))
    assert (plan.kind, plan.target) == (Kind.FORCED, SLAVE)
    assert plan.may_run, refusals(plan)
    assert str(plan.loss) == "no acknowledged message; 100 bytes were never acknowledged"
    assert [(one.rank, one.replica.home_id, one.reason) for one in plan.candidates] == [
        (1, 1, "epoch 3, offset 900: the furthest log"),
        (2, 2, "epoch 3, offset 700: 200 bytes behind the best"),
        (0, 0, "does not answer: connection refused"),
    ]


def test_of_a_dead_async_master_the_loss_is_stated_and_wants_force() -> None:
    slave = attrs.evolve(SLAVE, sync=False)
    plan = make_plan(facts(DEAD, slave))
    assert "would lose at least 100 bytes of log" in refusals(plan)
    assert make_plan(facts(DEAD, slave), force=True).may_run


def test_an_unknown_loss_is_not_no_loss() -> None:
    slave = attrs.evolve(SLAVE, sync=False, announced_offset=None)
    plan = make_plan(facts(DEAD, slave))
    assert "would lose unknown: no member knows where the master's log ended" in refusals(plan)


def test_a_slave_of_a_newer_epoch_beats_a_longer_log() -> None:
    older = attrs.evolve(SECOND, log_epoch=2, max_phy_offset=5000)
    plan = make_plan(facts(DEAD, older, SLAVE))
    assert plan.target is SLAVE
    assert plan.candidates[1].reason == "epoch 2, offset 5000: of an older epoch than 3"


def test_a_worse_candidate_than_the_best_wants_force() -> None:
    plan = make_plan(facts(DEAD, SLAVE, SECOND), to=2)
    assert "1 (10.0.0.2:10911) is the better candidate" in refusals(plan)
    assert make_plan(facts(DEAD, SLAVE, SECOND), to=2, force=True).may_run


def test_a_slave_out_of_sight_may_hold_what_was_acknowledged() -> None:
    silent = ReplicaFacts(home_id=2, address=SECOND.address, error="no answer within 3 s")
    plan = make_plan(facts(DEAD, SLAVE, silent))
    assert "2 (10.0.0.3:10911) does not answer and may hold more" in refusals(plan)
    assert plan.loss is not None
    assert plan.loss.acknowledged


def test_the_lost_master_is_known_by_its_followers_not_by_its_id() -> None:
    # After a first failover id 1 was master; now it is dead, and old id 0 follows it.
    follower = attrs.evolve(SLAVE, home_id=0, address=MASTER.address, follows=SLAVE.address)
    dead = ReplicaFacts(home_id=1, address=SLAVE.address, error="connection refused")
    plan = make_plan(facts(follower, dead, namesrv=attrs.evolve(NAMESRV, master=SLAVE.address)))
    assert plan.may_run, refusals(plan)
    assert plan.target is follower


def test_a_fenced_master_tells_exactly_what_would_be_lost() -> None:
    fenced = attrs.evolve(MASTER, standing=Standing.FENCED)
    plan = make_plan(facts(fenced, SLAVE), to=1)
    assert plan.loss == LossWindow(100, exact=True, acknowledged=True)


@pytest.mark.parametrize(
    ("replicas", "to", "text"),
    [
        ((), None, "no broker named broker-a is registered"),
        ((MASTER, SLAVE), 7, "there is no id 7 in broker-a; there are 0, 1"),
        ((MASTER, SLAVE), 0, "0 (10.0.0.1:10911) is the master; name another id"),
        ((MASTER,), None, "no member can be promoted (there is no slave); start a slave"),
        ((MASTER, attrs.evolve(SLAVE, in_sync=False)), 1, "1 (10.0.0.2:10911) is not in sync"),
        ((MASTER, attrs.evolve(SLAVE, epoch=2)), 1, "knows epoch 2, the master's is 3"),
        (
            (MASTER, attrs.evolve(SLAVE, make=Make.JAVA)),
            1,
            "1 (10.0.0.2:10911) is RocketMQ's own broker: its role is fixed when it starts",
        ),
        ((attrs.evolve(MASTER, make=Make.JAVA), SLAVE), 1, "cannot step down while it runs"),
        (
            (MASTER, attrs.evolve(MASTER, home_id=1, address="10.0.0.2:10911"), SECOND),
            2,
            "0 (10.0.0.1:10911) and 1 (10.0.0.2:10911) both say that they are master",
        ),
        (
            (MASTER, attrs.evolve(SLAVE, error="connection refused", standing=None)),
            1,
            "1 (10.0.0.2:10911) does not answer: connection refused; choose another",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_words_whatever_the_force(
    replicas: tuple[ReplicaFacts, ...], to: int | None, text: str
) -> None:
    for force in (False, True):
        plan = make_plan(facts(*replicas), to=to, force=force)
        assert not plan.may_run
        assert text in refusals(plan)


def test_the_second_operator_is_told_who_is_at_it() -> None:
    ticket = HeldTicket(ticket_id="x", operator="anna@ops-1", age_s=4.2, left_s=25.6)
    plan = make_plan(facts(MASTER, attrs.evolve(SLAVE, ticket=ticket)), force=True)
    why = "anna@ops-1 has been running a failover for 4 s; talk to them, or wait 26 s"
    assert why in refusals(plan)


def test_a_name_server_that_is_away_wants_force() -> None:
    away = attrs.evolve(NAMESRV, error="connection refused", master="")
    assert "name server 10.0.0.9:9876 cannot be reached" in refusals(
        make_plan(facts(MASTER, SLAVE, namesrv=away))
    )
    assert make_plan(facts(MASTER, SLAVE, namesrv=away), force=True).may_run


def test_of_equal_logs_the_one_that_was_told_more_changes_is_further() -> None:
    told = attrs.evolve(SLAVE, metadata_position=51)
    less = attrs.evolve(SECOND, home_id=2, max_phy_offset=900, metadata_position=50)
    silent = attrs.evolve(less, home_id=3, address="10.0.0.4:10911", metadata_position=None)
    plan = make_plan(facts(DEAD, silent, less, told))
    assert plan.target == told
    assert plan.may_run, refusals(plan)
    assert [one.reason for one in plan.candidates][1:3] == [
        "epoch 3, offset 900: without the last changes of topics, groups or offsets"
    ] * 2
    assert not make_plan(facts(DEAD, less, told), to=2).may_run, "an acknowledged commit may go"


@pytest.mark.parametrize("force", [False, True])
def test_a_group_that_elects_its_master_is_not_failed_over(force: bool) -> None:
    members = [attrs.evolve(one, is_raft=True, in_sync=None) for one in (MASTER, SLAVE)]
    plan = make_plan(facts(*members), force=force)
    assert not plan.may_run
    assert refusals(plan) == (
        "broker-a is a DLEDGER group: it elects its master itself; "
        "`trioha raft transfer broker-a` hands over to another member"
    )


FENCED = attrs.evolve(MASTER, standing=Standing.FENCED, max_phy_offset=950)


def test_an_old_master_that_answers_tells_exactly_how_far_it_was() -> None:
    plan = make_plan(facts(FENCED, SLAVE), to=1)
    assert plan.loss == LossWindow(50, exact=True, acknowledged=True)


@pytest.mark.parametrize(
    "old",
    [
        attrs.evolve(FENCED, level_since_start=False),
        attrs.evolve(FENCED, log_epoch=2),
    ],
    ids=["lost power", "older term"],
)
def test_an_old_master_of_an_older_term_or_that_lost_power_tells_nothing_of_the_loss(
    old: ReplicaFacts,
) -> None:
    """A master that is silent now may have acknowledged what the old master lacks."""
    dead = attrs.evolve(DEAD, home_id=2, address="10.0.0.3:10911")
    slave = attrs.evolve(SLAVE, sync=False, follows=dead.address)
    plan = make_plan(facts(old, slave, dead), to=1)
    assert plan.loss is not None
    assert not plan.loss.exact
    assert "would lose at least" in refusals(plan)


def test_a_second_silent_member_wants_force_and_is_written_off_by_it() -> None:
    silent = attrs.evolve(DEAD, home_id=2, address="10.0.0.3:10911")
    plan = make_plan(facts(DEAD, SLAVE, silent))
    assert "2 (10.0.0.3:10911) does not answer and may hold more" in refusals(plan)
    assert plan.written_off == ()
    plan = make_plan(facts(DEAD, SLAVE, silent), force=True)
    assert plan.may_run
    assert plan.written_off == (0, 2)
    assert plan.epoch == 4, "a term without a quorum leaves no room"


def test_a_slave_that_lost_power_is_missing_like_a_silent_one() -> None:
    weak = attrs.evolve(SECOND, level_since_start=False)
    plan = make_plan(facts(DEAD, SLAVE, weak))
    assert "2 (10.0.0.3:10911) lost power since it was last up to date" in refusals(plan)
    assert make_plan(facts(DEAD, SLAVE, SECOND)).may_run
