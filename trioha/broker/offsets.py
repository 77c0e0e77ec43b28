"""Offsets of each consumer group (ConsumerOffsetManager.java).

Theory of operation. One number per (topic, group, queue): the next offset the group wants. Commits
replace it, backwards too: an operator may rewind a group. Consumers commit to the master while the
route lists it and to a slave otherwise; a slave copies the master's table every ten seconds.

A slave's merge rule. RocketMQ's slave takes every value of its master, so what consumers committed
to the slave during an outage is overwritten by the table of the master that came back, and a
consumer that restarts then reads everything again. Here the slave remembers which values were
committed to itself:

1. no commit of our own for a queue: the master's value, whatever it is (a rewind spreads);
2. the master's value has reached ours: the master's, and ours is forgotten;
3. the master's value is behind ours: ours. It was away and cannot know; `commits_to_tell` lists
   such values, and the slave sends them to the master as ordinary commits (code 15), marked
   `onlyForward` so that a trioha master never goes back because of them;
4. once told (`told`), rule 1 again: if the master is still behind, an operator rewound the group;
5. queues the master does not mention stay: absence says nothing (its file may be lost).

So consumers carry on where they were on the slave, and the returning master learns it at the next
synchronization, at most once per value. What cannot be told apart is a rewind made on the returned
master before that first synchronization: there the larger value wins.

The commits of our own survive a restart of the slave in ``localCommits`` beside ``offsetTable``;
RocketMQ ignores the key. A master has none.

A trioha master tells its slave of every change (`trioha.broker.metadata`), and such values go by
the same rule. Only a snapshot of its table says something by absence: what it does not mention is
gone, but for commits of our own.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import attrs

from trioha.broker.metadata_ops import (
    OFFSET_MAX,
    QUEUE_ID_MAX,
    Offsets,
    OnOp,
    ProgressGone,
    QueuesGone,
    ignore_op,
    is_progress_key,
)
from trioha.errors import CommandError
from trioha.wire import fastjson
from trioha.wire.bodies import (
    DataVersion,
    consumer_offset_table_from_dict,
    consumer_offset_table_to_dict,
)
from trioha.wire.codes import ResponseCode
from trioha.wire.json_fields import object_of
from trioha.wire.names import FOLLOWER_REMARK, check_group, check_topic
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import Buffer

ENTRIES_MAX = 1_000_000  # about 100 MiB; a large cluster has some 100,000 on a broker
SET_BACK_MAX = 64
"""Queues whose progress was set back that are kept for the journal until it takes them."""

_Table = dict[str, dict[int, int]]


@attrs.frozen
class OffsetCommit:
    """One group's progress in one queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


@attrs.define
class SetBack:
    """A group's progress in one queue moved backwards, perhaps several times."""

    before: int
    """The largest offset that was left."""
    after: int
    """The smallest offset that was set."""


class ConsumerOffsetTable:
    """Progress of every group in every queue; `is_slave` switches the merge rule on."""

    def __init__(
        self, *, is_slave: bool = False, entries_max: int = ENTRIES_MAX, on_op: OnOp = ignore_op
    ) -> None:
        """`on_op` gets what was deleted here."""
        self._table: _Table = {}  # "topic@group" -> queue id -> offset
        self._local: _Table = {}  # what was committed to us as a slave and the master has not
        self._is_slave = is_slave
        self._entries_max = entries_max
        self._entries_count = 0
        self.changed: _Table = {}
        """The newest commit of each queue since the owner last took them (`take_changed`)."""
        self._on_op = on_op
        self._set_back: dict[tuple[str, int], SetBack] = {}
        self._set_back_unkept = 0
        self.dirty = False
        """Changed since the owner last wrote it; the owner sets it back."""
        self.read_only = False
        """Only the DLEDGER group's log changes the table: a commit here would be in no log."""

    def __len__(self) -> int:
        return self._entries_count

    def become_master(self) -> None:
        """Count the offsets committed here as the group's own from now on."""
        self._is_slave = False
        self.dirty = self.dirty or bool(self._local)
        self._local.clear()

    def become_slave(self) -> None:
        """Take the master's values for true from now on."""
        self._is_slave = True

    @property
    def is_slave(self) -> bool:
        return self._is_slave

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, or -1."""
        queues = self._table.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group's progress. A negative offset means "I know nothing" and changes nothing.

        Errors: CommandError(SYSTEM_ERROR) when a new entry finds no room or makes no sense;
        SERVICE_NOT_AVAILABLE on a follower.
        """
        if offset < 0:
            return
        if self.read_only:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, FOLLOWER_REMARK)
        if offset > OFFSET_MAX:
            raise system_error(f"offset {offset} exceeds 63 bits")
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None or queue_id not in queues:
            self._check_new(group, topic, queue_id)
            queues = self._table.setdefault(key, {})
            self._entries_count += 1
        elif (before := queues[queue_id]) >= offset:
            if before > offset:
                self._note_set_back(key, queue_id, before, offset)
            elif not self._is_slave:
                return
        queues[queue_id] = offset
        self.dirty = True
        changed = self.changed.get(key)
        if changed is None:
            self.changed[key] = {queue_id: offset}
        else:
            changed[queue_id] = offset
        if self._is_slave:
            self._local.setdefault(key, {})[queue_id] = offset

    def take_changed(self) -> Offsets:
        """Return the commits since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def take_set_back(self) -> tuple[dict[tuple[str, int], SetBack], int]:
        """Progress that moved backwards since the last call, by ``topic@group`` and queue id.

        The second value counts the moves of queues beyond the first `SET_BACK_MAX`.
        """
        taken = self._set_back, self._set_back_unkept
        self._set_back, self._set_back_unkept = {}, 0
        return taken

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit, unless the group is already further."""
        if offset > self.query(group, topic, queue_id):
            self.commit(group, topic, queue_id, offset)

    def cut_back(self, topic: str, queue_id: int, offset: int) -> None:
        """Set back every group that is beyond the end of a queue that was cut."""
        for key, queues in self._table.items():
            if key.partition("@")[0] == topic and queues.get(queue_id, -1) > offset:
                self._note_set_back(key, queue_id, queues[queue_id], offset)
                queues[queue_id] = offset
                self.dirty = True
                if queue_id in self._local.get(key, ()):
                    self._forget_local(key, queue_id)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Queue id -> offset."""
        return self._table.get(f"{topic}@{group}", {})

    @property
    def table(self) -> Offsets:
        """``topic@group`` -> queue id -> offset."""
        return self._table

    def keys(self) -> list[str]:
        """``topic@group`` of every progress there is."""
        return list(self._table)

    def topics_of(self, group: str) -> list[str]:
        """Topics in which the group has committed anything."""
        suffix = f"@{group}"
        return [key[: -len(suffix)] for key in self._table if key.endswith(suffix)]

    def topics_by_group(self) -> dict[str, list[str]]:
        """`topics_of` for every group, in one go through the table."""
        found: dict[str, list[str]] = {}
        for key in self._table:
            topic, _, group = key.partition("@")
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed anything in the topic."""
        prefix = f"{topic}@"
        return [key[len(prefix) :] for key in self._table if key.startswith(prefix)]

    def delete_topic(self, topic: str) -> None:
        """Forget a topic whose queues are deleted: were it created again, old offsets would skip
        its first messages."""
        self.follow_gone(QueuesGone(topic))
        self._on_op(QueuesGone(topic))

    def delete_group(self, group: str) -> None:
        self.follow_gone(ProgressGone(group))
        self._on_op(ProgressGone(group))

    def commits_to_tell(self) -> list[OffsetCommit]:
        """Return offsets committed here that the master lacks; call it after each `merge`."""
        commits = []
        for key, queues in self._local.items():
            topic, _, group = key.partition("@")
            commits += [OffsetCommit(group, topic, *entry) for entry in queues.items()]
        return commits

    def told(self, commit: OffsetCommit) -> None:
        """Note that the master has taken this commit; from now on its value counts."""
        key = f"{commit.topic}@{commit.group}"
        # Committed again in the meantime: the master has to be told of that value too.
        if self._local.get(key, {}).get(commit.queue_id) == commit.offset:
            self._forget_local(key, commit.queue_id)
            self.dirty = True

    def forget_commits_beyond(self, topics: Container[str]) -> None:
        """Drop commits in topics that the master does not have: it would reject them each time."""
        for key in [key for key in self._local if key.partition("@")[0] not in topics]:
            del self._local[key]
            self.dirty = True

    def encode(self, version: DataVersion | None = None) -> bytes:
        """The body of request 43, with a version, and the text of consumerOffset.json."""
        fields = consumer_offset_table_to_dict(self._table)
        if version is not None:
            fields["dataVersion"] = version.to_dict()
        if self._local:
            fields["localCommits"] = consumer_offset_table_to_dict(self._local)["offsetTable"]
        return fastjson.dumps(fields)

    def load(self, data: Buffer) -> None:
        """Replace everything by what `encode`, or RocketMQ, wrote.

        Errors: RemoteProtocolError when it is not such a table; nothing has changed then.
        """
        fields = object_of(fastjson.loads(data), "offset table")
        table = _usable(consumer_offset_table_from_dict(fields))
        local: _Table = {}
        if self._is_slave:
            local = consumer_offset_table_from_dict({"offsetTable": fields.get("localCommits")})
        self._table = table
        self._local = _usable(local)
        self._count()

    def merge(self, data: Buffer) -> None:
        """Take over the master's table by the rule above.

        Errors: RemoteProtocolError when it is not such a table; nothing has changed then.
        """
        self.follow(_usable(consumer_offset_table_from_dict(fastjson.loads(data))))
        self._count()

    def follow(self, theirs: Offsets) -> None:
        """Take over values of the master's by the rule above."""
        for key, queues in theirs.items():
            ours = self._table.setdefault(key, {})
            if ours == queues and key not in self._local:
                continue
            local = self._local.get(key, {})
            for queue_id, offset in queues.items():
                if queue_id in local:
                    if offset < local[queue_id]:
                        continue
                    self._forget_local(key, queue_id)
                self._entries_count += queue_id not in ours
                ours[queue_id] = offset
            self.dirty = True

    def follow_all(self, theirs: Offsets) -> None:
        """Take over the master's table; delete what it does not hold, but for own commits."""
        self._table = {key: dict(queues) for key, queues in self._local.items()}
        self.dirty = True
        self.follow(theirs)
        self._count()

    def follow_gone(self, op: QueuesGone | ProgressGone) -> None:
        """Delete the entries that the master has deleted."""
        if isinstance(op, QueuesGone):
            keys = [f"{op.topic}@{group}" for group in self.groups_of(op.topic)]
        else:
            keys = [f"{topic}@{op.group}" for topic in self.topics_of(op.group)]
        for key in keys:
            self._entries_count -= len(self._table.pop(key))
            self._local.pop(key, None)
            self.changed.pop(key, None)
            self.dirty = True

    def recommit(self, own: Offsets) -> None:
        """Restore commits to this slave from before its restart, beside the master's values."""
        for key, queues in own.items():
            self._table.setdefault(key, {}).update(queues)
            self._local.setdefault(key, {}).update(queues)
            self.dirty = True
        self._count()

    def _check_new(self, group: str, topic: str, queue_id: int) -> None:
        check_topic(topic)
        check_group(group)
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise system_error(f"queueId {queue_id} is illegal")
        if self._entries_count >= self._entries_max:
            raise system_error(
                f"the broker keeps {self._entries_max} consumer offsets and takes no new ones"
            )

    def _note_set_back(self, key: str, queue_id: int, before: int, after: int) -> None:
        known = self._set_back.get((key, queue_id))
        if known is not None:
            known.before, known.after = max(known.before, before), min(known.after, after)
        elif len(self._set_back) < SET_BACK_MAX:
            self._set_back[key, queue_id] = SetBack(before, after)
        else:
            self._set_back_unkept += 1

    def _count(self) -> None:
        self._entries_count = sum(map(len, self._table.values()))

    def _forget_local(self, key: str, queue_id: int) -> None:
        queues = self._local[key]
        del queues[queue_id]
        if not queues:
            del self._local[key]


def _usable(table: _Table) -> _Table:
    """Leave out entries that RocketMQ skips too, so that one odd entry keeps no other away."""
    return {
        key: {
            queue_id: offset
            for queue_id, offset in queues.items()
            if 0 <= queue_id <= QUEUE_ID_MAX and offset >= 0
        }
        for key, queues in table.items()
        if is_progress_key(key)
    }
