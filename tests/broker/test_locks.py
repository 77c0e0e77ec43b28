from __future__ import annotations

from support.handlers.consuming import ConsumeSide, request

from trioha.broker.locks import LOCK_EXPIRE_MS, QueueLocks
from trioha.wire.bodies import LOCK_QUEUES_MAX, LockBatchBody, MessageQueue, decode_locked_queues
from trioha.wire.codes import RequestCode, ResponseCode

Q0, Q1, Q2 = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(3))


def lock(side: ConsumeSide, client: str, *queues: MessageQueue, now_ms: int = 0) -> list[int]:
    body = LockBatchBody("g", client, queues).encode()
    response = side.ask(request(RequestCode.LOCK_BATCH_MQ, body), now_ms=now_ms)
    assert response.code == 0, response.remark
    return [queue.queue_id for queue in decode_locked_queues(response.body_bytes())]


def unlock(side: ConsumeSide, client: str, *queues: MessageQueue) -> None:
    body = LockBatchBody("g", client, queues).encode()
    assert side.ask(request(RequestCode.UNLOCK_BATCH_MQ, body)).code == 0


def test_free_queues_are_locked_and_held_ones_are_left_out() -> None:
    side = ConsumeSide()
    assert lock(side, "a", Q0, Q1) == [0, 1]
    assert lock(side, "b", Q0, Q2) == [2]
    assert lock(side, "a", Q0) == [0]


def test_lock_expires_sixty_seconds_after_its_last_renewal() -> None:
    side = ConsumeSide()
    lock(side, "a", Q0, now_ms=0)
    lock(side, "a", Q0, now_ms=20_000)
    assert lock(side, "b", Q0, now_ms=20_000 + LOCK_EXPIRE_MS - 1) == []
    assert lock(side, "b", Q0, now_ms=20_000 + LOCK_EXPIRE_MS) == [0]
    assert lock(side, "a", Q0, now_ms=20_000 + LOCK_EXPIRE_MS) == []


def test_lock_given_back_is_free_at_once() -> None:
    side = ConsumeSide()
    lock(side, "a", Q0)
    unlock(side, "a", Q0)
    assert lock(side, "b", Q0) == [0]


def test_nobody_gives_back_what_another_holds() -> None:
    side = ConsumeSide()
    lock(side, "a", Q0)
    unlock(side, "b", Q0, Q1)
    assert lock(side, "b", Q0) == []


def test_groups_lock_apart() -> None:
    locks = QueueLocks()
    assert locks.lock("g", Q0, "a", 0)
    assert locks.lock("h", Q0, "b", 0)


def test_full_table_makes_room_from_expired_locks() -> None:
    locks = QueueLocks(locks_max=2)
    assert locks.lock("g", Q0, "a", 0)
    assert locks.lock("g", Q1, "a", 30_000)
    assert not locks.lock("g", Q2, "a", 40_000)
    assert locks.lock("g", Q2, "a", LOCK_EXPIRE_MS)
    assert len(locks) == 2
    assert not locks.lock("g", Q0, "a", LOCK_EXPIRE_MS)


def test_bad_lock_requests_are_refused() -> None:
    side = ConsumeSide()
    bodies = [
        b"",
        b"{}",
        LockBatchBody("g", "", [Q0]).encode(),
        LockBatchBody("g", "a" * 1025, [Q0]).encode(),
        LockBatchBody("../g", "a", [Q0]).encode(),
        LockBatchBody("g", "a", [MessageQueue("a/b", "broker-a", 0)]).encode(),
        LockBatchBody("g", "a", [MessageQueue("T", "b" * 300, 0)]).encode(),
        LockBatchBody("g", "a", [Q0] * (LOCK_QUEUES_MAX + 1)).encode(),
    ]
    for body in bodies:
        response = side.ask(request(RequestCode.LOCK_BATCH_MQ, body))
        assert response.code == ResponseCode.SYSTEM_ERROR, body[:60]
    assert len(side.locks) == 0
