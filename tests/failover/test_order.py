from __future__ import annotations

import attrs

from trioha.failover.attempt import Order
from trioha.failover.facts import Make, ReplicaFacts, SetFacts
from trioha.failover.plan import make_plan
from trioha.ha.mastership import Standing

ORDER = Order(broker_name="broker-a", namesrvs=(), ticket_id="00" * 8, operator="anna@ops-1")


def replica(home_id: int, max_phy_offset: int, standing: Standing = Standing.SLAVE) -> ReplicaFacts:
    return ReplicaFacts(
        home_id=home_id,
        address=f"10.0.0.{home_id}:10911",
        make=Make.TRIOHA,
        standing=standing,
        epoch=1,
        log_epoch=1,
        max_phy_offset=max_phy_offset,
        sync=True,
        in_sync=True,
    )


def facts(one_end: int, other_end: int) -> SetFacts:
    return SetFacts(
        broker_name="broker-a",
        replicas=(replica(0, 900, Standing.MASTER), replica(1, one_end), replica(2, other_end)),
    )


def test_the_slave_that_was_agreed_to_is_promoted_though_another_is_ahead_now() -> None:
    """Under load two slaves in sync are ahead of each other by turns."""
    shown = make_plan(facts(800, 700))
    order = attrs.evolve(ORDER, confirmed=shown)
    now = make_plan(facts(800, 850), to=order.target_id)
    assert shown.target is not None
    assert now.target is not None
    assert (shown.target.home_id, now.target.home_id) == (1, 1)
    assert now.may_run


def test_a_named_target_stays_the_named_one() -> None:
    order = attrs.evolve(ORDER, to=2, confirmed=make_plan(facts(800, 700)))
    assert order.target_id == 2
    assert ORDER.target_id is None
