"""Promises that a new term of mastership needs before it may begin.

Theory of operation. A SYNC_MASTER answers SEND_OK once its own log and the log of one slave hold
the message, both in its term. So every acknowledged message is on two members. A new term must
fence the older ones, and its master must hold what they acknowledged, whichever two members that
was. Both follow from one rule:

    A term begins only after all members but one, its master among them, have promised it.

* *Fencing.* Any two members include one that has promised. That one follows no older term, so no
  older term gathers an acknowledgement once the new one has begun, although its master may run on.
* *Completeness.* Any acknowledged message is held by a member that has promised, unless that member
  lost it with its power. The new master's log is at least as far as the log of every one of them,
  by (epoch of the log, end of the log), and terms begin only at the end of a complete log. So the
  new master holds the message, by the same induction as in Raft (thesis, section 3.6.3).
* *Order.* Of two terms that both began by this rule, some member promised both, in sets of three
  and more. It promised the greater number last, so the later term has the greater number.

A set of two has no such member: a node begins a term alone while the other is silent. Then neither
node alone acknowledges anything with SEND_OK, and the first contact of the two tells which term is
the newer one. So that no number is given twice, the node with the smaller home id takes even
numbers then, and the other one odd numbers.

An operator can write members off (`--force`). Such a term begins with fewer promises, and its
number may be unknown to the members that were written off. Therefore a term with enough promises
leaves `EPOCH_ROOM` numbers behind the newest one known while some member is silent: terms begun by
force count up by one, so the term of a quorum is always the greater one. Of two terms that both
began by force, without knowing of each other, the greater number stands: both operators were told
that members which do not answer may hold more.

An ASYNC_MASTER acknowledges alone. No quorum of slaves can hold what it acknowledged; the rule
keeps its terms in order, and a forced switch may lose what the old master acknowledged meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection

MISSING_MAX = 1
"""Members that need not promise: an acknowledged message is on two."""
EPOCH_ROOM = 10
"""Numbers left to terms that were begun by force and that no promising member has heard of."""


def missing_promises(
    members: Collection[int], promised: Collection[int], written_off: Collection[int] = ()
) -> list[int]:
    """Return the home ids whose promises a term lacks; empty if it may begin.

    `members` are the home ids of the whole set, the new master's included. `written_off` are those
    that an operator was told of as silent and gave up by force: beside them no member may be
    missing.
    """
    absent = set(members) - set(promised)
    if len(absent) <= MISSING_MAX:
        return []
    return sorted(absent - set(written_off))


def next_epoch(newest: int, home_id: int, others: Collection[int], *, silent: int) -> int:
    """Return the number of a term that the node `home_id` of a set is to begin.

    `others` are the home ids of the other members, `silent` the number of members that do not
    answer. `newest` is the newest epoch that any member which answers knows or has promised.
    """
    if not silent:
        return newest + 1
    if len(others) > 1:
        return newest + (EPOCH_ROOM if silent <= MISSING_MAX else 1)
    return _own_number(newest + 1, home_id, others)


def _own_number(least: int, home_id: int, others: Collection[int]) -> int:
    is_odd = any(other < home_id for other in others)
    return least if least % 2 == is_odd else least + 1
