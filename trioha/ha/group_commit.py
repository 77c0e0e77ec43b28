"""Waiting sends by offset and deadline (GroupCommitRequest, GroupTransferService.java).

A put that must reach the disk or a slave is added with the offset it needs and a deadline.
The caller that learns that the log is safe up to an offset calls `advance` once per batch and gets
the waiters that this releases. RocketMQ counts wake-ups instead (five per request), so a busy
neighbour or a large message uses up another put's patience; here only offset and deadline decide.

Offsets mostly rise (puts are appended in order) and so do deadlines (each is now plus a constant),
so one deque is kept in offset order: adding at its end and releasing from its front are O(1). When
an offset falls back, the entry is inserted in its place. When deadlines do not rise along the
deque, expiry looks at every entry until the deque has emptied: slower, never wrong.

It keeps no high-water mark, since logs are cut and roles change: before it adds, the caller checks
whether the offset is safe already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Waiters by offset and deadline. Every waiter leaves exactly once, through one method."""

    def __init__(self) -> None:
        # (offset, deadline_ms, waiter), in offset order; equal offsets in the order of arrival.
        self._waiting: deque[tuple[int, int, T]] = deque()
        self._deadlines_rise = True

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        """The waiters, lowest offset first."""
        for _, _, waiter in self._waiting:
            yield waiter

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to return; None without waiters."""
        if not self._waiting:
            return None
        if self._deadlines_rise:
            return self._waiting[0][1]
        return min(deadline_ms for _, deadline_ms, _ in self._waiting)

    @property
    def first_offset(self) -> int:
        """The lowest offset that a waiter needs."""
        return self._waiting[0][0]

    def add(self, offset: int, deadline_ms: int, waiter: T) -> None:
        """Wait until `offset` is safe, at most until `deadline_ms`."""
        waiting = self._waiting
        if waiting:
            last_offset, last_deadline_ms, _ = waiting[-1]
            if deadline_ms < last_deadline_ms:
                self._deadlines_rise = False
            if offset < last_offset:
                self._insert(offset, deadline_ms, waiter)
                return
        waiting.append((offset, deadline_ms, waiter))

    def advance(self, offset: int) -> list[T]:
        """Release all waiters whose offset is at most `offset`, lowest first."""
        waiting = self._waiting
        released: list[T] = []
        while waiting and waiting[0][0] <= offset:
            released.append(waiting.popleft()[2])
        if not waiting:
            self._deadlines_rise = True
        return released

    def expire(self, now_ms: int) -> list[T]:
        """Release all waiters whose deadline is `now_ms` or earlier, lowest offset first."""
        waiting = self._waiting
        expired: list[T] = []
        if self._deadlines_rise:
            while waiting and waiting[0][1] <= now_ms:
                expired.append(waiting.popleft()[2])
        else:
            kept: deque[tuple[int, int, T]] = deque()
            for entry in waiting:
                if entry[1] <= now_ms:
                    expired.append(entry[2])
                else:
                    kept.append(entry)
            self._waiting = waiting = kept
        if not waiting:
            self._deadlines_rise = True
        return expired

    def drain(self) -> list[T]:
        """Release all waiters: a role or a node ends."""
        released = [waiter for _, _, waiter in self._waiting]
        self._waiting.clear()
        self._deadlines_rise = True
        return released

    def _insert(self, offset: int, deadline_ms: int, waiter: T) -> None:
        index = len(self._waiting)
        while index and self._waiting[index - 1][0] > offset:
            index -= 1
        self._waiting.insert(index, (offset, deadline_ms, waiter))
        self._deadlines_rise = False
