"""Consumer groups of this broker (SubscriptionGroupManager.java).

A group's settings say whether it may consume, how often its messages are redelivered and where its
slow consumers read. Groups come into being on first use, unless the configuration forbids it; the
system's own always exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trioha.broker.metadata_ops import GroupGone, GroupPut, OnOp, ignore_op
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.journal import EventSink, NullSink
from trioha.wire import fastjson
from trioha.wire.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    group_table_from_dict,
    group_table_to_dict,
)
from trioha.wire.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, check_group
from trioha.wire.refusals import system_error

GROUPS_MAX = 50_000
"""Most groups, as many as topics: a group brings its retry topic along."""


class GroupTable:
    """All groups and their version."""

    def __init__(
        self,
        config: BrokerConfig,
        events: EventSink | None = None,
        *,
        wall_ms: int = 0,
        groups_max: int = GROUPS_MAX,
        on_op: OnOp = ignore_op,
    ) -> None:
        """`on_op` gets each change made here."""
        self._auto_create = config.auto_create_subscription_group
        self._events = NullSink() if events is None else events
        self._groups_max = groups_max
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self.groups: Mapping[str, SubscriptionGroupConfig] = MappingProxyType(self._groups)
        self.data_version = DataVersion(timestamp=wall_ms, counter=0)
        self._on_op = on_op
        self.dirty = False
        """A change is not on disk yet; `ConfigPersist` resets it."""
        self.read_only = False
        """Only the DLEDGER group's log changes the table: a group created here is not kept."""

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(group)

    def find(self, group: str, wall_ms: int) -> SubscriptionGroupConfig | None:
        """The group, created if the configuration allows it; None if not, or the name is illegal.

        Errors: CommandError when the broker holds too many groups.
        """
        existing = self._groups.get(group)
        if existing is not None:
            return existing
        if not self._auto_create and not group.startswith(SYSTEM_GROUP_PREFIX):
            return None
        try:
            check_group(group)
        except CommandError:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        self._insert(created, wall_ms)
        return created

    def put(self, group: SubscriptionGroupConfig, wall_ms: int) -> None:
        """Create or replace a group.

        Errors: CommandError when the name is illegal or the broker holds too many groups.
        """
        check_group(group.group_name)
        self._insert(group, wall_ms)

    def delete(self, group: str, wall_ms: int) -> bool:
        """Remove a group; return False if it was not there, or the table is read-only."""
        if self.read_only or self._groups.pop(group, None) is None:
            return False
        self._changed(group, None, wall_ms)
        return True

    def encode(self) -> bytes:
        """The table as subscriptionGroup.json holds it and request 201 answers it."""
        return fastjson.dumps(group_table_to_dict(self.data_version, self._groups))

    def load(self, data: bytes) -> None:
        """Take over subscriptionGroup.json; the system's groups stay.

        Errors: RemoteProtocolError when it is not such a table.
        """
        self.data_version, table = group_table_from_dict(fastjson.loads(data))
        self._groups.update(table)

    def replace_all(
        self, version: DataVersion, table: Mapping[str, SubscriptionGroupConfig]
    ) -> None:
        """Become a copy of the master's table (SlaveSynchronize.java)."""
        self._groups.clear()
        self._groups.update(table)
        self.data_version = version
        self.dirty = True

    def follow(self, op: GroupPut | GroupGone) -> None:
        """Apply a change of the master's."""
        if isinstance(op, GroupPut):
            self._groups[op.group.group_name] = op.group
        else:
            self._groups.pop(op.name, None)
        self.data_version = op.version
        self.dirty = True

    def _insert(self, group: SubscriptionGroupConfig, wall_ms: int) -> None:
        if self.read_only:
            return
        name = group.group_name
        if name not in self._groups and len(self._groups) >= self._groups_max:
            raise system_error(
                f"group {name} not created: this broker holds {len(self._groups)} groups, its "
                "limit; delete unused ones first"
            )
        self._groups[name] = group
        self._changed(name, group, wall_ms)

    def _changed(self, name: str, group: SubscriptionGroupConfig | None, wall_ms: int) -> None:
        self.data_version = self.data_version.next(wall_ms)
        self.dirty = True
        version = self.data_version
        self._on_op(GroupGone(name, version) if group is None else GroupPut(group, version))
        self._events.event("group_changed", group=name)
