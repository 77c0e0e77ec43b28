"""Every consume queue of a store, by (topic, queue id), and their directories."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store.consume_queue import ConsumeQueue
from trioha.store.mapped_file import fsync_directory
from trioha.store.store_config import StoreConfig

QueueKey = tuple[str, int]


def is_storable(topic: str, queue_id: int) -> bool:
    """Can the pair name a directory, and no directory but its own?

    Brokers check names by stricter rules; a record that came with replication meets only this one.
    """
    return (
        0 < len(topic) <= 255
        and topic not in (".", "..")
        and "/" not in topic
        and "\0" not in topic
        and 0 <= queue_id <= 0x7FFFFFFF
    )


class ConsumeQueues:
    """`table` is read on the hot path; a queue is in it once it has an entry or a directory."""

    def __init__(
        self, config: StoreConfig, before_forgetting: Callable[[], None] = lambda: None
    ) -> None:
        """`before_forgetting` is called before a queue loses entries for good."""
        self.before_forgetting = before_forgetting
        self.damaged: dict[QueueKey, CommitLogCorrupted] = {}
        """Queues whose files `load` could not take, with what is wrong."""
        self.table: dict[QueueKey, ConsumeQueue] = {}
        self.by_topic_field: dict[tuple[bytes, int], ConsumeQueue] = {}
        """The same queues, by the topic as records hold it."""
        self._config = config
        self._root = config.consume_queue_path
        self._new_directories = False

    def load(self) -> None:
        """Find the queues on disk; their ends are for recovery to find.

        Errors: StoreError for what does not belong there; the text names the file and the cure.
        Damage is only noted: a queue can be rebuilt.
        """
        if not self._root.is_dir():
            return
        for topic_path in sorted(self._root.iterdir()):
            if not topic_path.is_dir():
                raise StoreError(f"{topic_path} does not belong here: move it away")
            for queue_path in sorted(topic_path.iterdir()):
                if not queue_path.name.isdecimal() or not queue_path.is_dir():
                    raise StoreError(f"{queue_path} does not belong here: move it away")
                queue = self.find_or_make(topic_path.name, int(queue_path.name))
                try:
                    queue.files.load()
                except CommitLogCorrupted as error:
                    self.damaged[queue.topic, queue.queue_id] = error

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, new and without files if need be. The pair is storable."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            queue = self.table[topic, queue_id] = ConsumeQueue(self._config, topic, queue_id)
            self.by_topic_field[queue.topic_field, queue_id] = queue
            self._new_directories = True
        return queue

    def keys(self) -> list[QueueKey]:
        """The queues that are on disk. Thread-safe."""
        return [key for key, queue in list(self.table.items()) if queue.files.files]

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues with their indices; the next message begins at 0.

        Errors: StoreError.
        """
        self.before_forgetting()
        for key in [key for key in self.table if key[0] == topic]:
            queue = self.table.pop(key)
            del self.by_topic_field[queue.topic_field, queue.queue_id]
            queue.reset()
        if is_storable(topic, 0):
            shutil.rmtree(self._root / topic, ignore_errors=True)

    def forget_before(self, topic: str, queue_id: int, phy_offset: int) -> None:
        """Forget the entries of records before `phy_offset`; a queue without others is removed.

        Errors: StoreError.
        """
        queue = self.table.get((topic, queue_id))
        if queue is None:
            return
        keep = queue.bisect(
            queue.min_index, queue.next_index, lambda offset, size: offset < phy_offset
        )
        if keep < queue.next_index:
            if keep > queue.min_index:
                queue.forget_before(keep)
            return
        self.before_forgetting()
        del self.table[topic, queue_id]
        del self.by_topic_field[queue.topic_field, queue_id]
        queue.reset()
        if is_storable(topic, queue_id):
            shutil.rmtree(queue.directory, ignore_errors=True)
            if not any(name == topic for name, _ in self.table):
                shutil.rmtree(self._root / topic, ignore_errors=True)

    def begin_anew(self, topic: str, queue_id: int) -> None:
        """Remove the queue's files, whatever they are; it is to be rebuilt."""
        queue = self.find_or_make(topic, queue_id)
        queue.reset()
        shutil.rmtree(queue.directory, ignore_errors=True)

    def delete_all(self) -> None:
        """Remove every queue."""
        for queue in self.table.values():
            queue.reset()
        self.table.clear()
        self.by_topic_field.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def truncate_phy(self, phy_offset: int) -> None:
        """Forget the entries of records at or behind `phy_offset`."""
        for queue in self.table.values():
            queue.truncate_phy(phy_offset)

    def correct_min(self, min_phy_offset: int) -> None:
        """The log now begins at `min_phy_offset`."""
        for queue in self.table.values():
            queue.correct_min(min_phy_offset)

    def flush(self) -> bool:
        """Bring every new entry and directory to disk; True if files came or went. Thread-safe.

        Errors: StoreError.
        """
        queues = list(self.table.values())
        if self._new_directories:
            self._new_directories = False
            self._sync_directories(queues)
        changed = False
        for queue in queues:
            changed = queue.flush() or changed
        return changed

    def _sync_directories(self, queues: list[ConsumeQueue]) -> None:
        for path in {self._root.parent, self._root} | {queue.directory.parent for queue in queues}:
            try:
                fsync_directory(path)
            except FileNotFoundError:
                continue  # no entry yet, or deleted meanwhile
            except OSError as error:
                self._new_directories = True
                raise StoreError(f"fsync of {path} failed: {error.strerror}") from error
