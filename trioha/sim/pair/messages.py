"""Messages between clients, nodes, name servers and operators of the simulated set."""

from __future__ import annotations

import enum

import attrs

BROKER = "broker-a"


class PutAnswer(enum.Enum):
    """Answer to a put."""

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
    """Registration of a node with a name server."""

    host: str
    broker_id: int
    epoch: int
    nonce: str
    in_doubt: bool = False
    """The node has come back and asks whether it is still master."""


@attrs.frozen
class RegisterAnswer:
    """The name server's answer: the node that stands against the claim, and the master."""

    stands: str = ""
    epoch: int = 0
    nonce: str = ""
    remembers: bool = False
    """The name server has known this claim before."""
    master: str = ""


@attrs.frozen
class AskRoute:
    """Question to a name server for the route."""


@attrs.frozen
class Route:
    """Hosts of the set by broker id, as a name server knows them."""

    brokers: tuple[tuple[int, str], ...] = ()

    @property
    def master(self) -> str:
        return dict(self.brokers).get(0, "")
