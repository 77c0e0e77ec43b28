"""Pops, acknowledgements, time and losses of power in any order, against what was promised.

Nothing that was on disk is lost: each such message is acknowledged or comes again. What was
acknowledged on disk never comes again. Without a loss of power, nothing comes before its time.
"""

from __future__ import annotations

from random import Random

import pytest
from support.handlers.popping import Popped, PopSide

STEPS = ("put", "put", "pop", "pop", "ack", "ack", "hide", "wait", "acked", "safe", "power")
WAITS_MS = (1, 700, 1_000, 6_000)
INVISIBLE_MS = 1_000


class Story:
    """A broker, its client, and what the client may expect."""

    def __init__(self) -> None:
        self.side = PopSide(queues=2)
        self.put_count = 0
        self.stored: set[str] = set()
        self.durable: set[str] = set()
        self.acked: set[str] = set()
        self.acked_for_good: set[str] = set()
        self.in_hand: dict[str, tuple[Popped, int]] = {}
        """Message and when it becomes visible again, by its body."""
        self.offsets = self.side.core.offsets.encode()

    def run(self, kind: str, number: int) -> None:
        side = self.side
        if kind == "put":
            side.put(str(self.put_count), number % 2)
            self.stored.add(str(self.put_count))
            self.put_count += 1
        elif kind == "pop":
            self.pop(number % 5 + 1)
        elif kind == "wait":
            side.wait(WAITS_MS[number % 4], safe=False)
        elif kind == "acked":
            side.core.on_acked(side.now_ms)
        elif kind == "safe":
            # The table of offsets gets to the disk after what it rests on, sometimes much later.
            self.offsets = side.core.offsets.encode()
            side.make_safe()
            self.made_safe()
        elif kind == "power":
            self.lose_power(number % 2)
        elif self.in_hand:
            body = sorted(self.in_hand)[number % len(self.in_hand)]
            message, visible_ms = self.in_hand[body]
            if side.now_ms >= visible_ms:
                return
            if kind == "ack":
                assert side.ack(message) == 0
                self.acked.add(body)
                del self.in_hand[body]
            else:
                renewed = side.hide(message, INVISIBLE_MS)
                self.in_hand[body] = renewed, side.now_ms + INVISIBLE_MS

    def pop(self, count_max: int) -> int:
        messages = self.side.pop(maxMsgNums=count_max, invisibleTime=INVISIBLE_MS)
        for message in messages:
            body = message.body
            assert body not in self.acked, f"{body} comes again after its acknowledgement"
            if body in self.in_hand:
                assert self.side.now_ms >= self.in_hand[body][1], f"{body} comes too early"
            self.in_hand[body] = message, self.side.now_ms + INVISIBLE_MS
        return len(messages)

    def made_safe(self) -> None:
        if self.side.store.flushed_offset == self.side.store.max_phy_offset:
            self.durable = set(self.stored)
            self.acked_for_good = set(self.acked)

    def lose_power(self, keeps_offsets: int) -> None:
        """Keep the log as it is on disk, and the table of offsets as it is now or was before."""
        offsets = self.side.core.offsets.encode() if keeps_offsets else self.offsets
        self.side = self.side.after_power_loss(offsets)
        self.offsets = offsets
        self.stored = set(self.durable)
        self.acked = set(self.acked_for_good)
        self.in_hand.clear()

    def end(self) -> None:
        """Wait and acknowledge until nothing comes any more."""
        for _ in range(100):
            if not self.pop(32) and not len(self.side.core.pops.in_flight):
                break
            for body in list(self.in_hand):
                message, visible_ms = self.in_hand.pop(body)
                if self.side.now_ms < visible_ms:
                    assert self.side.ack(message) == 0
                    self.acked.add(body)
            self.side.wait(INVISIBLE_MS)
        assert self.durable <= self.acked


@pytest.mark.parametrize("seed", range(120))
def test_nothing_is_lost_and_nothing_comes_again_after_its_acknowledgement(seed: int) -> None:
    rng = Random(seed)
    story = Story()
    for _ in range(60):
        story.run(rng.choice(STEPS), rng.randrange(1, 20))
    story.end()
