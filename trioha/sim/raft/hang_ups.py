"""Connections that end: because a process died, because a firewall resets them, or for no reason.

A killed process ends its connections, so the others learn of it within a packet's time. But the
members must be safe when somebody lies to them: connections of a leader that lives end too, at the
worst moments, while its packets still arrive and its lease still runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from trioha.sim.raft.member import SimMember
from trioha.sim.scheduler import Scheduler

_DELAY_MS_MAX = 20
_GAP_MS_MAX = 3000


class HangUps:
    """Tells members that their connections with another have ended."""

    def __init__(
        self, members: Mapping[str, SimMember], scheduler: Scheduler, rng: Random, *, is_on: bool
    ) -> None:
        self.stopped = not is_on
        self._members = members
        self._scheduler = scheduler
        self._rng = rng

    def begin(self) -> None:
        """Reset connections now and then."""
        if not self.stopped:
            self._scheduler.after(self._rng.randint(1, _GAP_MS_MAX), self._strike)

    def killed(self, member: SimMember) -> None:
        """A process has died; its machine goes on."""
        if not self.stopped:
            for other in self._others(member.member_id):
                self._tell(other, member.member_id)

    def cut(self, cuts: set[tuple[str, str]]) -> None:
        """Packets are lost from now on: half of such walls answer with a reset."""
        if not self.stopped and self._rng.random() < 0.5:
            for source, target in sorted(cuts):
                if source in self._members and target in self._members:
                    self._tell(target, source)

    def _strike(self) -> None:
        if self.stopped:
            return
        rng = self._rng
        names = sorted(self._members)
        leaders = [name for name in names if self._members[name].is_leader]
        victim = rng.choice(leaders if leaders and rng.random() < 0.8 else names)
        share = rng.choice((0.5, 1.0))
        for other in self._others(victim):
            if rng.random() < share:
                self._tell(other, victim)
        self.begin()

    def _others(self, member_id: str) -> list[str]:
        return [name for name in sorted(self._members) if name != member_id]

    def _tell(self, member_id: str, lost_id: str) -> None:
        member = self._members[member_id]
        self._scheduler.after(
            self._rng.randint(0, _DELAY_MS_MAX), lambda: member.lose_peer(lost_id)
        )
