"""The numbers of terms that a node believes.

Theory of operation. Terms of mastership are numbered upwards, and a node that hears of a newer term
stops being master. So one false number would stop a set, and a number at the end of the range would
leave no number for the term that repairs it. A node therefore believes no number that is far beyond
the newest term it holds a record of. How far depends on the speaker:

* *Unasked*: a node that says hello, a broker that registers. While a member is away its set can
  begin 100,000 terms, each ten numbers on (`trioha.ha.quorum`), one a minute for ten weeks.
* *Asked*: the answer of a master or a name server that this node has chosen to ask. It may be
  sixteen times further on. After false unasked numbers the operator's repair begins a term beyond
  them, and members that were away have to believe that term.
* *Ordered*: a step of an operator's failover. It may go further than any number that a member can
  have believed from another node, so a forced failover always finds a number that is new to all.

A number that is not newer than what is known changes nothing, so it is believed from anybody.
"""

from __future__ import annotations

import enum

EPOCH_MAX = 2**31 - 1
"""Java's largest int, in which RocketMQ 5 counts epochs too."""


class Word(enum.IntEnum):
    """Most that a number may exceed the newest recorded term, by the way in which it came."""

    UNASKED = 1 << 20
    ASKED = 1 << 24
    ORDERED = 1 << 25


def disbelief(epoch: int, recorded: int, word: Word) -> str:
    """Return why a node whose newest record is of epoch `recorded` does not believe `epoch`.

    Returns "" if it does.
    """
    if not 0 <= epoch <= EPOCH_MAX:
        return f"epoch {epoch} is not within 1 to {EPOCH_MAX}"
    if epoch - recorded > word:
        return (
            f"epoch {epoch} is more than {int(word)} beyond epoch {recorded}, the newest one known "
            "here: no set comes so far"
        )
    return ""
