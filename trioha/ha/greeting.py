"""Answers hellos, and tells the node what each hello means to it (`trioha.ha.hello`).

Every node answers, whatever its standing: a slave that asks another slave gets the address of that
slave's master. A hello that knows of a newer epoch fences a master before it is answered. A hello
from a slave that has promised another node a newer term puts a master in doubt: it can gather no
acknowledgements any more. Hellos also carry a master's announcement, and a candidate's wish for a
promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from trioha.checksum import crc32
from trioha.errors import LocalProtocolError, OffsetOutOfRange, RemoteProtocolError
from trioha.ha.confirmation import Returning, objection_to
from trioha.ha.hello import PROOF_SPAN_BYTES, Hello, HelloAnswer, Log, Span
from trioha.ha.mastership import Mastership, Standing
from trioha.wire.epoch_numbers import Word

_TEXT_CHARS_MAX = 255


class Greeted(Protocol):
    """The node that a hello reaches; each call comes in the pass that read the hello."""

    def fenced(self, reason: str) -> None:
        """A hello told of a newer term: this node is no longer master."""

    def doubted(self, reason: str) -> None:
        """Members promised a newer term: this node does not know whether it is master."""

    def promised(self) -> None:
        """This node promised a term: it follows and acknowledges nothing older."""

    def announced(self, home_id: int, address: str, ha_address: str) -> None:
        """The master of the newest term named itself."""

    def member_lost_power(self, address: str) -> None:
        """The member at this address may have lost the last bytes of its log."""

    def member_met(self) -> None:
        """This master has met a member that it did not know: the other members are to know it."""

    @property
    def follows(self) -> str:
        """Remoting address of the master that this node follows; "" when none."""


@attrs.define(eq=False)
class Greeting:
    """Answers the hellos of one node."""

    _broker_name: str
    _address: str
    _mastership: Mastership
    _log: Log
    _greeted: Greeted
    _ticket_holder: Callable[[], str]
    """Returns the operator of the failover in progress, "" for none."""

    def greet(self, hello: Hello) -> HelloAnswer:
        """Act on a hello, and answer it.

        Errors: RemoteProtocolError when it tells of an epoch that cannot be; nothing has changed.
        """
        objection = ""
        if hello.broker_name == self._broker_name and hello.home_id != self._mastership.home_id:
            self._check_numbers(hello)
            objection = self._hear(hello)
        return self._answer_to(hello, objection)

    def leaves_out(self, hello: Hello) -> bool:
        """Return whether the sender of a hello is not remembered as a member of this set."""
        home_id = hello.home_id
        is_other = hello.broker_name == self._broker_name and home_id != self._mastership.home_id
        return is_other and home_id not in self._mastership.members

    def _check_numbers(self, hello: Hello) -> None:
        told = hello.known_epoch, hello.promised_epoch, hello.wants_epoch, hello.log.history.epoch
        for epoch in told:
            if doubt := self._mastership.disbelief(epoch, Word.UNASKED):
                raise RemoteProtocolError(
                    f"{hello.address} (brokerId {hello.home_id}) tells of a term that cannot be: "
                    f"{doubt}"
                )

    def _hear(self, hello: Hello) -> str:
        """Act on what the hello tells; return why no promise was given, "" if none was wanted."""
        mastership, greeted = self._mastership, self._greeted
        holder = f"a node that {hello.address} (brokerId {hello.home_id}) has heard of"
        if not hello.is_whole:
            greeted.member_lost_power(hello.address)
        if mastership.hear(hello.known_epoch, hello.known_nonce, holder):
            greeted.fenced(mastership.fenced_by)
        is_new = mastership.meet_members({**hello.members, hello.home_id: hello.address})
        if is_new and mastership.standing is Standing.MASTER:
            greeted.member_met()
        if mastership.is_deserted(hello.promised):
            words = f"{hello.address} (brokerId {hello.home_id}) has promised epoch "
            if mastership.doubt(f"{words}{hello.promised_epoch} to another node"):
                greeted.doubted(mastership.fenced_by)
        if hello.wants_epoch:
            return self._promise(hello)
        newest = hello.log.history.newest
        if (
            hello.ha_address
            and newest is not None
            # A master that was deposed after it sent the hello tells of its successor's term.
            and newest.home_id == hello.home_id
            and mastership.standing is not Standing.MASTER
            and mastership.follows_term(newest.epoch, newest.nonce)
        ):
            greeted.announced(hello.home_id, hello.address, hello.ha_address)
        return ""

    def _promise(self, hello: Hello) -> str:
        mastership = self._mastership
        objection = objection_to(
            Returning(
                broker_name=hello.broker_name,
                home_id=hello.home_id,
                history=hello.log.history,
                end=hello.log.end,
                promised=hello.promised,
                may_have_lost=not hello.is_whole,
                sync=True,
            ),
            history=mastership.history,
            end=self._log.max_phy_offset,
            standing=mastership.standing,
            ticket_holder=self._ticket_holder(),
        )
        if not objection:
            try:
                mastership.promise(hello.wants_epoch, hello.wants_nonce)
            except LocalProtocolError as error:
                return str(error)
            self._greeted.promised()
        return objection

    def _answer_to(self, hello: Hello, objection: str) -> HelloAnswer:
        mastership, log = self._mastership, self._log
        return HelloAnswer.of(
            self._broker_name,
            self._address,
            mastership,
            log,
            standing=mastership.standing,
            follows=self._greeted.follows if mastership.standing is not Standing.MASTER else "",
            objection=objection[:_TEXT_CHARS_MAX],
            ticket_holder=self._ticket_holder()[:_TEXT_CHARS_MAX],
            checksums=tuple(checksum(log, span) for span in hello.spans),
        )


def checksum(log: Log, span: Span) -> int | None:
    """Return the CRC of a span; None if the log lacks a part of it, or the span is too long."""
    offset, found = span.begin, 0
    if span.end - offset > PROOF_SPAN_BYTES or offset > span.end:
        return None
    try:
        while offset < span.end:
            piece = log.read_log(offset, span.end - offset)
            if not piece:
                return None
            found = crc32(piece, found)
            offset += len(piece)
    except OffsetOutOfRange:
        return None
    return found
