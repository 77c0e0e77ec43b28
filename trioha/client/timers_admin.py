"""The pending timer messages of a cluster's masters (request 30051)."""

from __future__ import annotations

import attrs

from trioha.client.cluster import Cluster, success
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import Json, boolean, integer, list_of, object_of, text
from trioha.wire.remoting_command import RemotingCommand


@attrs.frozen
class PendingTimer:
    """A message that waits for its time, or a cancellation."""

    deliver_at_ms: int
    topic: str
    queue_id: str
    unique_key: str
    keys: str
    cancels: str
    """Topic and id of the message that is not to be delivered; empty for a message."""
    born_ms: int
    queue_offset: int
    phy_offset: int

    @classmethod
    def from_dict(cls, fields: Json) -> PendingTimer:
        """Errors: RemoteProtocolError."""
        return cls(
            integer(fields, "deliverTimestamp"),
            text(fields, "topic"),
            text(fields, "queueId"),
            text(fields, "uniqueKey"),
            text(fields, "keys"),
            text(fields, "cancels"),
            integer(fields, "bornTimestamp"),
            integer(fields, "queueOffset"),
            integer(fields, "commitLogOffset"),
        )


@attrs.frozen
class PendingTimers:
    """The pending timer messages of one master."""

    count: int
    """Number of all; `shown` are those that are due next."""
    is_loaded: bool
    """False: the broker has just become master and still counts."""
    shown: tuple[PendingTimer, ...]


async def pending_timers(cluster: Cluster, address: str, count: int = 100) -> PendingTimers:
    """Return what is pending at a master.

    Errors: Unreachable, RemoteProtocolError, CommandError with the broker's code.
    """
    request = RemotingCommand(RequestCode.TRIOHA_TIMERS, {"count": count})
    body = success(await cluster.request(address, request)).body_bytes()
    answer = object_of(fastjson.loads(body), "pending timers")
    shown = [
        PendingTimer.from_dict(object_of(one, "timer"))
        for one in list_of(answer.get("timers"), "timers")
    ]
    return PendingTimers(
        integer(answer, "pending"), boolean(answer, "isLoaded", True), tuple(shown)
    )
