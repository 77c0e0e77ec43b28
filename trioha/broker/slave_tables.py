"""Tables that a slave takes over from its master (SlaveSynchronize.java).

The four bodies of requests 21, 201, 43 and 45, from a Java master or a trioha one; 5.x's additional
keys are ignored. A body is read whole before anything changes. Topics and groups become copies of
the master's when their versions differ; offsets are merged by the rule of `trioha.broker.offsets`.

A name from the master becomes a directory name here, so names that would leave the store are left
out even though the master should never have accepted them.
"""

from __future__ import annotations

import attrs

from trioha.broker.delay import DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.metadata_ops import is_harmless
from trioha.broker.offsets import ConsumerOffsetTable, OffsetCommit
from trioha.broker.topics import TopicTable
from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.bodies import group_table_from_dict, topic_table_from_dict
from trioha.wire.json_fields import object_of
from trioha.wire.remoting_command import Buffer
from trioha.wire.route import ROUTE_QUEUES_MAX


@attrs.define(eq=False)
class SlaveTables:
    """The slave's own tables, filled from its master's answers.

    Errors: each `apply_…` raises RemoteProtocolError for a broken body; nothing has changed then.
    """

    _topics: TopicTable
    _groups: GroupTable
    _offsets: ConsumerOffsetTable
    _delay: DelaySchedule

    def apply_topics(self, data: Buffer) -> bool:
        """Make the topics a copy of the master's (21); False if they are one already."""
        version, table = topic_table_from_dict(_table_body(data, "topicConfigTable"))
        if not table:
            # Every broker has system topics. An empty table is no answer to act on.
            raise RemoteProtocolError("the master's topic table is empty")
        for name, topic in table.items():
            # Answers about a topic list its queues.
            if max(topic.read_queue_nums, topic.write_queue_nums) > ROUTE_QUEUES_MAX:
                raise RemoteProtocolError(
                    f"the master's topic {name:.127} has {topic.read_queue_nums} queues to read "
                    f"and {topic.write_queue_nums} to write, at most {ROUTE_QUEUES_MAX} are taken"
                )
        if version == self._topics.data_version:
            return False
        self._topics.replace_all(
            version,
            {
                name: attrs.evolve(topic, topic_name=name)
                for name, topic in table.items()
                if is_harmless(name)
            },
        )
        self._offsets.forget_commits_beyond(table)
        return True

    def apply_groups(self, data: Buffer) -> bool:
        """Make the groups a copy of the master's (201); False if they are one already."""
        version, table = group_table_from_dict(_table_body(data, "subscriptionGroupTable"))
        if version == self._groups.data_version:
            return False
        self._groups.replace_all(
            version,
            {
                name: attrs.evolve(group, group_name=name)
                for name, group in table.items()
                if is_harmless(name)
            },
        )
        return True

    def apply_offsets(self, data: Buffer) -> None:
        """Merge the master's consumer offsets (43); then ask `commits_to_tell`."""
        self._offsets.merge(data)

    def apply_delay_offsets(self, data: Buffer) -> None:
        """Take over the master's delay progress of each level (45)."""
        self._delay.load(bytes(data))
        self._delay.dirty = True

    def commits_to_tell(self) -> list[OffsetCommit]:
        """Return the offsets that consumers committed here and the master lacks."""
        return self._offsets.commits_to_tell()

    def told(self, commit: OffsetCommit) -> None:
        """Note that the master has taken this commit."""
        self._offsets.told(commit)


def _table_body(data: Buffer, key: str) -> object:
    body = fastjson.loads(data)
    if key not in object_of(body, "the master's answer"):
        raise RemoteProtocolError(f"the master's answer has no {key}")
    return body
