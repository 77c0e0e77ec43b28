"""What an operator may ask of a Raft group: hand over, take in, promote, take out.

A plan is made of what the members say now, for people and for ``--dry-run``: it names the leader
that is to be asked, what would be so afterwards, and what speaks against it. The leader judges
again by what it knows itself, which is newer.
"""

from __future__ import annotations

from enum import Enum

import attrs
import msgpack

from trioha.errors import CommandError, OutcomeUnknown
from trioha.watch.raft import RaftFollower, RaftState
from trioha.watch.raft_condition import condition_of_group
from trioha.watch.snapshot import ReplicaSet
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand
from trioha.words import age_in_words, size_in_words

PATIENCE_S = 15.0
"""For an answer: a transfer is given up within an election timeout, a change of members may have
to wait for a disk."""


class Do(Enum):
    """By the names that travel."""

    TRANSFER = "transfer"
    ADD = "add"
    PROMOTE = "promote"
    REMOVE = "remove"


@attrs.frozen(kw_only=True)
class ChangePlan:
    """One change, as it would be asked for now."""

    broker_name: str
    do: Do
    member: str
    """Whom it is about; "" when nobody fits."""
    address: str
    """Of who joins."""
    leader: RaftState | None
    leader_address: str
    would: str
    """What would be so afterwards, in a sentence."""
    costs: str
    """What that takes from the group; "" for nothing."""
    refusals: tuple[str, ...]

    @property
    def may_run(self) -> bool:
        return not self.refusals

    def command(self) -> RemotingCommand:
        """The request to the leader; a new one each time."""
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
    """What `do` would mean now. A transfer without a member goes to the best of the followers."""
    leading = one.master if one.masters else None
    leader = None if leading is None else leading.raft
    refusals: list[str] = []
    would = costs = ""
    if not one.is_raft:
        refusals.append(f"{one.name} is no DLEDGER group; `trioha failover` changes its master")
    elif leader is None:
        why = condition_of_group(one.raft_states).why
        refusals.append(f"{one.name} has no leader that could do it: {why}")
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
    """What has happened, in a sentence.

    Errors: CommandError when the leader says no, OutcomeUnknown when it does not know.
    """
    if response.code != ResponseCode.SUCCESS:
        remark = response.remark or "refused without a remark"
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
    """Why a follower cannot lead now; "" when it can."""
    if row.member_id not in leader.voters:
        return f"{row.member_id} is a learner: promote it first"
    if leader.is_present(row) is False:
        return f"{row.member_id} has not been heard for {age_in_words(row.heard_age_s)}"
    if row.is_matched is False:
        return f"{row.member_id} is not level yet: it is at {row.phase}"
    if row.keeps_up is False:
        return f"{row.member_id} is {size_in_words(row.gap_bytes)} behind"
    return ""


def _best(leader: RaftState) -> str:
    """Of the followers that can lead the one that lacks least."""
    fit = [one for one in leader.followers if not fitness(leader, one)]
    best = min(fit, key=lambda one: (one.gap_bytes or 0, one.member_id), default=None)
    return "" if best is None else best.member_id


def _transfer(leader: RaftState, member: str) -> tuple[str, list[str]]:
    would = f"{member} leads in a term of its own, {leader.member_id} follows; nothing is lost"
    if not member:
        reasons = [
            fitness(leader, one) for one in leader.followers if one.member_id in leader.voters
        ]
        return "", ["nobody could take over: " + ("; ".join(reasons) or "there is no other voter")]
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
    would = f"{member} at {address} is sent the whole log as a learner; promote it when it is level"
    if member in leader.members:
        return "", [f"{member} is a member already"]
    holder = next((name for name, at in leader.addresses.items() if at == address), "")
    if holder in leader.members:
        return "", [f"{address} is where {holder} is"]
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
        return would, [f"{member} is {size_in_words(row.gap_bytes)} behind; wait until it is level"]
    return would, []


def _remove(leader: RaftState, member: str) -> tuple[str, str, list[str]]:
    if member not in leader.members:
        return "", "", [_no_member(leader, member)]
    if leader.voters == (member,):
        return "", "", [f"{member} is the only voter"]
    if member in leader.learners:
        return f"{member} is sent nothing any more; who votes stays as it is", "", []
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
