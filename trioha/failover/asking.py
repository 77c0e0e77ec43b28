"""The seam between a failover and its driver: requests out, answers or failures in.

Theory of operation. The engine is a generator. It yields a tuple of `Ask`, which the driver sends
all at once; the driver sends back a list with an `Answer` or a `Failed` for each, in that order.
Or it yields a `Wait`, and the driver sends an empty list after that time. Trio drives it in the
CLI, asyncio in the console, a simulation in tests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgpack

from trioha.wire.codes import ResponseCode
from trioha.wire.maps import decode_map

T = TypeVar("T")


@attrs.frozen
class Ask:
    """One request to one node."""

    address: str
    code: int
    body: Mapping[str, object] | None = None
    """Sent as msgpack; None sends no body."""
    patience_s: float = 3.0

    def encoded_body(self) -> bytes:
        return b"" if self.body is None else bytes(msgpack.packb(self.body))


@attrs.frozen
class Answer:
    """A node's answer."""

    code: int
    remark: str = ""
    body: bytes = b""

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
Flow = Generator[tuple[Ask, ...] | Wait, list[Reply], T]


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
