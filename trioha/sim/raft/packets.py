"""A network of packets that is worse than TCP: it loses, doubles, reorders, delays and cuts.

What a connection keeps in order and whole, the core must survive without: connections end and begin
anew in the middle of anything, and an old one may still deliver.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs

from trioha.dledger.messages import RaftMessage
from trioha.sim.scheduler import Scheduler


@attrs.frozen(kw_only=True)
class PacketWeather:
    """Latency, loss, duplication and delay of packets in one seed."""

    latency_ms_min: int = 1
    latency_ms_max: int = 3
    loss: float = 0.0
    duplicate: float = 0.0
    spike: float = 0.0
    spike_ms_max: int = 2000
    stray: float = 0.0
    """Chance that a copy of a packet comes seconds later."""
    stray_ms_max: int = 15_000


class PacketNetwork:
    """The network between members: it delays, loses and repeats packets, and has cuts."""

    def __init__(
        self,
        scheduler: Scheduler,
        weather: PacketWeather,
        rng: Random,
        deliver: Callable[[RaftMessage], None],
    ) -> None:
        self.weather = weather
        self.sent = 0
        self._scheduler = scheduler
        self._rng = rng
        self._deliver = deliver
        self._cuts: set[tuple[str, str]] = set()

    def send(self, message: RaftMessage) -> None:
        rng, weather = self._rng, self.weather
        self.sent += 1
        if self._cuts and (message.source, message.target) in self._cuts:
            return
        if weather.loss and rng.random() < weather.loss:
            return
        self._later(message, self._latency_ms())
        if weather.duplicate and rng.random() < weather.duplicate:
            self._later(message, self._latency_ms())
        if weather.stray and rng.random() < weather.stray:
            self._later(message, rng.randint(100, weather.stray_ms_max))

    def set_cuts(self, cuts: set[tuple[str, str]]) -> None:
        """These ways, (source, target), carry nothing until told otherwise."""
        self._cuts = cuts

    def calm(self) -> None:
        """Heal everything. What is on its way still arrives."""
        self._cuts = set()
        self.weather = PacketWeather()

    def _later(self, message: RaftMessage, delay_ms: int) -> None:
        self._scheduler.after(delay_ms, lambda: self._deliver(message))

    def _latency_ms(self) -> int:
        rng, weather = self._rng, self.weather
        if weather.spike and rng.random() < weather.spike:
            return rng.randint(1, weather.spike_ms_max)
        return rng.randint(weather.latency_ms_min, weather.latency_ms_max)
