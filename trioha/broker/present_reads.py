"""Questions about the present, at a master that may have been replaced without its knowledge.

Theory of operation. `trioha.ha.readers` says when a master must prove that it is not replaced. The
proof is a change of metadata that changes nothing: the master gives it a position and sends it to
its slaves, behind everything that it has told them before. The answer is made when the question
comes, and leaves when a slave has acknowledged that position. So no newer term had begun when the
question came, and the slave knows all that the answer tells.

A master that needs no proof answers at once. Only the progress of a group waits until disk and
slave have it, as an answer to its commit would (`trioha.broker.metadata_waits`): a one-way commit
may have just arrived, and a failover would take back what was told.

A question that came in another term of this node is handled again, since the tables may have
changed meanwhile. A question without proof waits for a while, in which a slave may come back, or
another master may become known, to which the question is then forwarded. After that the question is
rejected (`trioha.broker.request_gate.reject`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trioha.broker.metadata import Metadata
from trioha.broker.metadata_waits import MetadataReplicas, MetadataWaits
from trioha.broker.request_gate import reject
from trioha.broker.set_modes import START_OFFSETS
from trioha.ha.group_commit import GroupCommit
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

WAITING_MAX = 10_000
"""Questions that wait at a time, some 20 MB of memory."""
QUESTION_FIELDS = frozenset(
    {"consumerGroup", "topic", "queueId", "timestamp", "committed", "setZeroIfNotFound"}
)
"""Fields with which a question that waits is asked again, here or at another node."""
QUESTION_BYTES_MAX = 4_096
NO_PROOF = "no slave has confirmed that this node is still master"


@attrs.frozen
class _Question:
    """A question, and the answer that waits for its proof."""

    term: bytes
    """Nonce of the term in which the question came."""
    channel: Channel
    request: RemotingCommand
    response: RemotingCommand


class PresentReads:
    """Calls the handlers of `START_OFFSETS`, and lets their answers leave when they may."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        metadata: Metadata,
        waits: MetadataWaits,
        replicas: MetadataReplicas,
        events: EventSink,
        *,
        needs_proof: Callable[[], bool],
        term: Callable[[], bytes],
        now_ms: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        """`term` returns the nonce of the newest term; `timeout_ms`: how long questions wait."""
        self._own = RequestTable({code: handlers[code] for code in START_OFFSETS}, events)
        self._metadata = metadata
        self._waits = waits
        self._replicas = replicas
        self._needs_proof = needs_proof
        self._term = term
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._questions: GroupCommit[_Question] = GroupCommit()
        self._checks: GroupCommit[Callable[[bool], None]] = GroupCommit()

    @property
    def waiting_count(self) -> int:
        return len(self._questions) + len(self._checks)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to do, or None."""
        deadlines = (self._questions.next_deadline_ms, self._checks.next_deadline_ms)
        return min((one for one in deadlines if one is not None), default=None)

    def handle(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer at once, or with the proof: `Mode.CONFIRM`."""
        response = self._own.handle(channel, request, instant)
        if response is None or request.is_oneway:
            return response
        if not self._needs_proof():
            if request.code != RequestCode.QUERY_CONSUMER_OFFSET:
                return response
            return self._waits.when_safe(channel, response, instant, is_change=False)
        if self.waiting_count >= WAITING_MAX:
            reject(channel, request, NO_PROOF)
            return None
        if request.detach(QUESTION_FIELDS) > QUESTION_BYTES_MAX:
            reject(channel, request, "the question is too large to wait")
            return None
        question = _Question(self._term(), channel, request, response)
        deadline_ms = instant.now_ms + self._timeout_ms
        self._questions.add(self._metadata.mark(), deadline_ms, question)
        return None

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Call `then` with True once a slave has confirmed this master; or with False."""
        if not self._needs_proof():
            then(True)
        elif self.waiting_count >= WAITING_MAX:
            then(False)
        else:
            deadline_ms = self._now_ms() + self._timeout_ms
            self._checks.add(self._metadata.mark(), deadline_ms, then)

    def release_acknowledged(self, again: Callable[[Channel, RemotingCommand], None]) -> None:
        """Send the answers that the acknowledgements so far prove. HOT.

        `again` gets the questions that came in another term.
        """
        if not self.waiting_count:
            return
        position, term = self._replicas.push2slave_max_metadata, self._term()
        for question in self._questions.advance(position):
            if question.channel.closed:
                continue
            if question.term == term:
                question.channel.send_nowait(question.response)
            else:
                again(question.channel, question.request)
        for then in self._checks.advance(position):
            then(True)

    def give_back(self, again: Callable[[Channel, RemotingCommand], None]) -> None:
        """Give every question to `again`: another master is known."""
        for question in self._questions.drain():
            if not question.channel.closed:
                again(question.channel, question.request)
        for then in self._checks.drain():
            then(False)

    def expire(self, now_ms: int) -> None:
        """Reject the questions whose deadline has come."""
        for question in self._questions.expire(now_ms):
            if not question.channel.closed:
                reject(question.channel, question.request, NO_PROOF)
        for then in self._checks.expire(now_ms):
            then(False)
