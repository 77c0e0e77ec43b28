"""Senders who do as stock clients do: ask for the route, try, believe what they hear."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trioha.sim.pair.messages import AskRoute, Put, PutAnswer, Route

if TYPE_CHECKING:
    from trioha.sim.pair.world import World

QUEUES = 2
PATIENCE_MS = 900
THINK_MS_MAX = 160
ROUTE_AGE_MS_MAX = 1500
SERVED_MS = 1500


class Sender:
    """One message after the other; one that has no answer is not sent again."""

    def __init__(self, world: World, name: str, ids: Iterator[int]) -> None:
        self._world = world
        self._name = name
        self._ids = ids
        self._master = ""
        self._route_ms = 0
        self._over = False
        self._ok_ms = 0

    @property
    def is_served(self) -> bool:
        """The producer received SEND_OK within the last `SERVED_MS`."""
        return self._world.scheduler.now_ms - self._ok_ms < SERVED_MS

    def start(self) -> None:
        self._rest()

    def stop(self) -> None:
        self._over = True

    def _rest(self) -> None:
        delay_ms = self._world.rng.randint(1, THINK_MS_MAX)
        self._world.scheduler.after(delay_ms, self._go_on)

    def _go_on(self) -> None:
        world = self._world
        if self._over:
            return
        stale = world.scheduler.now_ms - self._route_ms > ROUTE_AGE_MS_MAX
        if self._master and not stale:
            self._send()
        else:
            world.ask(self._name, world.namesrv.host, AskRoute(), self._hear_route, PATIENCE_MS)

    def _hear_route(self, answer: object) -> None:
        if isinstance(answer, Route):
            self._master, self._route_ms = answer.master, self._world.scheduler.now_ms
        if self._master:
            self._send()
        else:
            self._rest()

    def _send(self) -> None:
        world = self._world
        put = Put(world.rng.randrange(QUEUES), next(self._ids))
        world.ask(self._name, self._master, put, self._hear, PATIENCE_MS)

    def _hear(self, answer: object) -> None:
        counts = self._world.checker.counts
        if answer is PutAnswer.OK:
            self._ok_ms = self._world.scheduler.now_ms
        else:
            self._master = ""
            if answer is PutAnswer.REFUSED:
                counts.refused += 1
            else:
                counts.unknown += 1
        self._rest()


def make_senders(world: World, count: int) -> list[Sender]:
    ids = itertools.count(1)
    return [Sender(world, f"client-{number}", ids) for number in range(count)]
