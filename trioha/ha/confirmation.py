"""May a node that was master go on as master? The words of the other members decide.

Theory of operation. A node that was master and came back, or whose slaves promised a term to
another node, is *in doubt*. It takes no writes and asks every member. It lacks two certainties:

* *Nothing newer*: while it was away another node may have been promoted. A term begins on a member
  only after all members but one have promised it (`ha.quorum`), and a promoted node that stopped
  before any slave followed it counts like one that serves: it may come back.
* *Nothing lost*: a machine that loses power loses what was not flushed, even if slaves have
  acknowledged it. Then the term must not go on from a shorter log: other bytes would stand where
  slaves hold the old ones.

What the node may conclude:

====================  ==============================================================================
every member speaks   No member has begun or promised a newer term: the same term goes on. The words
                      hold the number *and* the nonce of a term: the same number with another nonce
                      is another term.
one member is silent  The silent member may have begun a newer term, alone or with promises of
                      members that speak. So the old term never goes on. The node asks those that
                      speak to promise it a new term, and begins that: then whatever the silent one
                      has begun gathers no acknowledgements and has the smaller number.
more are silent       Nothing. The node waits and names the silent members, because two of them may
                      have acknowledged messages to each other.
a name server         In a pair the same term goes on: a promoted slave that serves has registered.
remembers the claim   With a SYNC_MASTER nothing can be lost by that, because neither node
                      acknowledges anything alone. In larger sets a name server's memory proves
                      nothing: the promoted node may have stopped before it registered.
all are silent        A pair that was never failed over goes on after a moment, as RocketMQ's does.
====================  ==============================================================================

Two terms of one number with different nonces began without knowing of each other: operators wrote
members off by force. A node that serves in such a term stays master, and the returning one follows
it. If neither serves, an operator decides.

While an operator fails the broker over the node waits: the operator may have given it up already.

After a loss of power (`may_have_lost`) the words have to prove as well that no member holds more,
by (epoch of the log, end of the log). A member that holds more is named: an operator promotes it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.hello import HelloAnswer
from trioha.ha.mastership import Standing
from trioha.ha.quorum import MISSING_MAX, next_epoch

UNCONTESTED_EPOCH_MAX = 1
"""Epoch of a set that was never failed over."""

TermId = tuple[int, bytes]
"""Number and nonce of a term; the nonce is b"" where a peer did not tell it."""


@attrs.frozen
class MemberWord:
    """A member's answer to a hello, as far as it counts here."""

    known: TermId
    """Newest term that it knows to have begun."""
    promised: TermId
    """Newest term that it promised."""
    log_term: EpochRecord | None
    """Term that its log has come to; None for a log from before there were epochs."""
    end: int
    standing: Standing = Standing.SLAVE
    is_whole: bool = True
    """False after a loss of power, until its log is again as long as its master's was."""
    ticket_holder: str = ""
    """The operator of a failover in progress; "" for none."""

    @classmethod
    def told_by(cls, answer: HelloAnswer) -> MemberWord:
        """The word in an answer to a hello."""
        log = answer.log
        return cls(
            (answer.known_epoch, answer.known_nonce),
            answer.promised,
            log.history.cut(log.end).newest,
            log.end,
            answer.standing,
            answer.is_whole,
            answer.ticket_holder,
        )

    @property
    def reach(self) -> tuple[int, int]:
        """Epoch and end of the log, to compare logs by."""
        return (self.log_term.epoch if self.log_term is not None else 0, self.end)


class Ruling(enum.Enum):
    CONFIRMED = "CONFIRMED"
    """Go on in the same term."""
    ANEW = "ANEW"
    """Begin a new term, once enough members have promised it."""
    NEWER = "NEWER"
    """A member holds a newer term."""
    AHEAD = "AHEAD"
    """A member holds messages that this node lost."""
    WAIT = "WAIT"


@attrs.frozen
class Judgement:
    ruling: Ruling
    words: str = ""
    """Reason for a reader: the member that stands against it, or the members that are silent."""
    member: int = -1
    """Home id of the member that decided, where one did."""
    known: TermId = (0, b"")
    """Term that the member holds, with NEWER."""
    epoch: int = 0
    """Number of the new term, with ANEW."""


@attrs.frozen(kw_only=True)
class Returning:
    """The node that asks."""

    broker_name: str
    home_id: int
    history: EpochHistory
    end: int
    promised: TermId
    may_have_lost: bool
    """The machine went down: bytes that were not flushed are gone."""
    sync: bool
    """Puts wait for a slave."""

    @property
    def epoch(self) -> int:
        return self.history.epoch

    @property
    def nonce(self) -> bytes:
        newest = self.history.newest
        return newest.nonce if newest is not None else b""

    @property
    def reach(self) -> tuple[int, int]:
        """Epoch and end of the log, to compare logs by."""
        return (self.history.epoch_at(self.end), self.end)


def judge(
    node: Returning,
    words: Mapping[int, MemberWord | None],
    addresses: Mapping[int, str],
    *,
    remembered: bool,
    moment_over: bool,
    patience_over: bool,
) -> Judgement:
    """Return what `words` say of the node: by home id, None for a member that is silent.

    `remembered`: a name server knows the node's claim from before its doubt, and none knows a newer
    one. `moment_over`, `patience_over`: the node has waited for members that start beside it, and
    for members that may hold what it lost.
    """
    heard = {home_id: word for home_id, word in words.items() if word is not None}
    silent = sorted(home_id for home_id, word in words.items() if word is None)
    against = _contradiction(node, heard, addresses)
    if against is not None:
        return against
    # Invariant 3: the term would go on from a shorter log, and write other bytes where the member
    # holds acknowledged ones.
    ahead = max(heard, key=lambda one: heard[one].reach, default=-1)
    if ahead >= 0 and heard[ahead].reach > node.reach:
        return Judgement(Ruling.AHEAD, _what_is_lost(node, ahead, heard[ahead], addresses), ahead)
    is_pair = len(words) == 1
    # A promised term may begin, or have begun, without this node's knowledge (invariant 2): from
    # then on the old term must not go on, even if other members confirm it.
    is_promised = node.promised[0] > node.epoch or any(
        _is_beyond(word.promised, node) for word in heard.values()
    )
    if not silent and not is_promised:
        return Judgement(Ruling.CONFIRMED, "every member says so")
    # In a set of three this lost an acknowledged message (seed 737 of generator 1): the promoted
    # node may have stopped before it registered, and left its promises with a third.
    if is_pair and remembered and not is_promised:
        if not node.may_have_lost:
            return Judgement(Ruling.CONFIRMED, "a name server remembers our claim")
        # An ASYNC_MASTER promised nothing beyond its own machine, which has lost power. A
        # SYNC_MASTER's slave may hold what was acknowledged: it is waited for.
        if patience_over and not node.sync:
            epoch = next_epoch(_newest(node, heard), node.home_id, words, silent=1)
            return Judgement(Ruling.ANEW, epoch=epoch)
    # RocketMQ's pair, started as ever: no failover has taken place that could be missed.
    if (
        is_pair
        and silent
        and moment_over
        and node.epoch <= UNCONTESTED_EPOCH_MAX
        and not (node.may_have_lost or is_promised)
    ):
        return Judgement(
            Ruling.CONFIRMED, "no member says otherwise, and there was no failover yet"
        )
    if _has_quorum(node, heard, silent, moment_over=moment_over):
        epoch = next_epoch(_newest(node, heard), node.home_id, words, silent=len(silent))
        return Judgement(Ruling.ANEW, epoch=epoch)
    return Judgement(Ruling.WAIT, _why_wait(node, silent, addresses))


def objection_to(
    candidate: Returning,
    *,
    history: EpochHistory,
    end: int,
    standing: Standing,
    ticket_holder: str = "",
) -> str:
    """Return why a member does not promise a term to a candidate; "" if it may.

    `history`, `end` and `standing` are the member's own. `ticket_holder` is an operator who is
    failing the broker over at this moment.
    """
    # Two candidates at a time, the operator's and this one, could each get some of the promises.
    if ticket_holder:
        return f"{ticket_holder} is failing this broker over"
    # Its promise would end the term that it serves in, and that slaves may follow.
    if standing is Standing.MASTER:
        return "this node is master"
    log_term = history.cut(end).newest
    reach = (log_term.epoch if log_term is not None else 0, end)
    candidates_term = candidate.history.cut(candidate.end).newest
    # Two terms of one number: their bytes differ although the offsets say nothing of it.
    is_other = log_term != candidates_term and reach[0] == candidate.reach[0]
    if reach > candidate.reach or is_other:
        return (
            f"this log ends in epoch {reach[0]} at {reach[1]}, which the candidate's, epoch "
            f"{candidate.reach[0]} at {candidate.reach[1]}, does not hold"
        )
    return ""


def _contradiction(
    node: Returning, heard: Mapping[int, MemberWord], addresses: Mapping[int, str]
) -> Judgement | None:
    """A newer term, or one that the node has never heard of."""
    for home_id, word in sorted(heard.items()):
        name = _name(home_id, addresses)
        is_other = word.known[1] not in (b"", node.nonce)
        serves = word.standing is Standing.MASTER
        if word.known[0] > node.epoch or (word.known[0] == node.epoch and is_other and serves):
            return Judgement(Ruling.NEWER, f"{name}, as it says itself,", home_id, known=word.known)
    # Neither node serves: to go on would decide for the operator which of two histories counts.
    for home_id, word in sorted(heard.items()):
        if word.known[0] == node.epoch and word.known[1] not in (b"", node.nonce):
            return Judgement(
                Ruling.WAIT,
                f"{_name(home_id, addresses)} knows another epoch {node.epoch} than this node: two "
                "nodes were promoted without knowing of each other; compare them with `trioha ha "
                f"status` and promote one: trioha failover {node.broker_name} --to {home_id}",
                home_id,
            )
    # The operator's tool asked this node before it came back, and may promote another at any time.
    for home_id, word in sorted(heard.items()):
        if word.ticket_holder:
            return Judgement(
                Ruling.WAIT,
                f"{word.ticket_holder} is failing this broker over, says "
                f"{_name(home_id, addresses)}; the attempt ends within half a minute",
                home_id,
            )
    return None


def _has_quorum(
    node: Returning,
    heard: Mapping[int, MemberWord],
    silent: list[int],
    *,
    moment_over: bool,
) -> bool:
    """Do so many members speak that a new term of this node lacks nothing acknowledged?"""
    # Two silent members may have acknowledged messages to each other, in a term of their own.
    if not heard or len(silent) > MISSING_MAX:
        return False
    if not silent:
        return True
    # A log that lost its end in a power cut proves nothing of what it acknowledged before.
    is_whole = not node.may_have_lost and all(word.is_whole for word in heard.values())
    return moment_over and is_whole


def _is_beyond(term: TermId, node: Returning) -> bool:
    return term[0] > node.epoch or (term[0] == node.epoch and term[1] not in (b"", node.nonce))


def _newest(node: Returning, heard: Mapping[int, MemberWord]) -> int:
    """Return the newest number that any answering member knows or has promised."""
    told = [max(word.known[0], word.promised[0]) for word in heard.values()]
    return max([node.epoch, node.promised[0], *told])


def _why_wait(node: Returning, silent: list[int], addresses: Mapping[int, str]) -> str:
    names = ", ".join(_name(home_id, addresses) for home_id in silent)
    why = (
        "this machine went down, and what it lost may be acknowledged and held by"
        if node.may_have_lost
        else "it is not known whether another node was promoted meanwhile; this may be known to"
    )
    return (
        f"{why} {names}, silent so far; to go on without: "
        f"trioha failover {node.broker_name} --to {node.home_id} --force"
    )


def _what_is_lost(
    node: Returning, home_id: int, word: MemberWord, addresses: Mapping[int, str]
) -> str:
    name = _name(home_id, addresses)
    log_epoch, end = word.reach
    what = (
        f"{end - node.end} bytes of epoch {log_epoch} that this node lost"
        if log_epoch == node.reach[0]
        else f"log of epoch {log_epoch}, and this node's ends in epoch {node.reach[0]}"
    )
    return f"{name} holds {what}: trioha failover {node.broker_name} --to {home_id}"


def _name(home_id: int, addresses: Mapping[int, str]) -> str:
    return f"{home_id} ({addresses.get(home_id, 'address unknown')})"
