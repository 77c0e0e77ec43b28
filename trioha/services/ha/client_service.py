"""The service that clients get from a node in its role: puts, and the modes of the gate.

While a planned switch is in progress, changes are parked. This node answers them if the switch is
given up, and forwards them to the new master if it succeeds. If no node says that it is master, it
rejects them with a code that makes clients ask for the route (`trioha.broker.request_gate`). For a
while a demoted node goes on forwarding: clients still have the old route.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.broker.set_modes import DEMOTED, PAUSED, SERVING
from trioha.ha.mastership import Mastership
from trioha.ha.replicas import Replicas
from trioha.remoting.channel import Instant
from trioha.services.ha.open_mastership import config_of_role
from trioha.services.ha.role_journal import tell_role
from trioha.services.ha.views import ReaderControl, ServingNode
from trioha.store.accept_loss import forget_loss


class ClientService:
    """Changes the service in one scheduler pass. `next_deadline_ms` says when to call `on_time`."""

    def __init__(
        self,
        node: ServingNode,
        mastership: Mastership,
        replicas: Replicas,
        readers: ReaderControl,
        on_deadline: Callable[[], None],
    ) -> None:
        """`on_deadline` is called when `next_deadline_ms` may have changed."""
        self._node = node
        self._mastership = mastership
        self._replicas = replicas
        self._readers = readers
        self._on_deadline = on_deadline
        self._configured = node.config

    @property
    def next_deadline_ms(self) -> int | None:
        return self._node.forwarding.next_deadline_ms

    def on_time(self, instant: Instant) -> None:
        """End the forwarding when clients have the new route by now."""
        if (until_ms := self.next_deadline_ms) is not None and instant.now_ms >= until_ms:
            self._node.gate.serve(SERVING, instant)

    def take_writes(self) -> None:
        node = self._node
        self._take_role()
        self._replicas.begin_term()
        node.core.become(node.role, node.broker_id)
        tell_role(node, node.events)
        node.persist.changed.check()
        node.schedule_message.check()
        forget_loss(node.store.config.root)

    def stop_writes(self) -> None:
        """Take no writes; every waiting send is answered as if its timeout had expired."""
        node = self._node
        self._take_role()
        node.core.become(node.role, node.broker_id)
        node.give_up_waiting()
        self._on_deadline()
        tell_role(node, node.events)

    def park(self) -> None:
        """Park changes from now on."""
        self._node.core.pause()
        self._node.gate.park(PAUSED)
        self._on_deadline()

    def release(self) -> None:
        """Answer requests here, parked ones first."""
        node = self._node
        node.core.become(node.role, node.broker_id)
        with node.outboxes.batch():
            node.gate.serve(SERVING, node.clock.instant())
            node.after_batch()
        node.schedule_message.check()

    def reject(self, reason: str) -> None:
        """Reject the parked requests, and park no more."""
        with self._node.outboxes.batch():
            self._node.gate.reject(SERVING, reason)

    def forward(self, address: str) -> None:
        """Forward requests to the new master, parked ones first."""
        node, now_ms = self._node, self._node.clock.now_ms()
        with node.outboxes.batch():
            node.gate.forward(DEMOTED, address, now_ms, node.core.client_registrations(now_ms))
            self._readers.send_on()
        self._on_deadline()

    def _take_role(self) -> None:
        self._node.take_config(config_of_role(self._configured, self._mastership))
