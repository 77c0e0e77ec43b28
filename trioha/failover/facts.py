"""What is known of one replica set at one moment: the ground that a plan stands on.

A fact that could not be had is None, never zero: an unknown loss is not no loss.
"""

from __future__ import annotations

import enum

import attrs

from trioha.ha.mastership import Standing


class Make(enum.Enum):
    """Whose broker it is. Only our own can be promoted or stepped down."""

    TRIOHA = "trioha"
    JAVA = "java"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class Ticket:
    """Leave to change roles: one at a time, with a deadline."""

    ticket_id: str
    operator: str
    """Who, and from where: ``anna@ops-1``."""
    age_s: float
    left_s: float


@attrs.frozen(kw_only=True)
class ReplicaFacts:
    """One member of the set."""

    home_id: int
    """brokerId as configured."""
    address: str
    ha_address: str = ""
    error: str = ""
    """Why it could not be asked; empty when it answered."""
    make: Make = Make.UNKNOWN
    is_raft: bool = False
    """It is of a group that elects its master itself."""
    standing: Standing | None = None
    epoch: int | None = None
    """Newest epoch it knows of."""
    promised_epoch: int = 0
    """Newest epoch that it promised to a candidate."""
    log_epoch: int | None = None
    """Newest epoch that its log has come to."""
    max_phy_offset: int | None = None
    metadata_position: int | None = None
    """How much it has of what its master changed beside the log; None when that is not known."""
    sync: bool | None = None
    """Do puts wait for a slave? Of a master, or as a slave learned from its master."""
    in_sync: bool | None = None
    """Of a slave, by its master's word."""
    announced_offset: int | None = None
    """Of a slave: the furthest end its master ever told it."""
    level_since_start: bool | None = None
    """Has it held all that it ever acknowledged, since it started? False after a loss of power that
    took bytes which were not flushed, until it is level with its master again."""
    follows: str = ""
    """Address of the node it takes for its master."""
    ticket: Ticket | None = None

    @property
    def answers(self) -> bool:
        return not self.error

    @property
    def name(self) -> str:
        """How people and messages call it."""
        return f"{self.home_id} ({self.address})"


@attrs.frozen(kw_only=True)
class NamesrvFacts:
    """What one name server believes."""

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
        """Who takes itself for master and answers."""
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
        """The silent member that others follow or name servers route to; else silent id 0."""
        followed = {one.follows for one in self.replicas} | {one.master for one in self.namesrvs}
        silent = [one for one in self.replicas if not one.answers]
        named = [one for one in silent if one.address in followed]
        return next(iter(named or [one for one in silent if one.home_id == 0]), None)

    def by_id(self, home_id: int) -> ReplicaFacts | None:
        return next((one for one in self.replicas if one.home_id == home_id), None)
