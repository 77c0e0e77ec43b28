"""An operator's changes of a Raft group: transfer, add, promote, remove.

A plan is made from the members' answers, for people and for ``--dry-run``: it has the leader that
gets the request, the effect, and the reasons against it. The leader decides again by its own state,
which is newer.
"""

from __future__ import annotations

from enum import Enum

import attrs
import msgpack

from trioha.errors import CommandError, OutcomeUnknown
from trioha.watch.raft import RaftFollower, RaftState
from trioha.watch.raft_condition import condition_of_group
from trioha.watch.replica_set import ReplicaSet
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand
from trioha.words import age_in_words, size_in_words

PATIENCE_S = 15.0
"""Wait for an answer: a transfer ends within an election timeout, a change of members may wait for
a disk."""


class Do(Enum):
    """Kind of a change, with its name in the request."""

    TRANSFER = "transfer"
    ADD = "add"
    PROMOTE = "promote"
    REMOVE = "remove"


@attrs.frozen(kw_only=True)
class ChangePlan:
    """One change, planned from the present answers."""

    broker_name: str
    do: Do
    member: str
    """Member to change; "" if no follower is fit for a transfer."""
    address: str
    """Address of the member to add."""
    leader: RaftState | None
    leader_address: str
    would: str
    """Effect of the change, in a sentence."""
    costs: str
    """Cost of the change for the group; "" for none."""
    refusals: tuple[str, ...]

    @property
    def may_run(self) -> bool:
        return not self.refusals

    def command(self) -> RemotingCommand:
        """Return a new request to the leader."""
        body = {"do": self.do.value, "member": self.member, "address": self.address}
        return RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, {}, msgpack.packb(body))

    def as_dict(self) -> dict[str, object]:
        return {
            "broker": self.broker_name,
            "do": self.do.value,
            "member": self.member,
            "address": self.address,
            "leader": None if self.leader is None else self.leader.member_id,
            "leader_address": self.leader_address,
            "term": None if self.leader is None else self.leader.term,
            "would": self.would,
            "costs": self.costs,
            "refusals": list(self.refusals),
        }


def plan_change(one: ReplicaSet, do: Do, member: str = "", address: str = "") -> ChangePlan:
    """Plan a change. A transfer without a member goes to the best follower."""
    leading = one.master if one.masters else None
    leader = None if leading is None else leading.raft
    refusals: list[str] = []
    would = costs = ""
    if not one.is_raft:
        refusals.append(f"{one.name} is no DLEDGER group; `trioha failover` changes its master")
    elif leader is None:
        why = condition_of_group(one.raft_states).why
        refusals.append(f"{one.name} has no leader that can make the change: {why}")
    elif do is Do.TRANSFER:
        member = member or _best(leader)
        would, refusals = _transfer(leader, member)
    elif do is Do.ADD:
        would, refusals = _add(leader, member, address)
    elif do is Do.PROMOTE:
        would, refusals = _promote(leader, member)
    else:
        would, costs, refusals = _remove(leader, member)
    return ChangePlan(
        broker_name=one.name,
        do=do,
        member=member,
        address=address,
        leader=leader,
        leader_address="" if leading is None else leading.address,
        would=would,
        costs=costs,
        refusals=tuple(refusals),
    )


def read_change(plan: ChangePlan, response: RemotingCommand) -> str:
    """Return the result of a change, in a sentence.

    Errors: CommandError if the leader rejects it; OutcomeUnknown if the leader cannot tell.
    """
    if response.code != ResponseCode.SUCCESS:
        remark = response.remark or "rejected without a reason"
        if remark.startswith(OUTCOME_UNKNOWN):
            raise OutcomeUnknown(remark)
        raise CommandError(response.code, remark)
    body = response.body_bytes()
    term = decode_map(body).get("term") if body else None
    name = plan.broker_name
    if plan.do is Do.TRANSFER:
        since = f" since term {term}" if isinstance(term, int) else ""
        return f"{plan.member} leads {name}{since}"
    if plan.do is Do.ADD:
        return f"{plan.member} is a learner of {name}"
    if plan.do is Do.PROMOTE:
        return f"{plan.member} votes in {name}"
    return f"{plan.member} is no member of {name} any more"


def fitness(leader: RaftState, row: RaftFollower) -> str:
    """Return why a follower cannot lead now; "" if it can."""
    if row.member_id not in leader.voters:
        return f"{row.member_id} is a learner: promote it first"
    if leader.is_present(row) is False:
        return f"{row.member_id} has not been heard for {age_in_words(row.heard_age_s)}"
    if row.is_matched is False:
        return f"{row.member_id} is not up to date yet: its phase is {row.phase}"
    if row.keeps_up is False:
        return f"{row.member_id} is {size_in_words(row.gap_bytes)} behind"
    return ""


def _best(leader: RaftState) -> str:
    """Return the fit follower with the smallest gap; "" if none is fit."""
    fit = [one for one in leader.followers if not fitness(leader, one)]
    best = min(fit, key=lambda one: (one.gap_bytes or 0, one.member_id), default=None)
    return "" if best is None else best.member_id


def _transfer(leader: RaftState, member: str) -> tuple[str, list[str]]:
    would = f"{member} leads in a term of its own, {leader.member_id} follows; nothing is lost"
    if not member:
        reasons = [
            fitness(leader, one) for one in leader.followers if one.member_id in leader.voters
        ]
        return "", [
            "no follower can take over: " + ("; ".join(reasons) or "there is no other voter")
        ]
    if member == leader.member_id:
        return "", [f"{member} leads already"]
    if leader.transfer_target:
        return would, [f"{leader.member_id} is handing over to {leader.transfer_target} already"]
    row = leader.follower(member)
    if row is None:
        return "", [_no_member(leader, member)]
    reason = fitness(leader, row)
    return would, [reason] if reason else []


def _add(leader: RaftState, member: str, address: str) -> tuple[str, list[str]]:
    would = f"{member} at {address} gets the log as a learner; promote it once it is up to date"
    if member in leader.members:
        return "", [f"{member} is a member already"]
    holder = next((name for name, at in leader.addresses.items() if at == address), "")
    if holder in leader.members:
        return "", [f"{holder} has the address {address} already"]
    return would, []


def _promote(leader: RaftState, member: str) -> tuple[str, list[str]]:
    voters = len(leader.voters) + 1
    would = f"{member} votes: {voters // 2 + 1} of {voters} voters are a majority then"
    if member in leader.voters:
        return "", [f"{member} is a voter already"]
    row = leader.follower(member)
    if row is None:
        return "", [_no_member(leader, member)]
    if leader.is_present(row) is False:
        return would, [f"{member} has not been heard for {age_in_words(row.heard_age_s)}"]
    if row.keeps_up is False:
        behind = size_in_words(row.gap_bytes)
        return would, [f"{member} is {behind} behind; wait until it is up to date"]
    return would, []


def _remove(leader: RaftState, member: str) -> tuple[str, str, list[str]]:
    if member not in leader.members:
        return "", "", [_no_member(leader, member)]
    if leader.voters == (member,):
        return "", "", [f"{member} is the only voter"]
    if member in leader.learners:
        return f"{member} gets no more of the log; the voters stay the same", "", []
    voters = set(leader.voters) - {member}
    here = {one.member_id for one in leader.followers if leader.is_present(one)}
    here = (here | {leader.member_id}) & voters
    quorum = len(voters) // 2 + 1
    would = f"{member} is no member any more: {quorum} of {len(voters)} voters are a majority then"
    if member == leader.member_id:
        would += "; it leads until that is committed, then another is elected"
    before, after = (len(leader.voters) - 1) // 2, (len(voters) - 1) // 2
    costs = "" if before == after else f"the group survives the loss of {after}, not {before}"
    if len(here) < quorum:
        why = (
            f"of the {len(voters)} voters that stay {len(here)} are heard and {quorum} are needed:"
            " nothing could be committed any more"
        )
        return would, costs, [why]
    return would, costs, []


def _no_member(leader: RaftState, member: str) -> str:
    return f"{member} is no member; there are {', '.join(leader.members) or 'none'}"
