"""Membership of a group: its configurations, each with the offset from which it counts.

Theory of operation. A configuration is a control record like the one that opens a term. It counts
from the moment it is appended, committed or not (Raft thesis 4.1). A change adds or removes one
voter, so that any majority before and any after have a member in common. The next change may begin
when the last is committed, and a leader's first when its term has committed something (the bug that
was found in the thesis' single-server change in 2015). A log that is cut loses the configurations
of the part that is cut.

A learner gets the whole log. It has no vote, no commit waits for it, and it never stands for
election. A new member is a learner first.

A member that lost its store, or part of it, may have lost votes that it gave (thesis 3.8). It does
not get its vote back: the operator removes it, and adds it again, empty, under an id that the group
has not used before.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from trioha.dledger.settings import MEMBERS_MAX
from trioha.errors import RemoteProtocolError

MEMBER_ID_CHARS_MAX: Final = 64


class ChangeKind(enum.Enum):
    """Kind of a change of membership."""

    ADD_LEARNER = "add-learner"
    PROMOTE = "promote"
    """A learner becomes a voter."""
    REMOVE = "remove"


@attrs.frozen
class Configuration:
    """Voters and learners of a group at one offset of the log, sorted by id."""

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
        """Return the reason why this change is not possible; empty if it is."""
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
        """Return the configuration after a change; `obstacle` must be empty for it."""
        voters = set(self.voters) - {member}
        learners = set(self.learners) - {member}
        if kind is ChangeKind.PROMOTE:
            voters.add(member)
        elif kind is ChangeKind.ADD_LEARNER:
            learners.add(member)
        return Configuration(tuple(sorted(voters)), tuple(sorted(learners)))


ConfigurationRows = tuple[tuple[int, Configuration], ...]
"""Configurations, each with the end of its control record, where it begins to count."""


class ConfigurationTable:
    """The configurations of one log: (end of their record, configuration), oldest first."""

    def __init__(self, rows: ConfigurationRows) -> None:
        self.rows = rows
        """Never empty; the first is the group's first, or the one that counts at the log's begin.
        """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigurationTable) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"ConfigurationTable({self.rows})"

    @property
    def latest(self) -> Configuration:
        return self.rows[-1][1]

    @property
    def latest_offset(self) -> int:
        """End of the newest configuration's record: the configuration commits with that offset."""
        return self.rows[-1][0]

    def at(self, end_offset: int) -> Configuration:
        """Return the configuration that counted when the log ended at `end_offset`."""
        return next(
            (row[1] for row in reversed(self.rows) if row[0] <= end_offset), self.rows[0][1]
        )

    def add(self, end_offset: int, configuration: Configuration) -> ConfigurationTable:
        return ConfigurationTable((*self.rows, (end_offset, configuration)))

    def cut(self, log_end: int) -> ConfigurationTable:
        """Return the table of the log after a cut at `log_end`."""
        if self.rows[-1][0] <= log_end:
            return self
        return ConfigurationTable(
            tuple(row for row in self.rows if row[0] <= log_end) or self.rows[:1]
        )

    def drop_before(self, begin_offset: int) -> ConfigurationTable:
        """Return the table of a log that begins here: the newest of the older rows stays."""
        older = [row for row in self.rows if row[0] <= begin_offset]
        return ConfigurationTable((*older[-1:], *self.rows[len(older) :]))
