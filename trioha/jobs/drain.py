"""Drains a broker: moves what only it does elsewhere, waits for its clients, says when to stop it.

Theory of operation. What a node does alone depends on its set:

* A master with a slave in sync hands its mastership over (`trioha.failover`), a leader of a DLEDGER
  group its leadership (`TRIOHA_RAFT_ADMIN`). Clients with an old route are forwarded to the new
  master for two minutes; once nothing has been forwarded for a while they have left. While
  producers are connected, a while is the 30 s in which they ask for their routes again.
* A slave, or a follower, does nothing alone: consumers that read from it turn to the master.
* A master without a slave, or whose slaves are dead, keeps its messages: no node can take them
  over. Name servers are told to take its write permission (205): producers turn to other brokers
  within 30 s. It is drained
  when no message comes any more and every group has consumed what there is. A broker that
  registers a change of its topics gets its permission back, so it is taken again meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from trioha.errors import Unreachable
from trioha.failover.asking import Answer, Ask, Flow, ask_all, pause
from trioha.failover.engine import FailoverEngine, Order, dry_run
from trioha.failover.outcome import Result
from trioha.jobs.brokers import describe_broker
from trioha.jobs.clients import list_clients
from trioha.jobs.cluster_map import MASTER_ID, read_map, tell_namesrvs
from trioha.jobs.groups import list_groups
from trioha.jobs.telling import JobRefused, JobScope, answered, read_one
from trioha.watch.raft_change import PATIENCE_S as TRANSFER_S
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode
from trioha.wire.maps import decode_map

_LOOK_S = 0.5
_QUIET_S = 2.0
"""Time for which no message must have come, where no producer is connected."""
_ROUTE_S = 31.0
"""The same where one is connected: stock clients ask for their routes every 30 s."""
_LEADER_S = 10.0


@attrs.frozen
class DrainPlan:
    """A plan to drain one node, and once it is carried out how it ended."""

    broker: str
    id: int
    address: str
    way: str
    """failover, transfer, write permission or nothing."""
    would: list[str]
    loses: list[str]
    refusals: list[str]
    safe_to_stop: bool
    done: bool
    notes: list[str]


@attrs.frozen(kw_only=True)
class DrainOrder:
    """Settings of a drain."""

    ticket_id: str
    """16 random hexadecimal digits, for a failover."""
    operator: str
    wait_s: float
    """Longest time to wait for clients."""
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    on_step: Callable[[str], None] = lambda text: None


def plan_drain(
    scope: JobScope, broker: str, broker_id: int | None, order: DrainOrder
) -> Flow[DrainPlan]:
    """Return the plan. Errors: NotThere, Unreachable, CommandError."""
    detail = yield from describe_broker(scope, broker, broker_id)
    status: dict[str, Any] = dict(detail.status)
    known = yield from read_map(scope)
    is_master = known.brokers[broker].get(MASTER_ID) == detail.address
    raft = status.get("raft")
    would, refusals, notes = [], [], []
    way = "nothing"
    if isinstance(raft, dict):
        if raft.get("leader_id") == raft.get("member_id"):
            way = "transfer"
            would.append(f"the leadership of {broker} goes to its best follower")
    elif is_master and status.get("standing") == "MASTER" and _others(status):
        plan = yield from dry_run(_order(scope, broker, order))
        if plan.target is not None:
            way = "failover"
            would.append(f"{plan.target.name} becomes master of {broker}")
            refusals += [str(one) for one in plan.refusals]
        else:
            notes += [f"{broker} keeps its mastership: {one}" for one in plan.refusals]
    if way == "nothing" and is_master and not isinstance(raft, dict):
        way = "write permission"
        would.append(f"producers turn to other brokers; {broker} takes no messages")
        if len(known.brokers) == 1:
            notes.append(f"{broker} is the only broker: producers will have nowhere to send")
    if way == "nothing":
        would.append("it does nothing that others do not: its clients turn to the master")
    would.append("then its clients are waited for")
    return DrainPlan(
        broker, detail.id, detail.address, way, would, [], refusals, False, False, notes
    )


def carry_out_drain(scope: JobScope, plan: DrainPlan, order: DrainOrder) -> Flow[DrainPlan]:
    """Drain it. `safe_to_stop` is false if clients were still there after `wait_s`.

    Errors: JobRefused when the mastership does not move, OutcomeUnknown, Unreachable, CommandError.
    """
    if plan.way == "failover":
        yield from _fail_over(scope, plan, order)
    elif plan.way == "transfer":
        yield from _transfer(scope, plan, order)
    notes = list(plan.notes)
    left = yield from _wait_for_clients(scope, plan, order, notes)
    if left:
        notes.append(f"after {order.wait_s:g} s: {left}")
    return attrs.evolve(plan, safe_to_stop=not left, done=True, notes=notes)


def undo_drain(scope: JobScope, broker: str) -> Flow[list[str]]:
    """Give a broker its write permission back, at every name server. Errors: NotThere."""
    known = yield from read_map(scope)
    known.names(broker=broker)
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER
    return (yield from tell_namesrvs(scope, code, {"brokerName": broker}))


def _order(scope: JobScope, broker: str, order: DrainOrder) -> Order:
    return Order(
        broker_name=broker,
        namesrvs=scope.namesrvs,
        ticket_id=order.ticket_id,
        operator=order.operator,
        patience_s=scope.patience_s,
    )


def _fail_over(scope: JobScope, plan: DrainPlan, order: DrainOrder) -> Flow[None]:
    engine = FailoverEngine(
        _order(scope, plan.broker, order),
        now_ms=order.now_ms,
        wall_ms=order.wall_ms,
        on_step=lambda step: order.on_step(f"{step.name} {step.node}: {step.result}"),
    )
    outcome = yield from engine.run()
    if outcome.result is not Result.DONE:
        raise JobRefused(f"{plan.broker} keeps its master: {outcome.message}")
    order.on_step(outcome.message)


def _transfer(scope: JobScope, plan: DrainPlan, order: DrainOrder) -> Flow[None]:
    detail = yield from describe_broker(scope, plan.broker, plan.id)
    status: dict[str, Any] = dict(detail.status)
    followers = status["raft"].get("followers") or []
    voters = [one for one in followers if one.get("is_voter")]
    if not voters:
        raise JobRefused(f"{plan.broker} has no follower that could lead")
    best = max(voters, key=lambda one: one.get("matched_offset") or 0)["member_id"]
    body = {"do": "transfer", "member": best, "address": ""}
    code = RequestCode.TRIOHA_RAFT_ADMIN
    (reply,) = yield from ask_all(Ask(plan.address, code, body, TRANSFER_S))
    told = answered(plan.address, reply)
    order.on_step(str(decode_map(told.body).get("message", f"{best} leads")))


def _others(status: dict[str, Any]) -> bool:
    """Return whether the set has a node that could take over."""
    return bool(status.get("members") or status.get("connections"))


def _wait_for_clients(
    scope: JobScope, plan: DrainPlan, order: DrainOrder, notes: list[str]
) -> Flow[str]:
    """Return what is still there at the end; empty if nothing is."""
    clients = yield from list_clients(scope, consumers=False)
    notes += clients.silent
    wanted_s = _ROUTE_S if clients.clients and plan.way != "nothing" else _QUIET_S
    seen: tuple[int, ...] = ()
    began_ms = quiet_ms = order.now_ms()
    while True:
        if plan.way == "write permission":
            fields = {"brokerName": plan.broker}
            told = yield from tell_namesrvs(scope, RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
            notes += [one for one in told if one not in notes]
        try:
            now = yield from _traffic(scope, plan)
            if now != seen:
                seen, quiet_ms = now, order.now_ms()
            left = yield from _left(scope, plan, (order.now_ms() - quiet_ms) / 1000, wanted_s)
        except Unreachable as error:
            left = str(error)
        if not left or order.now_ms() - began_ms >= order.wait_s * 1000:
            return left
        yield from pause(_LOOK_S)


def _left(scope: JobScope, plan: DrainPlan, quiet_s: float, wanted_s: float) -> Flow[str]:
    if not quiet_s:
        return "messages or forwarded requests still come"
    if quiet_s < wanted_s:
        return f"nothing has come for {quiet_s:.1f} s, and producers need {wanted_s:g} s to leave"
    return (yield from _lag(scope, plan)) if plan.way == "write permission" else ""


def _traffic(scope: JobScope, plan: DrainPlan) -> Flow[tuple[int, ...]]:
    """Return counters that stand still once no client uses the node."""
    (reply,) = yield from ask_all(scope.ask(plan.address, RequestCode.TRIOHA_NODE_STATUS))
    if isinstance(reply, Answer) and reply.is_success:
        status = reply.fields()
        forwarding = status.get("forwarding") or {}
        counters = [int(forwarding.get("forwarded_total") or 0), int(status["get_total"])]
        if plan.way == "write permission":
            counters.append(int(status["put_total"]))
            counters.pop(1)  # consumers read to the end
        return tuple(counters)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    answer = yield from read_one(scope, plan.address, code)
    return (int(decode_kv_table(answer.body).get("msgPutTotalTodayNow", "0")),)


def _lag(scope: JobScope, plan: DrainPlan) -> Flow[str]:
    groups = (yield from list_groups(scope, broker=plan.broker)).groups
    behind = [f"{one.name} has {one.lag} messages to consume" for one in groups if one.lag > 0]
    return "; ".join(behind)
