"""The extended handshake: what a slave and its master tell each other, and up to where they agree.

Theory of operation. Before it connects to the HA port a slave asks its master over remoting
(HA_HELLO): it sends its history and the extent of its log, and gets the master's. From both it
finds the *common offset*, the end of what is the same in both logs, and asks again for checksums of
the 4 KiB before the places in question. Only then is anything cut.

Two histories that share a record agree up to the smaller end of the newest one; the checksum then
guards against a damaged disk. Two that share none are *classic* to each other. Then only bytes can
speak: the end of the shorter log first (a slave that followed over a classic link holds more than
the record it never heard of), then the first record's start.

A slave cuts without asking what lies behind a shared record, or what a classic log holds beyond a
master of a newer epoch. It never cuts the whole log. Nor does it cut for a master whose epoch is
not newer than ours and shares nothing with it: that master lost its disk, or is another set's. In
these cases, and where bytes between the two logs are missing, an operator decides.
`trioha ha resync` sets a log aside only where the master holds as much (`holds_more`): the longer
log may be the only copy of what was acknowledged.

A hello serves two more purposes, because it proves its sender. A master that begins a
term, or goes on with one, *announces* itself to every member with the address of its HA port:
members follow at once instead of at their next registration. A returning master asks members to
*promise* it a new term (`ha.confirmation`); the answer's `promised` says whether they did.

With a shared secret (`trioha.ha.auth`) either side proves that it knows it: the slave by an HMAC
over a challenge of the master's and the whole request, the master by one over the slave's nonce and
the whole answer. A forged hello would depose a master; a forged answer would cut a slave's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import attrs
import msgpack

from trioha.errors import RemoteProtocolError
from trioha.ha.epochs import EPOCH_MAX, NONCE_BYTES, EpochHistory
from trioha.ha.events import Term
from trioha.ha.mastership import MEMBERS_MAX, Mastership, Standing
from trioha.wire.keyring import Keyring, keyring_of

PROOF_SPAN_BYTES = 4096
SPANS_MAX = 4
_VERSION = 1
_SLAVE_PURPOSE = b"trioha-ha-hello"
_MASTER_PURPOSE = b"trioha-ha-hello-answer"

T = TypeVar("T", bound="_Message")


class NeedsResync(RemoteProtocolError):
    """Following would cost what only an operator may give up."""


class Log(Protocol):
    """The part of this node's log that a hello needs."""

    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int: ...
    def read_log(self, phy_offset: int, size_max: int) -> memoryview: ...


@attrs.frozen
class LogExtent:
    """History and extent of a log, as a hello tells them."""

    history: EpochHistory
    min_offset: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.min_offset >= self.end


@attrs.frozen
class Span:
    """Bytes to compare."""

    begin: int
    end: int


@attrs.frozen(kw_only=True)
class _Message:
    broker_name: str
    home_id: int
    address: str
    """Address for clients, at which the nodes of a set reach each other too."""
    log: LogExtent
    known_epoch: int
    known_nonce: bytes = b""
    promised_epoch: int = 0
    promised_nonce: bytes = b""
    """Newest term that the node promised; 0 for none."""
    is_whole: bool = True
    """False after a loss of power, until the log is again as long as its master's was."""
    members: Mapping[int, str] = MappingProxyType({})

    @classmethod
    def of(
        cls: type[T],
        broker_name: str,
        address: str,
        mastership: Mastership,
        log: Log,
        **more: Any,
    ) -> T:
        """Return what a node says of itself; `more` are the fields of one kind of message alone."""
        return cls(
            broker_name=broker_name,
            home_id=mastership.home_id,
            address=address,
            log=LogExtent(mastership.history, log.min_phy_offset, log.max_phy_offset),
            known_epoch=mastership.begun[0],
            known_nonce=mastership.begun[1],
            promised_epoch=mastership.promise_given[0],
            promised_nonce=mastership.promise_given[1],
            is_whole=not mastership.may_have_lost,
            members=mastership.members,
            **more,
        )

    @property
    def promised(self) -> tuple[int, bytes]:
        return self.promised_epoch, self.promised_nonce

    def encode(self) -> bytes:
        fields = {key: getattr(self, key) for key in _KEYS}
        return bytes(
            msgpack.packb(
                fields
                | {
                    "version": _VERSION,
                    "members": dict(self.members),
                    "history": self.log.history.encode(),
                    "min": self.log.min_offset,
                    "end": self.log.end,
                    **self._more(),
                }
            )
        )

    def _more(self) -> dict[str, object]:
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class Hello(_Message):
    """Question of a slave to its master."""

    nonce: bytes = b""
    """Fresh random bytes, which the master's proof covers."""
    spans: tuple[Span, ...] = ()
    """Stretches of the log whose checksums the asking node wants."""
    ha_address: str = ""
    """HA port of a master that announces itself; "" in every other hello."""
    wants_epoch: int = 0
    wants_nonce: bytes = b""
    """Term that the node asks the other to promise; 0 in every other hello."""

    def _more(self) -> dict[str, object]:
        return {
            "nonce": self.nonce,
            "spans": [[span.begin, span.end] for span in self.spans],
            "ha_address": self.ha_address,
            "wants_epoch": self.wants_epoch,
            "wants_nonce": self.wants_nonce,
        }

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Errors: RemoteProtocolError."""
        return _decode(data, cls._of)

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Hello:
        spans = tuple(Span(_offset(begin), _offset(end)) for begin, end in fields["spans"])
        if len(spans) > SPANS_MAX:
            raise ValueError(f"{len(spans)} spans")
        return cls(
            **_common(fields),
            nonce=_bytes(fields["nonce"]),
            spans=spans,
            ha_address=_text(fields.get("ha_address", "")),
            wants_epoch=_epoch(fields.get("wants_epoch", 0)),
            wants_nonce=_term_nonce(fields.get("wants_nonce", b"")),
        )


@attrs.frozen(kw_only=True)
class HelloAnswer(_Message):
    """Answer of a node to a slave that takes it for its master."""

    standing: Standing
    follows: str = ""
    """Remoting address of the master that the node follows itself."""
    checksums: tuple[int | None, ...] = ()
    """Checksums of the spans asked for, in order; None for a span not held whole."""
    objection: str = ""
    """Reason why the node did not promise the term that the hello wanted."""
    ticket_holder: str = ""
    """Operator of the failover in progress; "" for none."""

    def _more(self) -> dict[str, object]:
        return {
            "standing": self.standing.value,
            "follows": self.follows,
            "objection": self.objection,
            "ticket_holder": self.ticket_holder,
            "checksums": list(self.checksums),
        }

    @classmethod
    def decode(cls, data: bytes) -> HelloAnswer:
        """Errors: RemoteProtocolError."""
        return _decode(data, cls._of)

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> HelloAnswer:
        checksums = tuple(None if it is None else _offset(it) for it in fields["checksums"])
        return cls(
            **_common(fields),
            standing=Standing(fields["standing"]),
            follows=_text(fields["follows"]),
            checksums=checksums[:SPANS_MAX],
            objection=_text(fields.get("objection", "")),
            ticket_holder=_text(fields.get("ticket_holder", "")),
        )

    @property
    def term(self) -> Term:
        newest = self.log.history.newest
        assert newest is not None, "a master has begun a term"
        return Term(newest.epoch, newest.nonce)


@attrs.frozen
class MeetingPlace:
    """A place where two logs may be found to be the same, and what has to be compared for it."""

    common_offset: int
    span: Span
    is_classic: bool


def holds_more(ours: LogExtent, theirs: LogExtent) -> bool:
    """Is our log the one to keep: does it go further, or is the master's another log?

    As candidates for mastership do, logs compare by the epoch in which they end and then by their
    end. A master whose epoch is not newer than ours, and which shares no term with it, has lost its
    disk.
    """
    if ours.is_empty:
        return False
    epoch, their_epoch = ours.history.epoch_at(ours.end), theirs.history.epoch_at(theirs.end)
    if (epoch, ours.end) > (their_epoch, theirs.end):
        return True
    is_other = ours.history.meet(ours.end, theirs.history, theirs.end).is_classic
    return is_other and theirs.history.epoch <= ours.history.epoch


def meetings(ours: Hello, theirs: HelloAnswer) -> tuple[MeetingPlace, ...]:
    """Return the places where this log and the master's may meet, best first; none if empty.

    Errors: RemoteProtocolError when the node may not be followed; NeedsResync.
    """
    _check_master(ours, theirs)
    our_log, their_log = ours.log, theirs.log
    if our_log.is_empty:
        return ()
    met = our_log.history.meet(our_log.end, their_log.history, their_log.end)
    offsets = [met.common_offset]
    if met.is_classic:
        offsets.insert(0, min(our_log.end, their_log.end))
    least = max(our_log.min_offset, their_log.min_offset)
    found = []
    for offset in dict.fromkeys(offsets):
        # A span without bytes proves nothing, but logs that share a record need no proof.
        if offset > least or (offset == least and not met.is_classic):
            begin = max(least, offset - PROOF_SPAN_BYTES)
            found.append(MeetingPlace(offset, Span(begin, offset), met.is_classic))
    if not found:
        raise NeedsResync(
            f"our log, {our_log.min_offset} to {our_log.end}, and the master's, "
            f"{their_log.min_offset} to {their_log.end}, have nothing in common that both still "
            f"hold; {_cure(ours, theirs)}"
        )
    return tuple(found)


def agree(
    found: Sequence[MeetingPlace],
    ours: Hello,
    theirs: HelloAnswer,
    checksums: Sequence[int | None],
) -> int:
    """Compare our own `checksums` of the spans with the master's; return the common offset.

    Errors: NeedsResync.
    """
    if not found:
        return ours.log.end
    for meeting, our_sum, their_sum in zip(found, checksums, theirs.checksums, strict=False):
        if our_sum is None or our_sum != their_sum:
            continue
        cuts = meeting.common_offset < ours.log.end
        newer = theirs.log.history.epoch > ours.log.history.epoch
        if cuts and meeting.is_classic and not newer:
            raise NeedsResync(
                f"our log goes on from {meeting.common_offset} to {ours.log.end}, beyond the "
                f"master's, whose epoch {theirs.log.history.epoch} is not newer than ours and "
                f"shares no term with it; {_cure(ours, theirs)}"
            )
        return meeting.common_offset
    raise NeedsResync(
        f"our log and the master's differ in the {PROOF_SPAN_BYTES} bytes before offset "
        f"{found[-1].common_offset}, where they should be the same; {_cure(ours, theirs)}"
    )


def _cure(ours: Hello, theirs: HelloAnswer) -> str:
    compare = "compare with `trioha log diff`"
    if holds_more(ours.log, theirs.log):
        return (
            f"ours may be the only copy of what was acknowledged: {compare}, and make this node "
            f"master with `trioha failover {ours.broker_name} --to {ours.home_id}`"
        )
    return f"{compare}; `trioha ha resync` keeps ours aside and copies the master's anew"


def _check_master(ours: Hello, theirs: HelloAnswer) -> None:
    who = f"{theirs.address} (brokerId {theirs.home_id})"
    if theirs.broker_name != ours.broker_name:
        raise RemoteProtocolError(
            f"{who} is of {theirs.broker_name}, this node of {ours.broker_name}: "
            "name servers or haMasterAddress point to another set"
        )
    if theirs.home_id == ours.home_id:
        raise RemoteProtocolError(
            f"{who} is configured with the same brokerId as this node; give each its own"
        )
    if theirs.standing is not Standing.MASTER or not theirs.log.history.epoch:
        follows = f" and follows {theirs.follows}" if theirs.follows else ""
        raise RemoteProtocolError(f"{who} is no master: it is {theirs.standing.value}{follows}")
    if theirs.log.history.epoch < ours.known_epoch:
        raise RemoteProtocolError(
            f"{who} is master of epoch {theirs.log.history.epoch}, but epoch {ours.known_epoch} "
            "has begun: it has been deposed"
        )
    if not _is_followed(ours, theirs):
        raise RemoteProtocolError(
            f"{who} is master of epoch {theirs.log.history.epoch}, but this node has promised "
            f"epoch {ours.promised_epoch} to another node"
        )


def _is_followed(ours: Hello, theirs: HelloAnswer) -> bool:
    """Return `Mastership.follows_term` for a term, as the hello tells of this node."""
    term = theirs.term
    if term.epoch != ours.promised_epoch:
        return term.epoch > ours.promised_epoch
    return ours.promised_nonce in (b"", term.nonce)


class Proofs:
    """Answers to the challenges of slave and master: an HMAC over challenge and message."""

    def __init__(self, secret: str | Keyring) -> None:
        self._keyring = keyring_of(secret)

    def of_slave(self, challenge: bytes, body: bytes) -> bytes:
        return self._keyring.mac(challenge + _SLAVE_PURPOSE + body)

    def is_of_slave(self, challenge: bytes, body: bytes, proof: bytes) -> bool:
        return self._keyring.is_mac(challenge + _SLAVE_PURPOSE + body, proof)

    def of_master(self, nonce: bytes, body: bytes) -> bytes:
        return self._keyring.mac(nonce + _MASTER_PURPOSE + body)

    def is_of_master(self, nonce: bytes, body: bytes, proof: bytes) -> bool:
        return self._keyring.is_mac(nonce + _MASTER_PURPOSE + body, proof)


_KEYS = (
    "broker_name",
    "home_id",
    "address",
    "known_epoch",
    "known_nonce",
    "promised_epoch",
    "promised_nonce",
    "is_whole",
)


def _decode(data: bytes, of: Callable[[dict[str, Any]], T]) -> T:
    try:
        fields = msgpack.unpackb(data, strict_map_key=False)
        if not isinstance(fields, dict) or fields.get("version") != _VERSION:
            raise ValueError("of another version")
        return of(fields)
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"a hello that cannot be understood: {error}") from error


def _common(fields: dict[str, Any]) -> dict[str, Any]:
    log = LogExtent(
        EpochHistory.decode(_bytes(fields["history"])),
        _offset(fields["min"]),
        _offset(fields["end"]),
    )
    members = {_offset(home): _text(address) for home, address in fields["members"].items()}
    if len(members) > MEMBERS_MAX:
        raise ValueError(f"{len(members)} members")
    return {
        "broker_name": _text(fields["broker_name"]),
        "home_id": _offset(fields["home_id"]),
        "address": _text(fields["address"]),
        "log": log,
        "known_epoch": _epoch(fields["known_epoch"]),
        "known_nonce": _term_nonce(fields["known_nonce"]),
        # Versions from before there were promises do not send these fields.
        "promised_epoch": _epoch(fields.get("promised_epoch", 0)),
        "promised_nonce": _term_nonce(fields.get("promised_nonce", b"")),
        "is_whole": fields.get("is_whole") is not False,
        "members": members,
    }


def _epoch(value: object) -> int:
    epoch = _offset(value)
    if epoch > EPOCH_MAX:
        raise ValueError(f"epoch {epoch}")
    return epoch


def _term_nonce(value: object) -> bytes:
    nonce = _bytes(value)
    if len(nonce) not in (0, NONCE_BYTES):
        raise ValueError(f"a nonce of {len(nonce)} bytes")
    return nonce


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 255:
        raise ValueError("no text")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("no bytes")
    return value
