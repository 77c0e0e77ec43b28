"""What a failover says to its driver, and what it hears: requests out, answers or failures in.

The engine is a generator. It yields a tuple of `Ask`, to be sent all at once, and is sent back a
list with an `Answer` or a `Failed` for each, in that order; or it yields a `Wait` and is sent an
empty list once so much time has passed. Trio drives it in the CLI, asyncio in the console, a
simulation in tests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
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
    """Goes as msgpack."""
    patience_s: float = 3.0

    def encoded_body(self) -> bytes:
        return b"" if self.body is None else bytes(msgpack.packb(self.body))


@attrs.frozen
class Answer:
    """What the node said."""

    code: int
    remark: str = ""
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return self.code == ResponseCode.SUCCESS

    def fields(self) -> dict[str, Any]:
        """The body as a msgpack map.

        Errors: RemoteProtocolError when it is none.
        """
        return decode_map(self.body)


@attrs.frozen
class Failed:
    """No answer."""

    reason: str
    may_have_happened: bool = True
    """False when the request surely did not reach the node."""


@attrs.frozen
class Wait:
    """Go on after so much time."""

    seconds: float


Reply = Answer | Failed
Flow = Generator[tuple[Ask, ...] | Wait, list[Reply], T]


def ask_all(*asks: Ask) -> Flow[list[Reply]]:
    """Ask them all at once."""
    return (yield asks) if asks else []


def ask(request: Ask) -> Flow[Reply]:
    return (yield from ask_all(request))[0]


def pause(seconds: float) -> Flow[None]:
    yield Wait(seconds)
