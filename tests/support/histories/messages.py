"""Messages that tell their own name: how each was sent, and where a log holds it."""

from __future__ import annotations

import math

import attrs

NAME_COLUMNS = 24


def make_body(name: str, size: int) -> bytes:
    """A body that tells its name and is different at every length."""
    head = name.ljust(NAME_COLUMNS).encode()
    filler = (name + "|").encode()
    return head + (filler * (size // len(filler) + 1))[:size]


def name_of(body: bytes) -> str:
    return body[:NAME_COLUMNS].decode().rstrip()


@attrs.frozen
class Place:
    """The place of a message in a log."""

    queue_id: int
    queue_offset: int
    phy_offset: int


@attrs.frozen
class Stored:
    """One record of a log."""

    name: str
    size: int
    crc: int
    place: Place


@attrs.frozen(kw_only=True)
class Put:
    """One message, and what its sender was told."""

    name: str
    client: str
    began_s: float = 0.0
    ended_s: float = math.inf
    """Infinite while no answer has come: whatever became of it may have happened later."""
    outcome: str = "unknown"
    """"acknowledged", "refused" or "unknown"."""
    place: Place | None = None
    """The place that was told; a queue id or a physical offset of -1 was not told."""
    body: tuple[int, int] | None = None
    """Size and CRC32 of its body, if its sender has kept them."""
    retries: bool = False
    """Its client may have sent it several times."""
    detail: str = ""
