"""Requests that wait while mastership changes hands: with their connection, in order, bounded.

A planned switch takes a fraction of a second. If its send were rejected meanwhile, a stock producer
would try the same broker again at once, and fail after three times. A parked send is answered a
little later, by this node or by the new master, and the application does not notice.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.errors import CommandError
from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

COUNT_MAX = 65_536
BYTES_MAX = 64 << 20
"""Five seconds of 12 MiB/s; beyond it clients are told to try again."""


class ParkedRequests:
    """Parked requests, in the order in which they came."""

    def __init__(
        self,
        budget: TrafficBudget | None = None,
        *,
        count_max: int = COUNT_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`budget` is the node's; without one, the limits of this queue are all there are."""
        self._budget = budget or TrafficBudget(bytes_max)
        self._requests: dict[int, tuple[Channel, RemotingCommand, int]] = {}
        """Connection, request and its bytes, by a number that rises."""
        self._of_channel: dict[Channel, list[int]] = {}
        self._serial = 0
        self._bytes = 0
        self._count_max = count_max
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, channel: Channel, request: RemotingCommand) -> None:
        """Keep a request.

        Errors: CommandError when there is no room.
        """
        size = request.detach()
        if (
            len(self._requests) >= self._count_max
            or self._bytes + size > self._bytes_max
            or not self._budget.has_room(size)
        ):
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST] {len(self._requests)} writes wait for a switch of masters",
            )
        self._bytes += size
        self._budget.waiting_bytes += size
        self._serial += 1
        self._requests[self._serial] = (channel, request, size)
        self._of_channel.setdefault(channel, []).append(self._serial)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the requests of a connection that ended: a switch may never come to its end."""
        for serial in self._of_channel.pop(channel, ()):
            _, _, size = self._requests.pop(serial)
            self._bytes -= size
            self._budget.waiting_bytes -= size

    def take(self, use: Callable[[Channel, RemotingCommand], None]) -> int:
        """Give out all of them in order, without those of closed connections; return the count."""
        requests, self._requests = self._requests, {}
        self._of_channel.clear()
        self._budget.waiting_bytes -= self._bytes
        self._bytes = 0
        count = 0
        for channel, request, _ in requests.values():
            if not channel.closed:
                use(channel, request)
                count += 1
        return count
