"""The open transactions of a cluster's masters (request 30050)."""

from __future__ import annotations

import attrs

from trioha.client.cluster import Cluster, success
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import Json, integer, list_of, object_of, text
from trioha.wire.remoting_command import ExtValue, RemotingCommand


@attrs.frozen
class OpenTransaction:
    """A half message that is neither committed nor rolled back."""

    group: str
    producers: int
    """Producers of the group that are connected to the broker."""
    topic: str
    queue_id: str
    unique_key: str
    keys: str
    born_ms: int
    checks: int
    next_check_ms: int
    queue_offset: int
    """Place of its newest copy in the half queue."""
    phy_offset: int

    @classmethod
    def from_dict(cls, fields: Json) -> OpenTransaction:
        """Errors: RemoteProtocolError."""
        return cls(
            text(fields, "group"),
            integer(fields, "producers"),
            text(fields, "topic"),
            text(fields, "queueId"),
            text(fields, "uniqueKey"),
            text(fields, "keys"),
            integer(fields, "bornTimestamp"),
            integer(fields, "checkTimes"),
            integer(fields, "nextCheckTimestamp"),
            integer(fields, "queueOffset"),
            integer(fields, "commitLogOffset"),
        )


@attrs.frozen
class OpenTransactions:
    """The open transactions of one master."""

    count: int
    """Number over all producer groups; `shown` may be fewer."""
    shown: tuple[OpenTransaction, ...]


async def open_transactions(
    cluster: Cluster, address: str, *, group: str = "", count: int = 100
) -> OpenTransactions:
    """Return what is open at a master, the oldest first.

    Errors: Unreachable, RemoteProtocolError, CommandError with the broker's code.
    """
    fields: dict[str, ExtValue] = {"group": group, "count": count}
    request = RemotingCommand(RequestCode.TRIOHA_TRANSACTIONS, fields)
    body = success(await cluster.request(address, request)).body_bytes()
    answer = object_of(fastjson.loads(body), "open transactions")
    shown = [
        OpenTransaction.from_dict(object_of(one, "transaction"))
        for one in list_of(answer.get("transactions"), "transactions")
    ]
    return OpenTransactions(integer(answer, "open"), tuple(shown))
