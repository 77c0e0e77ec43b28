"""What clients, nodes, name servers and operators of the simulated set say to each other."""

from __future__ import annotations

import enum

import attrs

BROKER = "broker-a"


class PutAnswer(enum.Enum):
    """What a sender is told."""

    OK = "SEND_OK"
    NO_SLAVE = "SLAVE_NOT_AVAILABLE"
    TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    REFUSED = "SERVICE_NOT_AVAILABLE"


@attrs.frozen
class Put:
    """A message to store."""

    queue_id: int
    message_id: int


@attrs.frozen
class RegisterNode:
    """A node to a name server."""

    host: str
    broker_id: int
    epoch: int
    nonce: str
    in_doubt: bool = False
    """The node has come back and asks whether it is still master."""


@attrs.frozen
class RegisterAnswer:
    """The name server's answer: who stands against the claim, and who is master."""

    stands: str = ""
    epoch: int = 0
    nonce: str = ""
    remembers: bool = False
    """It has known our claim before."""
    master: str = ""


@attrs.frozen
class AskRoute:
    """Who is master?"""


@attrs.frozen
class Route:
    """Who a name server believes is who."""

    brokers: tuple[tuple[int, str], ...] = ()

    @property
    def master(self) -> str:
        return dict(self.brokers).get(0, "")
