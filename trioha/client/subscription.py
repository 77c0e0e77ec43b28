"""Subscription of a consumer to a topic: everything, or messages with one of some tags.

The broker compares hashes (FilterAPI.java), so a message with another tag of the same hash may
come; `matches` compares the tags themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trioha.client.message import ReceivedMessage
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.java_hash import string_hash

ALL = "*"


@attrs.frozen
class Subscription:
    """One topic of a consumer."""

    topic: str
    expression: str = ALL
    """``*``, or ``TagA || TagB``."""
    version: int = 0
    """Milliseconds at which it was made; the broker keeps the newest."""
    tags: frozenset[str] = attrs.field(init=False)

    @tags.default
    def _parse(self) -> frozenset[str]:
        parts = (part.strip() for part in self.expression.split("||"))
        tags = frozenset(part for part in parts if part)
        return frozenset() if ALL in tags else tags

    def matches(self, message: ReceivedMessage) -> bool:
        return not self.tags or message.tags in self.tags

    def data(self) -> SubscriptionData:
        """Return the subscription as a heartbeat carries it."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression if self.tags else ALL,
            tags_set=self.tags,
            code_set=frozenset(map(string_hash, self.tags)),
            sub_version=self.version,
        )


def subscriptions_of(expressions: Mapping[str, str], version: int) -> dict[str, Subscription]:
    """Topic → subscription from topic → expression."""
    return {
        topic: Subscription(topic, expression or ALL, version)
        for topic, expression in expressions.items()
    }
