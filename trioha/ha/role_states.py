"""The states of a node of a master-slave set, and every transition that there is between them.

`trioha.ha.role_machine` moves between the states; a transition that is not in the table is an
error. docs/failover.md shows the table as a diagram, which `diagram` draws.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trioha.ha.mastership import Mastership, Standing


class State(enum.Enum):
    """Role of a node at the moment."""

    SLAVE = "SLAVE"
    """Follows a master, or looks for one."""
    MASTER = "MASTER"
    """Takes writes in its own term."""
    PAUSED = "PAUSED"
    """Master whose writes are parked while an operator prepares a planned switch."""
    AWAITS_SLAVE = "AWAITS_SLAVE"
    """Master whose writes are parked until the old master, which follows now, has reported."""
    HANDED_OVER = "HANDED_OVER"
    """Was master and left the next term to another node, which may not have begun it yet."""
    FENCED = "FENCED"
    """Was master and knows of a newer term, or of a longer log; follows no master yet."""
    UNCONFIRMED = "UNCONFIRMED"
    """Was master and does not know whether a newer term has begun: it asks the members."""
    PROMOTING = "PROMOTING"
    """Brings log and queues up to date, to begin the term that an operator asked for."""


MASTERS = frozenset({State.MASTER, State.PAUSED, State.AWAITS_SLAVE})
"""States in which the node has a term of its own and serves slaves."""

_MEMBERS_DOUBT = "members promised a newer term, or the process stood still"
_NEWER_BEGAN = "a newer term has begun"
_FOLLOWS = "follows the master of a newer term"
_PROMOTED = "promoted by an operator"
_CANNOT = "the term cannot begin"

TRANSITIONS: Mapping[tuple[State, State], str] = {
    (State.MASTER, State.PAUSED): "an operator pauses writes",
    (State.AWAITS_SLAVE, State.PAUSED): "an operator pauses writes",
    (State.PAUSED, State.MASTER): "the pause ends",
    (State.AWAITS_SLAVE, State.MASTER): "a slave is in sync, or a second is over",
    (State.PAUSED, State.HANDED_OVER): "handed over to the target",
    (State.MASTER, State.FENCED): _NEWER_BEGAN,
    (State.PAUSED, State.FENCED): _NEWER_BEGAN,
    (State.AWAITS_SLAVE, State.FENCED): _NEWER_BEGAN,
    (State.MASTER, State.UNCONFIRMED): _MEMBERS_DOUBT,
    (State.PAUSED, State.UNCONFIRMED): _MEMBERS_DOUBT,
    (State.AWAITS_SLAVE, State.UNCONFIRMED): _MEMBERS_DOUBT,
    (State.HANDED_OVER, State.MASTER): "the target says that it never begins",
    (
        State.HANDED_OVER,
        State.UNCONFIRMED,
    ): "the same, but another term was promised, or may have been",
    (State.HANDED_OVER, State.FENCED): "the same, but a newer term has begun meanwhile",
    (State.HANDED_OVER, State.SLAVE): _FOLLOWS,
    (State.FENCED, State.SLAVE): _FOLLOWS,
    (State.UNCONFIRMED, State.SLAVE): _FOLLOWS,
    (State.UNCONFIRMED, State.MASTER): "confirmed by the members, or begins a new term",
    (State.UNCONFIRMED, State.FENCED): "a member holds a newer term, or a longer log",
    (State.SLAVE, State.PROMOTING): _PROMOTED,
    (State.FENCED, State.PROMOTING): _PROMOTED,
    (State.UNCONFIRMED, State.PROMOTING): _PROMOTED,
    (State.HANDED_OVER, State.PROMOTING): _PROMOTED,
    (State.PROMOTING, State.MASTER): "the term is on disk",
    (State.PROMOTING, State.AWAITS_SLAVE): "the term is on disk, in a planned switch",
    (State.PROMOTING, State.SLAVE): _CANNOT,
    (State.PROMOTING, State.FENCED): _CANNOT,
    (State.PROMOTING, State.UNCONFIRMED): _CANNOT,
    (State.PROMOTING, State.HANDED_OVER): _CANNOT,
}
"""Permitted transitions: the states before and after, and the reason."""

STANDINGS: Mapping[State, frozenset[Standing]] = {
    State.SLAVE: frozenset({Standing.SLAVE}),
    **dict.fromkeys(MASTERS, frozenset({Standing.MASTER})),
    State.HANDED_OVER: frozenset({Standing.FENCED}),
    State.FENCED: frozenset({Standing.FENCED}),
    State.UNCONFIRMED: frozenset({Standing.FENCED}),
    State.PROMOTING: frozenset({Standing.SLAVE, Standing.FENCED}),
}
"""Standings of the mastership that fit each state; `Mastership.unconfirmed` tells the rest."""


class IllegalTransition(AssertionError):
    """A fault of ours: no rule leads from the one state to the other."""


def check_transition(before: State, after: State, mastership: Mastership) -> None:
    """Errors: IllegalTransition when the table knows no such transition, or the disk disagrees."""
    if (before, after) not in TRANSITIONS:
        raise IllegalTransition(f"a node that is {before.value} cannot become {after.value}")
    check_state(after, mastership)


def check_state(state: State, mastership: Mastership) -> None:
    """Errors: IllegalTransition when the mastership on disk says otherwise."""
    standing, unconfirmed = mastership.standing, mastership.unconfirmed
    fits = unconfirmed == (state is State.UNCONFIRMED) or state is State.PROMOTING
    if standing not in STANDINGS[state] or not fits:
        words = "unconfirmed" if unconfirmed else standing.value
        raise IllegalTransition(f"{state.value}, while the mastership is {words}")


def state_of(mastership: Mastership, *, handed_over: bool = False) -> State:
    """Return the state of a node that is neither paused nor being promoted."""
    if mastership.standing is Standing.MASTER:
        return State.MASTER
    if mastership.standing is Standing.SLAVE:
        return State.SLAVE
    if mastership.unconfirmed:
        return State.UNCONFIRMED
    return State.HANDED_OVER if handed_over else State.FENCED


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for (before, after), reason in TRANSITIONS.items():
        lines.append(f"    {before.value} --> {after.value}: {reason}")
    return "\n".join(lines)
