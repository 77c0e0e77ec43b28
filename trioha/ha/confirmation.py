"""May a node that was master go on being it? What others say decides.

Theory of operation. A node that comes back as master of the newest term it knows lacks one of two
certainties, or both.

* *Nothing newer*: while it was away somebody else may have been promoted. A new term begins on a
  member of the set and is on that member's disk first. So if every member answers, that settles it.
  A name server settles it too if it remembers this node's claim from before its start: whatever was
  promoted since has registered there.
* *Nothing lost*: a machine that loses power loses what was not flushed, acknowledged by slaves
  though it may be. Then the term must not go on from a shorter log: other bytes would stand where
  slaves hold the old ones. Only members can tell. Who holds more, by (epoch of its log, end of it),
  is the better master, and an operator has to say so; if nobody does, what was lost was nobody's.

A set that was never failed over has only the first doubt in its first failover, and its master goes
on, as RocketMQ's does, when nobody says a word within a moment.

Members that stay silent may be gone for good. Where puts wait for slaves their logs may be the only
ones with acknowledged messages: the node waits, and says for whom. Where they do not, the node
begins, after a while, a term of its own at the end of what it has: then no two logs differ within
one term.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

UNCONTESTED_EPOCH_MAX = 1
"""Of a set that was never failed over."""


@attrs.frozen
class MemberWord:
    """What a member says of itself."""

    known_epoch: int
    log_epoch: int
    end: int


class Answer(enum.Enum):
    CONFIRMED = "CONFIRMED"
    """Be master as before."""
    ANEW = "ANEW"
    """Be master of a new term."""
    NEWER = "NEWER"
    """Somebody holds a newer epoch."""
    AHEAD = "AHEAD"
    """Somebody holds what this node lost."""
    WAIT = "WAIT"


@attrs.frozen
class Finding:
    answer: Answer
    words: str = ""
    """For people: who stands against it, or who is waited for."""
    member: int = -1
    """Who it is, where it is one."""
    known_epoch: int = 0


@attrs.frozen(kw_only=True)
class Returning:
    """The node that asks."""

    broker_name: str
    home_id: int
    epoch: int
    log_epoch: int
    end: int
    may_have_lost: bool
    """The machine went down: bytes that were not flushed are gone."""
    sync: bool
    """Puts wait for a slave."""


def judge(
    node: Returning,
    words: Mapping[int, MemberWord | None],
    addresses: Mapping[int, str],
    *,
    remembered: bool,
    moment_over: bool,
    patience_over: bool,
) -> Finding:
    """What `words`, by home id and None for who is silent, make of the node.

    `remembered`: a name server knows our claim from before we started, and none knows a newer one.
    """
    heard = {home_id: word for home_id, word in words.items() if word is not None}
    for home_id, word in sorted(heard.items()):
        if word.known_epoch > node.epoch:
            who = _name(home_id, addresses)
            return Finding(
                Answer.NEWER, f"{who}, as it says itself,", home_id, known_epoch=word.known_epoch
            )
    if node.may_have_lost:
        ahead = max(heard, key=lambda one: (heard[one].log_epoch, heard[one].end), default=-1)
        if ahead >= 0 and (heard[ahead].log_epoch, heard[ahead].end) > (node.log_epoch, node.end):
            return Finding(Answer.AHEAD, _what_is_lost(node, ahead, heard[ahead], addresses), ahead)
    silent = [home_id for home_id, word in words.items() if word is None]
    if not silent or (remembered and not node.may_have_lost):
        how = "every member says so" if not silent else "a name server remembers our claim"
        return Finding(Answer.CONFIRMED, how)
    if moment_over and node.epoch <= UNCONTESTED_EPOCH_MAX and not node.may_have_lost:
        return Finding(Answer.CONFIRMED, "nobody says otherwise, and there was no failover yet")
    if patience_over and node.may_have_lost and not node.sync and remembered:
        return Finding(Answer.ANEW)
    names = ", ".join(_name(home_id, addresses) for home_id in sorted(silent))
    why = (
        "this machine went down, and what it lost may be acknowledged and held by"
        if node.may_have_lost
        else "no name server remembers who was master, and a newer epoch may be known to"
    )
    return Finding(
        Answer.WAIT,
        f"{why} {names}, silent so far; to go on without: "
        f"trioha failover {node.broker_name} --to {node.home_id} --force",
    )


def _what_is_lost(
    node: Returning, home_id: int, word: MemberWord, addresses: Mapping[int, str]
) -> str:
    who = _name(home_id, addresses)
    what = (
        f"{word.end - node.end} bytes of epoch {word.log_epoch} that this node lost"
        if word.log_epoch == node.log_epoch
        else f"log of epoch {word.log_epoch}, and this node's ends in epoch {node.log_epoch}"
    )
    return f"{who} holds {what}: trioha failover {node.broker_name} --to {home_id}"


def _name(home_id: int, addresses: Mapping[int, str]) -> str:
    return f"{home_id} ({addresses.get(home_id, 'address unknown')})"
