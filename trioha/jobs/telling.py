"""What a job asks name servers and brokers, and the errors that it raises for what they answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from trioha.errors import CommandError, OutcomeUnknown, TriohaError, Unreachable
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, ask_all
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue
from trioha.wire.route import NOT_A_NAME_SERVER
from trioha.words import what_there_is

T = TypeVar("T")
Fields = Mapping[str, ExtValue]

ASKED_AT_ONCE_MAX = 256
"""Requests of one step: each is a task and a timer of the driver."""


class NotThere(TriohaError):
    """A thing that was asked for by name does not exist."""


class JobRefused(TriohaError):
    """A job that would do harm, or cannot be done, before anything has changed."""


@attrs.frozen
class JobScope:
    """The cluster that a job works on."""

    namesrvs: tuple[str, ...]
    """Addresses of its name servers."""
    patience_s: float = 3.0
    """Seconds to wait for each answer."""

    def ask(
        self,
        address: str,
        code: RequestCode,
        ext_fields: Fields | None = None,
        body: bytes | None = None,
        *,
        patience_s: float | None = None,
    ) -> Ask:
        """Return one request to one node."""
        seconds = self.patience_s if patience_s is None else patience_s
        return Ask(address, code, body, seconds, ext_fields or {})


def ask_namesrv(
    scope: JobScope, code: RequestCode, ext_fields: Fields | None = None
) -> Flow[Answer]:
    """Ask the name servers in turn until one answers.

    Errors: Unreachable when none does; it names each with its reason.
    """
    reasons = []
    for address in scope.namesrvs:
        (reply,) = yield from ask_all(scope.ask(address, code, ext_fields))
        if isinstance(reply, Failed):
            reasons.append(reply.reason)
        elif reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            reasons.append(f"{address} {NOT_A_NAME_SERVER}")
        else:
            return reply
    raise Unreachable("no name server answers: " + "; ".join(reasons))


def read_one(
    scope: JobScope,
    address: str,
    code: RequestCode,
    ext_fields: Fields | None = None,
    body: bytes | None = None,
    *,
    patience_s: float | None = None,
) -> Flow[Answer]:
    """Ask one node something that changes nothing. Errors: Unreachable, CommandError."""
    request = scope.ask(address, code, ext_fields, body, patience_s=patience_s)
    (reply,) = yield from ask_all(request)
    return answered(address, reply)


def change_one(
    scope: JobScope,
    address: str,
    code: RequestCode,
    ext_fields: Fields | None = None,
    body: bytes | None = None,
    *,
    done: Sequence[str] = (),
) -> Flow[Answer]:
    """Ask one node for a change.

    `done` names the nodes where the job has made the change already; errors tell of them.
    Errors: Unreachable if the request did not reach the node, OutcomeUnknown if its answer did not
    come, CommandError if the node says no.
    """
    (reply,) = yield from ask_all(scope.ask(address, code, ext_fields, body))
    before = f"; done before: {', '.join(done)}" if done else ""
    if isinstance(reply, Failed):
        if reply.may_have_happened:
            raise OutcomeUnknown(
                f"{address}: it is not known whether this happened: {reply.reason}{before};"
                " asking again does no harm"
            )
        raise Unreachable(reply.reason + before)
    if not reply.is_success:
        raise CommandError(reply.code, f"{address}: {reply.remark or 'refused'}{before}")
    return reply


def change_each(
    scope: JobScope,
    nodes: Iterable[tuple[str, str]],
    code: RequestCode,
    ext_fields: Fields | None = None,
    body: bytes | None = None,
) -> Flow[list[str]]:
    """Ask one (name, address) after the other for a change; return the names. Errors: as above."""
    done: list[str] = []
    for name, address in nodes:
        yield from change_one(scope, address, code, ext_fields, body, done=done)
        done.append(name)
    return done


def ask_many(asks: Sequence[Ask]) -> Flow[list[Reply]]:
    """Send many requests, `ASKED_AT_ONCE_MAX` at a time; return the replies in their order."""
    replies: list[Reply] = []
    for begin in range(0, len(asks), ASKED_AT_ONCE_MAX):
        replies += yield from ask_all(*asks[begin : begin + ASKED_AT_ONCE_MAX])
    return replies


def read_each(
    scope: JobScope,
    addresses: Sequence[str],
    code: RequestCode,
    ext_fields: Fields | None = None,
) -> Flow[dict[str, Answer]]:
    """Ask every node the same, at once. Errors: of the first that does not answer or says no."""
    replies = yield from ask_many([scope.ask(one, code, ext_fields) for one in addresses])
    pairs = zip(addresses, replies, strict=True)
    return {address: answered(address, reply) for address, reply in pairs}


def answered(address: str, reply: Reply) -> Answer:
    """Return the answer. Errors: Unreachable; CommandError with the node's code and remark."""
    if isinstance(reply, Failed):
        raise Unreachable(reply.reason)
    if not reply.is_success:
        raise CommandError(reply.code, f"{address}: {reply.remark or 'refused without a remark'}")
    return reply


def check_unchanged(what: str, planned: object, present: object) -> None:
    """Errors: JobRefused when another operator was quicker: the plan is of another state."""
    if planned != present:
        raise JobRefused(
            f"{what} has changed since the plan was made; nothing has been done, look again"
        )


def no_such(kind: str, name: str, known: Iterable[str]) -> NotThere:
    """Return the error for a name that does not exist, with the nearest that does."""
    cure = what_there_is(name, known, otherwise=f"; `trioha {kind} list` shows what there is")
    return NotThere(f"no {kind} {name}{cure}")
