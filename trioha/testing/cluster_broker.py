"""One broker of a cluster under test, and what a test may do to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from trioha.errors import TriohaError
from trioha.testing.machines import MachineSpec


class HandFailed(TriohaError, AssertionError):
    """The cluster did not do what the test asked of it."""


class ClusterBroker(ABC):
    """One broker of a cluster, as a test handles it."""

    machine: MachineSpec
    root: Path
    """Directory of its store."""

    @property
    def label(self) -> str:
        """Name in events, stories and cuts: broker-a-0, or broker-a-n0 in a DLEDGER group."""
        return self.machine.label

    @property
    @abstractmethod
    def address(self) -> str:
        """Address for clients."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """The broker's process runs."""

    @abstractmethod
    async def start(self) -> None:
        """Start it again after `kill`, `stop`, `wipe` or `power_loss`; return once it serves."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop it in order, as SIGTERM does."""

    @abstractmethod
    async def kill(self) -> None:
        """End it without a word, as SIGKILL does. What it wrote stays."""

    @abstractmethod
    async def pause(self) -> None:
        """Let it stand still, as SIGSTOP does: its connections stay open and nothing moves.

        In this process its timers go on: only what it sends and receives is held back.
        """

    @abstractmethod
    async def resume(self) -> None:
        """End a pause."""

    @abstractmethod
    async def wipe(self) -> None:
        """Kill it and empty its disk."""

    async def restart(self) -> None:
        """Stop it in order and start it again."""
        await self.stop()
        await self.start()

    async def power_loss(self) -> None:
        """Kill it; the bytes of its logs that were not flushed are gone."""
        raise self._needs_memory("power_loss")

    def disk_full(self, full: bool = True) -> None:
        """Leave its disk without space, or give space back."""
        raise self._needs_memory("disk_full")

    def fail_fsync(self, failing: bool = True) -> None:
        """Let every fsync of it fail; a broker whose fsync fails ends itself."""
        raise self._needs_memory("fail_fsync")

    def _needs_memory(self, hand: str) -> HandFailed:
        return HandFailed(
            f"{hand} of {self.label} needs a cluster in this process: open it without"
            " processes=True"
        )

    def __repr__(self) -> str:
        return f"<broker {self.label} {'up' if self.is_up else 'down'}>"
