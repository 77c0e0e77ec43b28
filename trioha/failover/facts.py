"""The facts about one replica set at one moment, from which a plan is made.

A fact that is not known is None, never zero: an unknown loss is not "no loss".
"""

from __future__ import annotations

import enum

import attrs

from trioha.ha.mastership import Standing


class Make(enum.Enum):
    """Make of a broker. Only a trioha broker can be promoted or step down."""

    TRIOHA = "trioha"
    JAVA = "java"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class HeldTicket:
    """Permission to change roles in a set: one at a time, with a deadline."""

    ticket_id: str
    operator: str
    """User and machine: ``anna@ops-1``."""
    age_s: float
    left_s: float


@attrs.frozen(kw_only=True)
class ReplicaFacts:
    """One member of the set."""

    home_id: int
    """The configured brokerId."""
    address: str
    ha_address: str = ""
    error: str = ""
    """Reason why the node could not be asked; empty if it answered."""
    make: Make = Make.UNKNOWN
    is_raft: bool = False
    """The node is a member of a DLEDGER group, which elects its master itself."""
    standing: Standing | None = None
    epoch: int | None = None
    """Newest epoch that it knows of."""
    promised_epoch: int = 0
    """Newest epoch that it promised to a candidate."""
    log_epoch: int | None = None
    """Newest epoch in its log."""
    max_phy_offset: int | None = None
    metadata_position: int | None = None
    """Position of the newest change of its master's metadata that it has; None if unknown."""
    sync: bool | None = None
    """Puts wait for a slave: the master's setting, or what a slave learned from its master."""
    in_sync: bool | None = None
    """The slave is in sync, as its master tells; None for other roles."""
    announced_offset: int | None = None
    """Furthest end of log that the slave's master ever announced to it."""
    level_since_start: bool | None = None
    """The node holds all that it ever acknowledged. False from a loss of power that took bytes
    which were not flushed until the node is up to date with its master again."""
    follows: str = ""
    """Address of the master that it follows."""
    ticket: HeldTicket | None = None

    @property
    def answers(self) -> bool:
        return not self.error

    @property
    def name(self) -> str:
        """Name in messages: id and address."""
        return f"{self.home_id} ({self.address})"


@attrs.frozen(kw_only=True)
class NamesrvFacts:
    """One name server's view of the set."""

    address: str
    error: str = ""
    master: str = ""
    """Address registered as id 0; empty for none."""


@attrs.frozen(kw_only=True)
class SetFacts:
    """A replica set as its name servers and its members describe it."""

    broker_name: str
    replicas: tuple[ReplicaFacts, ...]
    namesrvs: tuple[NamesrvFacts, ...] = ()

    @property
    def masters(self) -> tuple[ReplicaFacts, ...]:
        """Members that answer and have the standing MASTER."""
        return tuple(one for one in self.replicas if one.standing is Standing.MASTER)

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that any member knows of or has promised."""
        return max((max(one.epoch or 0, one.promised_epoch) for one in self.replicas), default=0)

    @property
    def silent(self) -> tuple[ReplicaFacts, ...]:
        """Members that do not answer."""
        return tuple(one for one in self.replicas if not one.answers)

    def lost_master(self) -> ReplicaFacts | None:
        """Return the silent member that others follow or routes name; else a silent id 0."""
        followed = {one.follows for one in self.replicas} | {one.master for one in self.namesrvs}
        silent = [one for one in self.replicas if not one.answers]
        named = [one for one in silent if one.address in followed]
        return next(iter(named or [one for one in silent if one.home_id == 0]), None)

    def by_id(self, home_id: int) -> ReplicaFacts | None:
        return next((one for one in self.replicas if one.home_id == home_id), None)
