"""Requests of jobs to name servers and brokers, and the errors that their answers raise.

A node that does not answer ends a job, as a rule: a plan must know all. A job that only reads goes
on without it (`going_on`): it asks no such node twice, so the node costs its patience once, and its
result names the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import attrs

from trioha.errors import CommandError, OutcomeUnknown, TriohaError, Unreachable
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, Wait, ask_all
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue
from trioha.wire.route import NOT_A_NAME_SERVER
from trioha.words import what_there_is

T = TypeVar("T")
P = ParamSpec("P")
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
    silent: dict[str, str] | None = attrs.field(default=None, eq=False)
    """Reason that each node has not answered, by address; None: the first of them ends the job."""

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


def going_on(
    job: Callable[Concatenate[JobScope, P], Flow[T]],
) -> Callable[Concatenate[JobScope, P], Flow[T]]:
    """Let a job that changes nothing go on without the nodes that do not answer."""

    @wraps(job)
    def go_on(scope: JobScope, /, *args: P.args, **kwargs: P.kwargs) -> Flow[T]:
        if scope.silent is not None:  # part of a job that goes on
            return (yield from job(scope, *args, **kwargs))
        silent: dict[str, str] = {}
        flow = job(attrs.evolve(scope, silent=silent), *args, **kwargs)
        return (yield from _ask_once(flow, silent))

    return go_on


def _ask_once(flow: Flow[T], silent: dict[str, str]) -> Flow[T]:
    """Ask what the flow asks, but no node that has not answered before; note each in `silent`."""
    replies: list[Reply] | None = None
    while True:
        try:
            effect = next(flow) if replies is None else flow.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(effect, Wait):
            replies = yield effect
            continue
        asks = [one for one in effect if one.address not in silent]
        heard = iter((yield tuple(asks)) if asks else [])
        replies = [
            Failed(silent[one.address], may_have_happened=False)
            if one.address in silent
            else next(heard)
            for one in effect
        ]
        silent |= {
            one.address: reply.reason
            for one, reply in zip(effect, replies, strict=True)
            if isinstance(reply, Failed)
        }


def side_by_side(flows: Iterable[Flow[T]]) -> Flow[list[T]]:
    """Run flows that ask and never wait: all their requests of a step go out at once."""
    running = dict(enumerate(flows))
    results: dict[int, T] = {}
    replies: dict[int, list[Reply] | None] = dict.fromkeys(running)
    while running:
        asks: dict[int, tuple[Ask, ...]] = {}
        for index, flow in list(running.items()):
            heard = replies[index]
            try:
                effect = next(flow) if heard is None else flow.send(heard)
            except StopIteration as end:
                results[index] = end.value
                del running[index]
                continue
            assert not isinstance(effect, Wait), "a flow that waits keeps the others waiting"
            asks[index] = effect
        every = iter((yield from ask_many([one for some in asks.values() for one in some])))
        replies = {index: [next(every) for _ in some] for index, some in asks.items()}
    return [results[index] for index in sorted(results)]


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
    """Ask every node the same, at once; return the answers by address.

    Errors: of the first that says no or does not answer; where the job goes on, Unreachable when
    none does.
    """
    replies = yield from ask_many([scope.ask(one, code, ext_fields) for one in addresses])
    return heard_of(scope, addresses, replies)


def heard_of(
    scope: JobScope,
    addresses: Sequence[str],
    replies: Sequence[Reply],
    *,
    unless: ResponseCode | None = None,
) -> dict[str, Answer]:
    """Return the answers among the nodes' replies, by address; those with a code are left out.

    Errors: as `read_each`.
    """
    pairs = list(zip(addresses, replies, strict=True))
    some = [(one, reply) for one, reply in pairs if isinstance(reply, Answer)]
    heard = some if scope.silent is not None and some else pairs
    return {
        address: answered(address, reply)
        for address, reply in heard
        if not (isinstance(reply, Answer) and reply.code == unless)
    }


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
