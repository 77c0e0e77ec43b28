"""The gate through which every request of a broker passes.

Theory of operation. A node declares its handlers once; that table never changes. The *mode* of a
code (`trioha.remoting.mode`) says what becomes of its requests at the moment. Five transitions
change modes, and each of them also says what becomes of the requests that are parked:

=========  =======================================  =============================================
method     from then on                             parked requests
=========  =======================================  =============================================
`serve`    this node answers                        are answered here, in the order they came
`park`     changes wait, in order and bounded       go on waiting
`forward`  another node answers, through this one   go to that node; it hears first which clients
                                                    are connected here, and which queues they hold
`reject`   as the caller's modes say                are rejected
`stop`     sends are rejected, whatever follows     go on waiting
=========  =======================================  =============================================

A planned switch of masters is `park`, then `forward` at the old master and `serve` at the new one;
or `serve` at the old master if the switch is given up; or `reject` if no node says that it is
master. A Raft member goes through the same states as its group elects. So that is what happens to a
send while a switch is in progress: it waits in `ParkedRequests` and gets one answer, from whichever
node serves next. The caller decides when to change over and owns every deadline.

With access control, the check of a request (`trioha.security.guard`) comes before all that, at the
node that its client is connected to. A request that was parked is not checked again. Each code must
have a declared requirement, with access control or without.

A rejected request gets SERVICE_NOT_AVAILABLE, upon which stock clients ask for the route and try
again. See `NO_ERROR_FOR` for the one exception.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from trioha.broker.offset_requests import FORWARDED_FIELD
from trioha.broker.parked_requests import ParkedRequests
from trioha.broker.set_modes import SERVING
from trioha.errors import CommandError, RemoteProtocolError
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.mode import Mode, Modes
from trioha.remoting.requests import answer_late, answer_to_error, not_supported
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.security.requirements import Port, check_declared
from trioha.wire.codes import ONEWAY_FLAG, SENDS, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

NO_ERROR_FOR: Final = frozenset({RequestCode.QUERY_CONSUMER_OFFSET})
"""Java consumers of 4.9 take any error code for "this group has no offset yet" and begin anew
(RemoteBrokerOffsetStore.readOffset). A connection that ends is a failure to them: they leave the
queue alone and ask again. Released C++, Node.js and Go 2.0 clients begin anew after any failure."""


class Forwarding(Protocol):
    """Connections to the node that serves: `trioha.services.node.request_forwarding`."""

    def open(self, master: str, now_ms: int) -> None:
        """Forward to this address from now on."""

    def close(self) -> None:
        """Forward nothing more; requests in progress still get their answers."""

    def forward(self, channel: Channel, request: RemotingCommand) -> None:
        """Send a request; its answer goes to `channel`. Rejects it if there is no room."""

    def tell(self, channel: Channel, command: RemotingCommand) -> None:
        """Send a one-way command in the name of a client, if there is room for it."""


class Checks(Protocol):
    """The checks of a node: `trioha.security.guard`, or without accounts `secret_guard`."""

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return a handler that checks a request of this code before it calls `handler`."""


class RequestGate:
    """Handlers and modes of one node, and the requests that it parks."""

    def __init__(
        self,
        declared: Sequence[Mapping[int, Handler]],
        forwarding: Forwarding,
        events: EventSink,
        confirm: Handler,
        checks: Checks | None = None,
        traffic: TrafficBudget | None = None,
        served: Collection[int] = (),
    ) -> None:
        """`declared`: tables of handlers by request code, which have no code in common.

        `confirm` handles requests in `Mode.CONFIRM`. `checks` is None without access control: then
        no request is checked. Parked requests count in the node's budget, `traffic`. Requests
        of the codes in `served` are handled here, whatever the modes say.

        Errors: LocalProtocolError for a code without a declared requirement.
        """
        handlers = {code: handler for table in declared for code, handler in table.items()}
        assert len(handlers) == sum(map(len, declared)), "two handlers of one request code"
        check_declared(Port.BROKER, handlers)
        self.handlers: Final[Mapping[int, Handler]] = MappingProxyType(handlers)
        """This node's own handlers, by request code."""
        self._forwarding = forwarding
        self._events = events
        self._parked = ParkedRequests(traffic)
        self._served = frozenset(served)
        self._modes: Modes = SERVING
        self._reject_reason = ""
        self._stop_reason = ""
        self._instead: dict[Mode, Handler] = {
            Mode.PARK: self._park,
            Mode.FORWARD: self._forward,
            Mode.REJECT: self._reject,
            Mode.CONFIRM: confirm,
        }
        self._checks = checks
        # One look-up per request: modes and checks are worked into these tables when modes change.
        self._admitted: dict[int, Handler] = {}
        """Treatment by code, for requests that were checked, or need no check."""
        self._treatments: dict[int, Handler] = {}
        """Treatment by code, with the check before it."""
        self._change(SERVING)

    @property
    def parked_count(self) -> int:
        return len(self._parked)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the parked requests of a connection that ended."""
        self._parked.channel_closed(channel)

    def mode_of(self, code: int) -> Mode:
        """Return the present mode of requests of this code."""
        mode = Mode.SERVE if code in self._served else self._modes.get(code, Mode.SERVE)
        if mode is Mode.SERVE and self._stop_reason and code in SENDS:
            return Mode.REJECT
        return mode

    def handle(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Return the answer to a request, or None when it comes later or never. HOT.

        Each request that arrives passes here once.

        Errors: AssertionError, LocalProtocolError and StoreError of a handler; they end the node.
        """
        treatment = self._treatments.get(request.code)
        if treatment is None:
            return not_supported(request)
        try:
            return treatment(channel, request, instant)
        except Exception as error:
            return answer_to_error(error, channel, request, self._events)

    def handle_admitted(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Do the same as `handle`, without the check, for a request that has passed it before."""
        treatment = self._admitted.get(request.code)
        if treatment is None:
            return not_supported(request)
        try:
            return treatment(channel, request, instant)
        except Exception as error:
            return answer_to_error(error, channel, request, self._events)

    # Transitions.

    def serve(self, modes: Modes, instant: Instant) -> None:
        """Answer here from now on; parked requests first."""
        self._forwarding.close()
        self._change(modes)

        def answer(channel: Channel, request: RemotingCommand) -> None:
            response = self.handle_admitted(channel, request, instant)
            answer_late(channel, request, response)

        self._parked.take(answer)

    def park(self, modes: Modes) -> None:
        """Park requests from now on, as `modes` say."""
        self._forwarding.close()
        self._change(modes)

    def forward(
        self,
        modes: Modes,
        master: str,
        now_ms: int,
        registrations: Iterable[tuple[Channel, RemotingCommand]] = (),
    ) -> None:
        """Forward requests to the address `master`, parked requests first.

        `registrations` go before them (`trioha.broker.client_registrations`).
        """
        forwarding = self._forwarding
        forwarding.open(master, now_ms)
        self._change(modes)
        for channel, command in registrations:
            forwarding.tell(channel, command)
        self._parked.take(self._send_on)

    def reject(self, modes: Modes, reason: str) -> None:
        """Reject parked requests, and from now on requests in `Mode.REJECT`, for this reason."""
        self._reject_reason = reason
        self._change(modes)
        self._parked.take(lambda channel, request: reject(channel, request, reason))

    def stop(self, reason: str) -> None:
        """Reject sends from now on that this node would serve; no later transition ends that."""
        self._stop_reason = reason
        self._change(self._modes)

    def _change(self, modes: Modes) -> None:
        self._modes = modes
        self._admitted = {code: self._treatment_of(code) for code in self.handlers}
        checks = self._checks
        if checks is None:
            self._treatments = self._admitted
        else:
            self._treatments = {
                code: checks.guarded(code, treatment) for code, treatment in self._admitted.items()
            }

    def _treatment_of(self, code: int) -> Handler:
        handler = self.handlers[code]
        mode = self.mode_of(code)
        if mode is Mode.SERVE:
            return handler
        if mode is Mode.SERVE_AND_COPY:
            return self._copying(handler)
        return self._instead[mode]

    # Treatments.

    def _copying(self, handler: Handler) -> Handler:
        def answer(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            response = handler(channel, request, instant)
            if response is not None:  # else it goes on in another turn
                self._forwarding.tell(channel, _oneway_copy(request))
            return response

        return answer

    def _park(self, channel: Channel, request: RemotingCommand, _: Instant) -> None:
        try:
            self._parked.add(channel, request)
        except CommandError as error:
            if request.code not in NO_ERROR_FOR:
                raise
            reject(channel, request, error.remark or "")

    def _forward(self, channel: Channel, request: RemotingCommand, _: Instant) -> None:
        self._send_on(channel, request)

    def _send_on(self, channel: Channel, request: RemotingCommand) -> None:
        """Forward a request, and mark it if it is a commit (see `FORWARDED_FIELD`)."""
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            try:
                request.ext_fields[FORWARDED_FIELD] = "true"
            except RemoteProtocolError as error:
                answer_late(
                    channel, request, answer_to_error(error, channel, request, self._events)
                )
                return
        self._forwarding.forward(channel, request)

    def _reject(self, channel: Channel, request: RemotingCommand, _: Instant) -> None:
        mode = self._modes.get(request.code)
        reason = self._reject_reason if mode is Mode.REJECT else self._stop_reason
        reject(channel, request, reason)


def reject(channel: Channel, request: RemotingCommand, reason: str) -> None:
    """Reject a request, so that the client asks for the route and tries again."""
    if request.code in NO_ERROR_FOR:
        channel.close_nowait(f"{reason}: an error would send the consumer back to the beginning")
        return
    response = request.response(ResponseCode.SERVICE_NOT_AVAILABLE, f"{reason}; try again")
    answer_late(channel, request, response)


def _oneway_copy(request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(
        request.code,
        dict(request.ext_fields),
        request.body,
        request.opaque,
        request.flag | ONEWAY_FLAG,
        request.remark,
        request.version,
        request.language,
        request.serialize_type,
    )
