"""Group that a retry topic belongs to.

A group that pops has a retry topic for each of its topics, named behind the group: with a plus, or
by default with an underscore, which the name of a group or of a topic may hold as well. Java's
broker does not note in such a redelivery which topic it comes from. Committed offsets tell.
"""

from __future__ import annotations

from collections.abc import Collection

from trioha.wire.names import RETRY_PREFIX


def group_of_retry(topic: str, offsets: Collection[tuple[str, str]], origin: str = "") -> str:
    """Return the group of a retry topic.

    `offsets`: topics and groups with a committed offset; `origin`: the message's own topic.
    """
    name = topic.removeprefix(RETRY_PREFIX)
    groups = {group for _, group in offsets}
    readers = {group for other, group in offsets if other == topic}
    if len(readers) == 1:
        return readers.pop()
    if name in groups:
        return name
    for other, group in offsets:
        if name in (f"{group}+{other}", f"{group}_{other}"):
            return group
    group, plus, _ = name.partition("+")
    return group if plus or not origin else name.removesuffix(f"_{origin}") or name
