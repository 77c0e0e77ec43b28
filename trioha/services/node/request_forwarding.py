"""Forwards requests of clients that still use the old route to the node that is master now.

Theory of operation. Stock clients ask for routes every 30 seconds. Until they have, they send to
the address that was the master's. If this node rejected a send, a producer whose route has only
this broker would try three times within milliseconds and fail. So for a while a demoted node
forwards requests to the new master and answers to the clients, unchanged. Each client has its own
connection to the new master, opened with its first request: its requests keep their order, and its
heartbeats register it there, so that a consumer group is complete at the new master before the
first of its members has the new route. What the master tells the client comes back on it.

Pulls are not forwarded: this node answers them from its own log, as any slave does. A request whose
answer is lost with the connection is not answered, since it may have been carried out: the client's
own connection closes instead.

A request never leaves for a client that is gone. It is dropped when the client's connection closes
before ours stands, and rejected when ours does not stand within `LEAVE_S`. Once it has left, the
end of the client's connection ends ours with a reset, which drops what the kernel has not
delivered: otherwise a send would be stored whenever a cut heals, long after its sender has sent
other messages. The same happens when the answer does not come within `ANSWER_S`.

With access control, this node has checked the request. It replaces the client's signature with its
own, so that the new master neither checks the client's permissions again nor needs its address on a
white list. It has checked a proof of the cluster's secret as well, and gives its own when asked.

Forwarding ends when the time is up: a proxy for ever would hide that a route is wrong. Until then
the new master stores this node's address as that of the sender.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import trio

from trioha.broker.request_gate import reject
from trioha.errors import TriohaError
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.node_proofs import is_challenge, proven
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.security.node_signer import Sign, unsigned
from trioha.security.requirements import BROKER_CHANGES
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect, connect
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.wire.codes import RESPONSE_FLAG, RequestCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand

FORWARD_MS = 120_000
"""Four route polls of a stock client."""
CLIENTS_MAX = 4_096
WAITING_MAX = 4_096
"""Requests of one client that wait for its connection, or for their answer."""
_WAITING_BYTES_MAX = 64 << 20
_CALL_MS = 10_000
PATIENCE_S = _CALL_MS / 1000
LEAVE_S = 3.0
"""Time after which a stock producer has given its request up."""
ANSWER_S = 10.0
"""Limit on an answer: longer than the other node parks a request and waits for other nodes."""

_TOLD_BACK = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)


@attrs.frozen
class ForwardingStatistics:
    """State of the forwarding, as `ha status` shows it."""

    master: str
    """Address that requests are forwarded to; empty when none are."""
    left_s: float
    clients: int
    forwarded_total: int
    rejected_total: int


class RequestForwarding:
    """The clients of one demoted node."""

    def __init__(
        self,
        clock: Clock,
        events: EventSink,
        *,
        patience_s: float = PATIENCE_S,
        connect_to: Connect = connect,
        sign: Sign = unsigned,
        keyring: Keyring | None = None,
        traffic: TrafficBudget | None = None,
    ) -> None:
        """`patience_s`: how long retired clients wait for answers; then their connections close.

        Requests that wait for their connection count in the node's budget, `traffic`.
        """
        self._traffic = traffic or TrafficBudget(_WAITING_BYTES_MAX)
        self.master = ""
        self.forwarded_total = 0
        self.rejected_total = 0
        self._clock = clock
        self._events = events
        self._patience_s = patience_s
        self._connect_to = connect_to
        self._sign = sign
        self._keyring = keyring or Keyring()
        self._until_ms = 0
        self._clients: dict[Channel, _ForwardedClient] = {}
        self._retired: set[_ForwardedClient] = set()
        """Clients that forward nothing more, and wait for answers."""
        self._answered = trio.Event()
        self._nursery: trio.Nursery | None = None

    @property
    def next_deadline_ms(self) -> int | None:
        return self._until_ms if self.master else None

    def open(self, master: str, now_ms: int) -> None:
        """Forward to this address from now on, for a while."""
        if master != self.master:
            self.close()
            self.master = master
        self._until_ms = now_ms + FORWARD_MS

    def close(self) -> None:
        """Forward nothing more; requests in progress still get their answers."""
        if self.master and self.forwarded_total:
            self._events.event(
                "forwarding_closed",
                master=self.master,
                forwarded=self.forwarded_total,
                rejected=self.rejected_total,
            )
        self.master = ""
        clients, self._clients = self._clients, {}
        self._retired.update(clients.values())
        for client in clients.values():
            client.retire(self._patience_s)

    def forward(self, channel: Channel, request: RemotingCommand) -> None:
        """Send a request to the new master; its answer goes to `channel`."""
        client = self._client_of(channel)
        if client is None or not client.add(request):
            self.rejected_total += 1
            reject(channel, request, "this node is not master any more")
            return
        self.forwarded_total += 1

    def tell(self, channel: Channel, command: RemotingCommand) -> None:
        """Send a one-way command to the new master in a client's name, if there is room for it."""
        client = self._client_of(channel)
        if client is not None:
            client.add(command)

    def channel_closed(self, channel: Channel) -> None:
        client = self._clients.get(channel)
        if client is not None:
            client.end()
        for client in self._retired:
            if client.channel is channel:
                client.end()

    def statistics(self, now_ms: int) -> ForwardingStatistics:
        return ForwardingStatistics(
            master=self.master,
            left_s=max(0, self._until_ms - now_ms) / 1000 if self.master else 0.0,
            clients=len(self._clients),
            forwarded_total=self.forwarded_total,
            rejected_total=self.rejected_total,
        )

    async def wait_idle(self) -> None:
        """Wait until every forwarded request is answered."""
        while any(client.is_busy for client in self._clients.values()):
            self._answered = trio.Event()
            await self._answered.wait()

    async def run(self) -> None:
        """Hold the connections, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def _client_of(self, channel: Channel) -> _ForwardedClient | None:
        client = self._clients.get(channel)
        if client is None:
            if not self.master or self._nursery is None or len(self._clients) >= CLIENTS_MAX:
                return None
            client = self._clients[channel] = _ForwardedClient(
                channel,
                self.master,
                self._clock,
                self._on_answered,
                self._connect_to,
                self._sign,
                self._keyring,
                self._traffic,
            )
            self._nursery.start_soon(
                self._serve, client, name=f"forwarding[{channel.peer} → {self.master}]"
            )
        return client

    async def _serve(self, client: _ForwardedClient) -> None:
        try:
            await client.serve()
        finally:
            self._retired.discard(client)
            if self._clients.get(client.channel) is client:
                del self._clients[client.channel]
            self._on_answered()

    def _on_answered(self) -> None:
        self._answered.set()


class _ForwardedClient:
    """The connection to the new master that carries one client's requests."""

    def __init__(
        self,
        channel: Channel,
        master: str,
        clock: Clock,
        on_answered: Callable[[], None],
        connect_to: Connect,
        sign: Sign,
        keyring: Keyring,
        traffic: TrafficBudget,
    ) -> None:
        self._traffic = traffic
        self._waiting_bytes = 0
        self.channel = channel
        self._master = master
        self._clock = clock
        self._on_answered = on_answered
        self._connect_to = connect_to
        self._sign = sign
        self._keyring = keyring
        self._waiting: list[RemotingCommand] = []
        self._in_flight: dict[int, float] = {}
        """Serial number of a request -> until when its answer is waited for, the oldest first."""
        self._serial = 0
        self._client: RemotingClient | None = None
        self._retire_at_s = math.inf
        self._scope = trio.CancelScope()

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight or self._waiting)

    def add(self, request: RemotingCommand) -> bool:
        """Send a request, now or once connected; False when too many are in progress."""
        if len(self._waiting) + len(self._in_flight) >= WAITING_MAX:
            return False
        client = self._client
        if client is None:
            size = request.detach()
            if not self._traffic.has_room(size):
                return False
            self._waiting_bytes += size
            self._traffic.waiting_bytes += size
            self._waiting.append(request)
        elif client.closed:
            return False
        else:
            self._send(client, request)
        return True

    def end(self) -> None:
        self._scope.cancel()

    def retire(self, patience_s: float) -> None:
        """End once everything is answered, or after so long."""
        self._retire_at_s = trio.current_time() + patience_s
        self._look()

    async def serve(self) -> None:
        """Connect, and keep the connection until either end closes it."""
        closed = trio.Event()
        try:
            with self._scope:
                host, port = parse_address(self._master)
                with trio.fail_after(LEAVE_S):
                    transport = await self._connect_to(host, port)
                async with open_remoting_client(
                    host,
                    port,
                    self._clock,
                    transport=transport,
                    handlers=dict.fromkeys(_TOLD_BACK, self._tell_back),
                    on_closed=closed.set,
                    sign=self._sign,
                ) as client:
                    self._client = client
                    for request in self._take_waiting():
                        if not self.channel.closed:
                            self._send(client, request)
                    await closed.wait()
        except (OSError, trio.TooSlowError, TriohaError):
            pass  # a peer may have told an address that is none
        finally:
            # A request that has certainly not left can be rejected.
            for request in self._take_waiting():
                reject(self.channel, request, f"{self._master} is master and cannot be reached")

    def _take_waiting(self) -> list[RemotingCommand]:
        waiting, self._waiting = self._waiting, []
        self._traffic.waiting_bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        return waiting

    def _send(
        self, client: RemotingClient, request: RemotingCommand, *, may_prove: bool = True
    ) -> None:
        """Send a request; once more, with our own proof, if the master asks for one.

        Changes of operators alone are proven: this node has checked who sent them.
        """
        may_prove = may_prove and bool(self._keyring) and request.code in BROKER_CHANGES
        self._sign(request)
        if request.is_oneway:
            client.link.send_nowait(request)
            return
        opaque = request.opaque
        self._serial += 1
        serial = self._serial
        self._in_flight[serial] = trio.current_time() + ANSWER_S
        client.link.drop_unsent()
        self._look()

        def answer(response: RemotingCommand | None) -> None:
            del self._in_flight[serial]
            self._on_answered()
            if response is not None and may_prove and is_challenge(response):
                again = proven(self._keyring, response, request)
                again.opaque = opaque
                self._send(client, again, may_prove=False)
                return
            if response is None:
                self.channel.close_nowait(f"the answer of {self._master} was lost")
                return
            response.opaque = opaque
            response.flag |= RESPONSE_FLAG
            self.channel.send_nowait(response)
            self._look()

        client.link.expect_response(request, answer)

    def _look(self) -> None:
        """Set the time at which this connection ends at the latest."""
        if self._retire_at_s < math.inf and not self.is_busy:
            self.end()
            return
        oldest_s = next(iter(self._in_flight.values()), math.inf)
        self._scope.deadline = min(self._retire_at_s, oldest_s)

    def _tell_back(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Pass a command of the new master on to this client."""
        if request.is_oneway:
            self.channel.send_nowait(request)
            return None
        opaque = request.opaque

        def answer(response: RemotingCommand | None) -> None:
            if response is not None:
                response.opaque = opaque
                channel.send_nowait(response)

        self.channel.request_nowait(request, instant.now_ms + _CALL_MS, answer)
        return None
