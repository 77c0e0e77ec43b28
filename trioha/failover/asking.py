"""The seam between a failover or a job and its driver: requests out, answers or failures in.

Theory of operation. The engine is a generator, and so is each job of an operator (`trioha.jobs`).
It yields a tuple of `Ask`, which the driver sends all at once; the driver sends back a list with an
`Answer` or a `Failed` for each, in that order. Or it yields a `Wait`, and the driver sends an empty
list after that time. Trio drives it in the CLI, asyncio in the console, a simulation in tests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from struct import error
from typing import Any, TypeVar

import attrs
import msgpack

from trioha.errors import RemoteProtocolError
from trioha.wire.codes import ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import ExtValue, RemotingCommand

T = TypeVar("T")


@attrs.frozen
class Ask:
    """One request to one node."""

    address: str
    code: int
    body: Mapping[str, object] | bytes | None = None
    """A map is sent as msgpack, bytes as they are; None sends no body."""
    patience_s: float = 3.0
    ext_fields: Mapping[str, ExtValue] = attrs.field(factory=dict)
    """The request's header fields."""

    def command(self) -> RemotingCommand:
        """Return a new command each time: connections write their opaque into it."""
        return RemotingCommand(self.code, dict(self.ext_fields), self._encoded_body())

    def _encoded_body(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else bytes(msgpack.packb(self.body))


@attrs.frozen
class Answer:
    """A node's answer."""

    code: int
    remark: str = ""
    body: bytes = b""
    ext_fields: Mapping[str, str] = attrs.field(factory=dict)
    """The answer's header fields."""

    @classmethod
    def of(cls, response: RemotingCommand) -> Answer:
        """Return a node's response as a flow gets it."""
        fields = {name: str(value) for name, value in response.ext_fields.items()}
        return cls(response.code, response.remark or "", response.body_bytes(), fields)

    @property
    def is_success(self) -> bool:
        return self.code == ResponseCode.SUCCESS

    def fields(self) -> dict[str, Any]:
        """Return the body, a msgpack map. Errors: RemoteProtocolError if it is none."""
        return decode_map(self.body)


@attrs.frozen
class Failed:
    """A request without an answer."""

    reason: str
    may_have_happened: bool = True
    """False if the request certainly did not reach the node."""


@attrs.frozen
class Wait:
    """Asks the driver to go on after `seconds`."""

    seconds: float


Reply = Answer | Failed
Effect = tuple[Ask, ...] | Wait
Flow = Generator[Effect, list[Reply], T]


def advance(flow: Flow[T], before: Effect | None, replies: list[Reply]) -> Effect:
    """Give a flow the replies to the effect `before`, and return the next one; None begins it.

    Errors: StopIteration with the result at its end, what the flow raises, and RemoteProtocolError
    when an answer has not got the fields or values that the flow reads.
    """
    if before is None:
        return next(flow)
    try:
        return flow.send(replies)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, error) as odd:
        asked = () if isinstance(before, Wait) else before
        who = ", ".join(sorted({one.address for one in asked})) or "a node"
        reason = f"{type(odd).__name__}: {odd}"
        raise RemoteProtocolError(f"what {who} answered cannot be read ({reason})") from odd


def ask_all(*asks: Ask) -> Flow[list[Reply]]:
    """Send all requests at once; return the replies in their order."""
    return (yield asks) if asks else []


def ask_each(addresses: Sequence[str], code: int, patience_s: float) -> Flow[dict[str, Reply]]:
    """Send a request without a body to each node at once; return the replies by address."""
    asks = [Ask(address, code, None, patience_s) for address in addresses]
    return dict(zip(addresses, (yield from ask_all(*asks)), strict=True))


def ask(request: Ask) -> Flow[Reply]:
    return (yield from ask_all(request))[0]


def pause(seconds: float) -> Flow[None]:
    yield Wait(seconds)
