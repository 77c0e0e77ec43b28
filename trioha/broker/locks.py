"""Queue locks of orderly consumers: requests 41 and 42 (RebalanceLockManager.java).

A lock belongs to one client of a group and covers one queue. Its client renews it every 20 s and
trusts it for 30 s; it ends 60 s after the last renewal, or when its client gives it back. A closed
connection ends no lock: the client may be about to reconnect, still at work on the queue.

Limits: `LOCK_QUEUES_MAX` queues in one request (`trioha.wire.bodies`) and `locks_max` locks in all;
when the table is full, expired locks go first.
"""

from __future__ import annotations

import attrs

from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.bodies import LockBatchBody, MessageQueue, encode_locked_queues
from trioha.wire.codes import RequestCode
from trioha.wire.names import check_group, check_topic
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

LOCK_EXPIRE_MS = 60_000
LOCKS_MAX = 262_144  # about 80 MiB
CLIENT_ID_CHARS_MAX = 1_024
BROKER_NAME_CHARS_MAX = 255


@attrs.define(eq=False, slots=True)
class _Lock:
    client_id: str
    expires_ms: int


class QueueLocks:
    """Locks of queues that are consumed in order, by client."""

    def __init__(self, *, locks_max: int = LOCKS_MAX) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}
        self._locks_max = locks_max
        self._scan_from_ms = 0

    def __len__(self) -> int:
        return len(self._locks)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock_batch,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch,
        }

    def lock_batch(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Lock the queues that are free or already the client's; the answer lists what it holds."""
        body = _decode(request)
        locked = [
            queue
            for queue in dict.fromkeys(body.queues)
            if self.lock(body.consumer_group, queue, body.client_id, instant.now_ms)
        ]
        return request.response(body=encode_locked_queues(locked))

    def unlock_batch(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Release the client's locks; other clients' locks stay."""
        body = _decode(request)
        for queue in body.queues:
            self.unlock(body.consumer_group, queue, body.client_id)
        return request.response()

    def lock(self, group: str, queue: MessageQueue, client_id: str, now_ms: int) -> bool:
        """Take or renew one lock; False if another client holds it, or no lock has room."""
        key = (group, queue)
        lock = self._locks.get(key)
        if lock is None:
            if len(self._locks) >= self._locks_max and not self._drop_expired(now_ms):
                return False
            self._locks[key] = _Lock(client_id, now_ms + LOCK_EXPIRE_MS)
            return True
        if lock.client_id != client_id:
            if lock.expires_ms > now_ms:
                return False
            lock.client_id = client_id
        lock.expires_ms = now_ms + LOCK_EXPIRE_MS
        return True

    def held(self, now_ms: int) -> dict[tuple[str, str], list[MessageQueue]]:
        """The queues of every (group, client id) that holds any."""
        found: dict[tuple[str, str], list[MessageQueue]] = {}
        for (group, queue), lock in self._locks.items():
            if lock.expires_ms > now_ms:
                found.setdefault((group, lock.client_id), []).append(queue)
        return found

    def unlock(self, group: str, queue: MessageQueue, client_id: str) -> None:
        lock = self._locks.get((group, queue))
        if lock is not None and lock.client_id == client_id:
            del self._locks[group, queue]

    def _drop_expired(self, now_ms: int) -> bool:
        """Remove expired locks, once one can have expired; True if the table has room then."""
        if now_ms < self._scan_from_ms:
            return False
        self._locks = {key: lock for key, lock in self._locks.items() if lock.expires_ms > now_ms}
        self._scan_from_ms = min((lock.expires_ms for lock in self._locks.values()), default=now_ms)
        return len(self._locks) < self._locks_max


def _decode(request: RemotingCommand) -> LockBatchBody:
    body = LockBatchBody.decode(request.body_bytes())
    check_group(body.consumer_group)
    if not 0 < len(body.client_id) <= CLIENT_ID_CHARS_MAX:
        raise system_error(f"clientId is missing, or longer than {CLIENT_ID_CHARS_MAX} characters")
    for queue in body.queues:
        check_topic(queue.topic)
        if len(queue.broker_name) > BROKER_NAME_CHARS_MAX:
            raise system_error("brokerName is too long")
    return body
