"""The role of a DLEDGER member towards its clients: it serves as the leader, or it follows.

Theory of operation. The group elects (`trioha.dledger`); this module acts on the result.

* A leader serves once it has committed a record of its own term and its queues reach the log's end:
  then queue offsets continue where they stopped, and it knows all that was acknowledged.
* It stops serving in the very pass in which it steps down. It appends nothing more, and waiting
  puts are answered with "outcome unknown".
* One rule (`trioha.dledger.answering`) over one table (`trioha.broker.raft.answers`) decides how
  each request is treated, and `RequestGate` carries it out. While no leader is known, or the
  leadership is handed over, changes and questions about the present are parked for a moment. This
  member answers them once it leads, forwards them to the new leader if another member does, and
  rejects them if none does. That holds from the start of the process on.
* A follower that knows the leader forwards them, for as long as it follows: a stock client asks for
  routes every 30 seconds, and an election takes two.

The task that promotes the node is in `role_tasks`.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from trioha.broker.raft.answers import FOLLOWING_AND_COPYING, MODES_IN
from trioha.broker.request_gate import reject
from trioha.config import BrokerRole
from trioha.dledger.answering import ServingState, serving_state_of
from trioha.dledger.ready import Role, SoftState
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.mode import Modes
from trioha.remoting.requests import answer_late
from trioha.services.loop.signal import Signal
from trioha.services.node.request_forwarding import FORWARD_MS
from trioha.services.raft.views import GroupBroker
from trioha.wire.remoting_command import RemotingCommand

PARKED_MS_MAX = 3_000
"""Longest time that a request is parked: an election takes two seconds, and after three a stock
producer has given up."""
_NO_LEADER = "this group has no leader at the moment"


class GroupRole:
    """Promotes and demotes one node as its group decides."""

    def __init__(self, node: GroupBroker) -> None:
        self.serving = False
        """This member serves clients as the leader."""
        self.node = node
        self._parked_until_ms: int | None = None
        self._copying_until_ms: int | None = None
        self._paused = False
        self._was_leader = False
        """This member stepped down, and the new leader does not know its clients yet."""
        self.elected = Signal()
        """Set when the core leads and this member does not serve yet."""
        self.moved: trio.Event | None = None
        """Set after the next pass, if there is one: the waits before the shutdown look again."""
        node.gate.reject(self._modes, _NO_LEADER)

    @property
    def state(self) -> ServingState:
        """State of this member towards its clients at the moment."""
        return serving_state_of(
            is_serving=self.serving,
            is_paused=self._paused,
            leader_id=self.node.forwarding.master,
            is_parking=self._parked_until_ms is not None,
        )

    @property
    def _modes(self) -> Modes:
        state = self.state
        if state is ServingState.FOLLOWING and self._copying_until_ms is not None:
            return FOLLOWING_AND_COPYING
        return MODES_IN[state]

    # Calls of the member.

    def on_soft_state(self, state: SoftState) -> None:
        """Follow a change of role, term or leader."""
        if self.serving and state.role is not Role.LEADER:
            self._step_down()
        if state.role is Role.FOLLOWER and state.leader_id:
            self._follow(self.node.member.addresses().get(state.leader_id, ""))
            return
        self._follow("")
        if state.role is Role.LEADER and not self.serving:
            # Other members may know of the election first, and forward requests to this node.
            self.park()

    def look(self) -> None:
        """Look after a pass whether the core leads and may append. HOT."""
        member = self.node.member
        if self.moved is not None:
            self.moved.set()
            self.moved = None
        if not self.serving:
            if member.is_serving:
                self.elected.set()
        elif member.may_append is self._paused:
            if self._paused:
                self._resume()
            else:
                self._pause()

    # Begin to serve.

    def serve(self) -> None:
        """Serve clients from this pass on: the queues are up to the log."""
        node = self.node
        self.serving, self._was_leader, self._paused = True, False, False
        with node.outboxes.batch():
            node.become(BrokerRole.SYNC_MASTER)
            node.raft_metadata.lead()
            node.core.deliveries.load()
            self._take_requests()
        self.look()

    def _take_requests(self) -> None:
        node = self.node
        self._parked_until_ms = None
        node.gate.serve(MODES_IN[ServingState.SERVING], node.clock.instant())
        node.after_batch()
        node.schedule_message.check()

    # Stop serving.

    def _step_down(self) -> None:
        """Stop serving clients, in this pass."""
        node = self.node
        self.serving, self._paused, self._was_leader = False, False, True
        with node.outboxes.batch():
            # First, since `become` below reports changed tables: they must not get into the log
            # any more.
            node.raft_metadata.step_down()
            node.become(BrokerRole.SLAVE)
            node.core.give_up_waiting()
            self.park()
            node.reads.give_up()

    def _pause(self) -> None:
        """Accept no writes while the leadership is handed over."""
        node = self.node
        self._paused = True
        node.raft_metadata.pause()
        node.core.pause()
        with node.outboxes.batch():
            self.park()
            node.reads.give_up()

    def _resume(self) -> None:
        """Serve again: no member took the leadership."""
        node = self.node
        self._paused = False
        with node.outboxes.batch():
            node.core.become(BrokerRole.SYNC_MASTER, 0)
            node.raft_metadata.resume()
            self._take_requests()

    def park(self) -> None:
        """Keep changes and questions for a moment: no leader is known."""
        node = self.node
        if self._parked_until_ms is None:
            self._parked_until_ms = node.clock.now_ms() + PARKED_MS_MAX
            node.parked_alarm.check()
        node.gate.park(MODES_IN[ServingState.PARKING])

    # Following.

    def _follow(self, leader: str) -> None:
        """Follow the leader at this address; "" means that there is none."""
        node = self.node
        if leader == node.forwarding.master:
            return
        if not leader:
            self.park()
            return
        now_ms = node.clock.now_ms()
        registrations: Iterable[tuple[Channel, RemotingCommand]] = ()
        self._parked_until_ms = self._copying_until_ms = None
        modes = MODES_IN[ServingState.FOLLOWING]
        if self._was_leader:
            self._was_leader = False
            registrations = node.core.client_registrations(now_ms)
            # After that time clients have the new route and register there themselves.
            self._copying_until_ms = now_ms + FORWARD_MS
            node.parked_alarm.check()
            modes = FOLLOWING_AND_COPYING
        with node.outboxes.batch():
            node.gate.forward(modes, leader, now_ms, registrations)

    # Parked requests.

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (self._parked_until_ms, self._copying_until_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def on_time(self, instant: Instant) -> None:
        """Reject what was parked too long; stop copying once clients have the new route."""
        if self._parked_until_ms is not None and instant.now_ms >= self._parked_until_ms:
            self.refuse_parked(_NO_LEADER)
        if self._copying_until_ms is not None and instant.now_ms >= self._copying_until_ms:
            self._copying_until_ms = None
            if self.state is ServingState.FOLLOWING:
                node = self.node
                node.gate.forward(self._modes, node.forwarding.master, instant.now_ms)

    def refuse_parked(self, reason: str) -> None:
        """Reject all parked requests, and every later one at once."""
        self._parked_until_ms = None
        with self.node.outboxes.batch():
            self.node.gate.reject(self._modes, reason)

    def not_read(self, channel: Channel, request: RemotingCommand) -> None:
        """Handle a question about the present without leave: forward, park or reject it."""
        if self.state is ServingState.SERVING:
            reject(channel, request, "this node cannot tell whether it leads its group still")
            return
        response = self.node.gate.handle_admitted(channel, request, self.node.clock.instant())
        answer_late(channel, request, response)
