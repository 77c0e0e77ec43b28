"""The attempt of a node in doubt to begin a new term: it asks, counts promises, and asks again.

The node has read in the members' words (`ha.confirmation`) that only a new term is safe. It
promises the term to itself first and then asks the members. An attempt that finds too few promises
is repeated under the same number and nonce, so that members which have promised it already count.
The next attempt takes another number only when a member told of a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trioha.errors import LocalProtocolError
from trioha.ha.confirmation import MemberWord, Returning
from trioha.ha.events import Term
from trioha.ha.hello import HelloAnswer
from trioha.ha.mastership import Mastership

Answers = Mapping[int, HelloAnswer | None]
"""Answers of the members to one hello, by home id; None for a member that is silent."""


def words_in(answers: Answers) -> dict[int, MemberWord | None]:
    """Return what the answers say of the members."""
    return {
        home_id: None if answer is None else MemberWord.told_by(answer)
        for home_id, answer in answers.items()
    }


class Candidacy:
    """Asks for one term at a time. `fresh_nonce` draws the nonce of a term that is new."""

    def __init__(self, mastership: Mastership, fresh_nonce: Callable[[], bytes]) -> None:
        self._mastership = mastership
        self._fresh_nonce = fresh_nonce
        self._term: Term | None = None

    def returning(self, broker_name: str, end: int) -> Returning:
        """Return the node as `ha.confirmation.judge` has to see it; its log ends at `end`."""
        mastership, term = self._mastership, self._term
        newest = mastership.newest
        assert newest is not None, "a node without a term was no master"
        promised = mastership.promise_given
        if term is not None and promised == (term.epoch, term.nonce):
            # The promise to this node itself is not one that stands against it.
            promised = (0, b"")
        return Returning(
            broker_name=broker_name,
            home_id=mastership.home_id,
            history=mastership.history,
            end=end,
            promised=promised,
            may_have_lost=mastership.may_have_lost,
            sync=newest.sync,
        )

    def wish(self, epoch: int) -> Term | None:
        """Promise a term of at least this number to this node itself; members are asked next.

        Returns None when a newer term was promised or has begun meanwhile: the next judgement of
        the members' words gives another number.
        """
        mastership, term = self._mastership, self._term
        if term is None or term.epoch < epoch or term.epoch <= mastership.known_epoch:
            term = self._term = Term(epoch, self._fresh_nonce())
        try:
            mastership.promise(term.epoch, term.nonce)
        except LocalProtocolError:
            self._term = None
            return None
        return term

    def has_promises(self, term: Term, answers: Answers) -> bool:
        """Return whether so many members have promised the term that it may begin (`ha.quorum`)."""
        promised = [
            home_id
            for home_id, answer in answers.items()
            if answer is not None and answer.promised == (term.epoch, term.nonce)
        ]
        return not self._mastership.lacks_promises(promised)

    def give_up(self) -> None:
        """Forget the term: another one was promised or has begun meanwhile."""
        self._term = None
