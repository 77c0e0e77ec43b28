"""Which topics and groups are RocketMQ's own: hidden until `a` shows them."""

from __future__ import annotations

from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.names import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)


class SystemNames:
    """Of one snapshot: topics are also named after brokers and clusters."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._names = {one.name for one in snapshot.sets} | {one.cluster for one in snapshot.sets}

    def has_topic(self, name: str) -> bool:
        if is_dlq_topic(name):
            return False  # what lies there is somebody's
        return (
            is_retry_topic(name)
            or is_system_topic(name)
            or name.removesuffix("_REPLY_TOPIC") in self._names
        )

    def has_group(self, name: str) -> bool:
        return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)
