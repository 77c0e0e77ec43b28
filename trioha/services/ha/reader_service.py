"""Limits the readers of a node, and lets its answers about the present leave when they may.

`trioha.ha.readers` has the rules. Here they meet the node's store, its gate and its links.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.broker.present_reads import PresentReads
from trioha.ha.mastership import Mastership
from trioha.ha.readers import ReadersLimit
from trioha.ha.replicas import Replicas
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.requests import answer_late
from trioha.services.ha.views import ServingNode
from trioha.store.lookup import UNBOUNDED
from trioha.wire.remoting_command import RemotingCommand

PATIENCE_MS = 2_500
"""A stock client waits 3 s for an answer; this node rejects its question before that."""


class ReaderService:
    """Acts in the pass in which a slave reports; `next_deadline_ms` says when to call `on_time`."""

    def __init__(
        self,
        node: ServingNode,
        mastership: Mastership,
        replicas: Replicas,
        on_deadline: Callable[[], None],
    ) -> None:
        """`on_deadline` is called when `next_deadline_ms` may have changed."""
        self._node = node
        self._replicas = replicas
        self._on_deadline = on_deadline
        self._limit = ReadersLimit(mastership)
        self._visibility = node.visibility
        self._reads = PresentReads(
            node.core.handlers,
            node.core.metadata,
            node.core.metadata_waits,
            replicas,
            node.events,
            needs_proof=lambda: self._limit.applies,
            term=lambda: mastership.nonce,
            now_ms=node.clock.now_ms,
            timeout_ms=min(node.config.slave_timeout, PATIENCE_MS),
        )

    @property
    def has_questions(self) -> bool:
        """Does an answer wait for a slave's proof? Then the slave is asked at once."""
        return self._reads.waiting_count > 0

    @property
    def next_deadline_ms(self) -> int | None:
        return self._reads.next_deadline_ms

    @property
    def held_back_bytes(self) -> int:
        """Size of the log's end that readers do not see."""
        return max(0, self._node.store.max_phy_offset - self._visibility.limit)

    def on_time(self, instant: Instant) -> None:
        """Reject the questions that no slave has answered in time."""
        self._reads.expire(instant.now_ms)

    def limit(self) -> None:
        """Set the limit of readers to what they may see now."""
        node = self._node
        limit = self._limit.offset(self._replicas.push2slave_max_offset)
        self._visibility.set_limit(UNBOUNDED if limit is None else limit)
        # A node that may have been replaced corrects no reader's offset by its own log.
        node.core.must_confirm(limit is not None)
        if node.core.schedule_changed:
            node.core.schedule_changed = False
            node.schedule_message.check()
        if node.core.has_due:
            with node.outboxes.batch():
                node.core.after_batch(node.clock.instant())

    def show_acknowledged(self) -> None:
        """Show what a slave's report allows, and send the answers that it proves. HOT."""
        if self._limit.applies:
            self.limit()
            self._reads.release_acknowledged(self._ask_again)

    def on_cut(self) -> None:
        """Note that the log was cut to its end of now."""
        self._visibility.cut(self._node.store.max_phy_offset)

    def confirm(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer a question about the present, or keep it until a slave has proved the answer."""
        response = self._reads.handle(channel, request, instant)
        if response is None:
            self._on_deadline()
        return response

    def confirm_master(self, then: Callable[[bool], None]) -> None:
        """Call `then` with True once a slave has confirmed this master; or with False."""
        self._reads.confirm(then)
        self._on_deadline()

    def send_on(self) -> None:
        """Have every question handled again: another master is known."""
        self._reads.give_back(self._ask_again)

    def _ask_again(self, channel: Channel, request: RemotingCommand) -> None:
        response = self._node.gate.handle_admitted(channel, request, self._node.clock.instant())
        answer_late(channel, request, response)
