"""A DLEDGER group and its members, as lists of facts."""

from __future__ import annotations

from trioha.watch.condition import condition_of_set
from trioha.watch.raft import RaftFollower, RaftState
from trioha.watch.replica import Replica
from trioha.watch.replica_set import ReplicaSet
from trioha.words import age_in_words, size_in_words
from trioha_console.cells import NOTHING, Cell, cell
from trioha_console.marks import heartbeat_cell
from trioha_console.roles import LEVEL_ROLES, condition_cell
from trioha_console.widgets.facts import Facts

_BAR_WIDTH = 24

Panel = tuple[Cell, Facts]


def group_facts(one: ReplicaSet, told: Cell) -> Panel:
    """The group by its leader's word; `told` is how fresh that is."""
    condition = condition_of_set(one)
    title: Cell = (("raft group  ", "title"), (one.name, "strong"), ("  ", ""))
    title += condition_cell(condition)
    facts: list[tuple[str, Cell]] = []
    if condition.why:
        facts.append(("", cell(condition.why, LEVEL_ROLES[condition.level])))
    leading = one.master
    leader = leading.raft if leading is not None else None
    if leading is None or leader is None:
        return title, facts
    return title, [
        *facts,
        ("leader", cell(f"{leader.member_id} at {leading.address}", "accent")),
        ("last answer", told),
        ("term", _term(leader)),
        ("committed", _committed(leader)),
        ("voters", _names(leader, leader.voters)),
        *([("learners", _names(leader, leader.learners))] if leader.learners else []),
        *transfer_facts(leader),
        ("waiting", cell(leading.puts_waiting)),
        ("clients", cell(leading.client_connections)),
        *refusal_facts(leader),
    ]


def follower_facts(leading: Replica, row: RaftFollower | None, told: Cell) -> Panel:
    """The upper end: a follower as its leader sees it."""
    leader = leading.raft
    title: Cell = (("leader's end  ", "title"), (leading.address, ""))
    facts: list[tuple[str, Cell]] = [("last answer", told)]
    if leader is None or row is None:
        return title, [*facts, ("", cell("It does not count this node as a member.", "bad"))]
    heard = heartbeat_cell(
        row.heard_age_s, leader.heartbeat_interval_s, leader.gone_after_s, _BAR_WIDTH
    )
    return title, [
        *facts,
        ("member", cell(f"{row.member_id}{'' if row.is_voter is not False else ', a learner'}")),
        ("pushes", cell(row.phase, "good" if row.is_matched else "warn")),
        ("matched", cell(row.matched_offset)),
        ("held", cell(row.held_offset)),
        ("gap", _gap(row)),
        ("in flight", cell(size_in_words(row.inflight_bytes))),
        ("heartbeat", heard),
    ]


def own_facts(own: RaftState) -> list[tuple[str, Cell]]:
    """A member by its own word."""
    facts: list[tuple[str, Cell]] = [
        ("member", cell(f"{own.member_id} of {own.group or '-'}")),
        ("role", cell(own.standing, "accent" if own.is_leader else "")),
        ("term", cell(own.term)),
        ("follows", cell(own.leader_id or None)),
        ("log begins", cell(own.begin_offset)),
        ("committed", cell(own.committed_offset)),
        ("held", cell(own.held_offset)),
        ("log ends", cell(own.end_offset)),
    ]
    if own.failed:
        facts.append(("failed", cell(own.failed, "bad")))
    return facts + refusal_facts(own)


def members_of(own: RaftState) -> list[tuple[str, Cell]]:
    """Return all members that a node knows, with its view of each follower if it leads."""
    lines: list[tuple[str, Cell]] = []
    for name in own.members:
        row = own.follower(name)
        kind = "learner" if name in own.learners else "voter"
        where = own.addresses.get(name, "address not known")
        said: Cell = ((kind, ""),)
        if name == own.member_id:
            said += ((", this node", "accent"),)
        elif row is not None:
            heard = age_in_words(row.heard_age_s)
            role = "" if own.is_present(row) is not False else "bad"
            said += ((f", {size_in_words(row.gap_bytes)} behind, heard {heard} ago", role),)
        lines.append((name, (*said, (f"  {where}", "dim"))))
    return lines or [("", cell("It tells of none.", "dim"))]


def transfer_facts(leader: RaftState) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = []
    if leader.transfer_target:
        facts.append(("hands over", cell(f"to {leader.transfer_target}", "warn")))
    if leader.transfer_error:
        facts.append(("last transfer", cell(leader.transfer_error, "warn")))
    return facts


def refusal_facts(own: RaftState) -> list[tuple[str, Cell]]:
    return [
        ("refused", cell(f"{one.peer} {age_in_words(one.age_s)} ago: {one.reason}", "warn"))
        for one in own.refusals
    ]


def _term(leader: RaftState) -> Cell:
    if leader.is_serving is False:
        return ((str(leader.term), ""), ("  not serving yet", "warn"))
    return cell(leader.term)


def _committed(leader: RaftState) -> Cell:
    end, committed = leader.end_offset, leader.committed_offset
    if end is None or committed is None:
        return NOTHING
    waiting = max(0, end - committed)
    return ((str(committed), ""), (f", {size_in_words(waiting)} beyond it", "dim"))


def _names(leader: RaftState, names: tuple[str, ...]) -> Cell:
    """Each with a mark: is it heard?"""
    spans: list[tuple[str, str]] = []
    for name in names:
        row = leader.follower(name)
        here = name == leader.member_id or (row is not None and leader.is_present(row) is not False)
        spans.append((f"{'●' if here else '✖'} {name}  ", "good" if here else "bad"))
    return tuple(spans) or NOTHING


def _gap(row: RaftFollower) -> Cell:
    if row.gap_bytes is None:
        return NOTHING
    return cell(size_in_words(row.gap_bytes), "" if row.keeps_up is not False else "warn")
