"""The members of one broker name: which of them are masters, and which one counts."""

from __future__ import annotations

import attrs

from trioha.watch.raft import RaftState
from trioha.watch.replica import Replica


@attrs.frozen(kw_only=True)
class ReplicaSet:
    """Members of one broker name, including those that are gone."""

    cluster: str
    name: str
    replicas: tuple[Replica, ...]

    @property
    def masters(self) -> tuple[Replica, ...]:
        """Members that answer and act as master; more than one is a split."""
        found = tuple(one for one in self.replicas if one.is_master and not one.answer.error)
        if self.is_raft:
            # A leader of an older term cannot commit, and will learn of the newer one.
            newest = max((one.epoch or 0 for one in found), default=0)
            found = tuple(one for one in found if (one.epoch or 0) == newest)
        return found

    @property
    def is_raft(self) -> bool:
        """The set is a DLEDGER group, which elects its masters itself."""
        return any(one.raft is not None for one in self.replicas)

    @property
    def raft_states(self) -> tuple[RaftState, ...]:
        """Raft states of the members that answer."""
        return tuple(one.raft for one in self.replicas if one.raft and not one.answer.error)

    @property
    def master(self) -> Replica | None:
        """Live master of the newest epoch; else a master that does not answer; None without one."""
        living = self.masters
        if living:
            return max(living, key=lambda one: one.epoch or 0)
        return next((one for one in self.replicas if one.is_master), None)
