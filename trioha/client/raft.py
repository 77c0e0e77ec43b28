"""Asks the leader of a Raft group for a change, and tells "no" from "not known"."""

from __future__ import annotations

import trio

from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.watching import look_once
from trioha.errors import OutcomeUnknown, TriohaError, Unreachable
from trioha.watch.raft_change import PATIENCE_S, ChangePlan, read_change
from trioha.watch.replica_set import ReplicaSet
from trioha.watch.snapshot import ClusterSnapshot


async def look_at_cluster(namesrv: str, timeout_s: float) -> ClusterSnapshot:
    """Return every node that is known, members that do not answer included.

    Errors: Unreachable when no name server answers.
    """
    snapshot = ClusterSnapshot.of(await look_once(namesrv, timeout_s=timeout_s))
    if all(one.answer.error for one in snapshot.namesrvs):
        reasons = "; ".join(f"{one.address}: {one.answer.error}" for one in snapshot.namesrvs)
        raise Unreachable(f"no name server answers: {reasons}")
    return snapshot


async def look_at_groups(namesrv: str, timeout_s: float) -> tuple[ReplicaSet, ...]:
    """Return every set that elects its masters itself, members that do not answer included.

    Errors: Unreachable when no name server answers.
    """
    return tuple(one for one in (await look_at_cluster(namesrv, timeout_s)).sets if one.is_raft)


async def look_at_set(namesrv: str, timeout_s: float, broker_name: str) -> ReplicaSet:
    """The set of this broker name, whatever its mode.

    Errors: Unreachable when no name server answers, TriohaError when none knows the name.
    """
    snapshot = await look_at_cluster(namesrv, timeout_s)
    found = snapshot.set_of(broker_name)
    if found is None:
        known = ", ".join(sorted(one.name for one in snapshot.sets)) or "none"
        raise TriohaError(f"no broker {broker_name} is registered; known are: {known}")
    return found


async def run_change(namesrv: str, timeout_s: float, plan: ChangePlan) -> str:
    """Ask the leader, and await what became of it, in words.

    Errors: Unreachable when nothing has happened, CommandError when the leader says no,
    OutcomeUnknown when its answer did not come.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_cluster(namesrv, config) as cluster:
        return await ask_leader(cluster, plan)


async def ask_leader(cluster: Cluster, plan: ChangePlan) -> str:
    """Ask the leader of the plan, and return its answer in words. Errors: as `run_change`."""
    address = plan.leader_address
    client = await cluster.connection(address)
    reason = f"{address} did not answer within {PATIENCE_S:g} s"
    with trio.move_on_after(PATIENCE_S):
        try:
            response = await client.request(plan.command())
        except Unreachable as error:
            reason = str(error)
        else:
            return read_change(plan, response)
    raise OutcomeUnknown(
        f"it is not known whether the {plan.do.value} of {plan.member} happened: {reason};"
        " `trioha raft status` tells, and asking again does no harm"
    )
