"""Who belongs to the group, and since where in the log.

A configuration is a control record like the one that opens a term, and counts from the moment it is
appended, committed or not (Raft thesis 4.1). Changes take one voter in or out, so that the
majorities before and after have a member in common; the next may be asked for when the last is
committed, and the first of a leader when its term has committed something (the bug of 2015 in the
thesis' single-server change). A log that is cut loses the configurations of the part that goes.

A learner is sent everything, counts for nothing and never stands. Whoever joins is a learner first.

A member that lost its store, or part of it, has lost promises with it. It does not get its vote
back: it is removed, and joins again empty under an id that nobody has counted on before.
"""

from __future__ import annotations

import enum

import attrs

from trioha.dledger.settings import MEMBERS_MAX
from trioha.errors import RemoteProtocolError

MEMBER_ID_CHARS_MAX = 64


class ChangeKind(enum.Enum):
    """What may happen to one member at a time."""

    ADD_LEARNER = "add-learner"
    PROMOTE = "promote"
    """A learner becomes a voter."""
    REMOVE = "remove"


@attrs.frozen
class Configuration:
    """The members of a moment, sorted."""

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        names = self.voters + self.learners
        for name in names:
            if not 0 < len(name) <= MEMBER_ID_CHARS_MAX or not name.isprintable():
                raise RemoteProtocolError(f"{name[:80]!r} is no member id")
        if len(set(names)) != len(names) or len(names) > MEMBERS_MAX:
            raise RemoteProtocolError(f"{len(names)} members, some twice or too many: {names[:20]}")
        for group in (self.voters, self.learners):
            if list(group) != sorted(group):
                raise RemoteProtocolError(f"members out of order: {group}")

    @classmethod
    def of(cls, *voters: str) -> Configuration:
        return cls(tuple(sorted(voters)))

    @property
    def members(self) -> tuple[str, ...]:
        return self.voters + self.learners

    def __str__(self) -> str:
        learners = f" learners {','.join(self.learners)}" if self.learners else ""
        return f"voters {','.join(self.voters)}{learners}"

    def obstacle(self, kind: ChangeKind, member: str) -> str:
        """Why this change makes no sense, in words; empty if it does."""
        if kind is ChangeKind.ADD_LEARNER:
            if member in self.members:
                return f"{member} is a member already"
            if len(self.members) >= MEMBERS_MAX:
                return f"the group has {MEMBERS_MAX} members, the most it may have"
            if not 0 < len(member) <= MEMBER_ID_CHARS_MAX or not member.isprintable():
                return f"{member[:80]!r} is no member id"
        elif member not in self.members:
            return f"{member} is no member; there are {', '.join(self.members)}"
        elif kind is ChangeKind.PROMOTE and member in self.voters:
            return f"{member} is a voter already"
        elif self.voters == (member,):
            return f"{member} is the only voter"
        return ""

    def changed(self, kind: ChangeKind, member: str) -> Configuration:
        """The configuration after a change to which there is no obstacle."""
        voters = set(self.voters) - {member}
        learners = set(self.learners) - {member}
        if kind is ChangeKind.PROMOTE:
            voters.add(member)
        elif kind is ChangeKind.ADD_LEARNER:
            learners.add(member)
        return Configuration(tuple(sorted(voters)), tuple(sorted(learners)))


@attrs.frozen
class ConfigurationTable:
    """The configurations of one log: (end of their record, configuration), oldest first."""

    rows: tuple[tuple[int, Configuration], ...]
    """Never empty; the first is what the group began with or what the log's beginning knows."""

    @property
    def latest(self) -> Configuration:
        return self.rows[-1][1]

    @property
    def latest_offset(self) -> int:
        """The end of the newest configuration's record: it is committed when that is."""
        return self.rows[-1][0]

    def at(self, end_offset: int) -> Configuration:
        """What counted when the log ended here."""
        return next(
            (row[1] for row in reversed(self.rows) if row[0] <= end_offset), self.rows[0][1]
        )

    def within(self, phy_offset: int, end_offset: int) -> tuple[tuple[int, Configuration], ...]:
        """Rows whose records end in this stretch of the log."""
        if self.rows[-1][0] <= phy_offset:
            return ()
        return tuple(row for row in self.rows if phy_offset < row[0] <= end_offset)

    def add(self, end_offset: int, configuration: Configuration) -> ConfigurationTable:
        return ConfigurationTable((*self.rows, (end_offset, configuration)))

    def cut(self, log_end: int) -> ConfigurationTable:
        """Of a log that ends here."""
        if self.rows[-1][0] <= log_end:
            return self
        return ConfigurationTable(
            tuple(row for row in self.rows if row[0] <= log_end) or self.rows[:1]
        )

    def drop_before(self, begin_offset: int) -> ConfigurationTable:
        """Of a log that begins here: the newest of the rows before stays."""
        older = [row for row in self.rows if row[0] <= begin_offset]
        return ConfigurationTable((*older[-1:], *self.rows[len(older) :]))
