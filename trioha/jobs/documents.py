"""The documents that commands print with ``-o json``, and their JSON schemas (`docs/schemas`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trioha.jobs.group_changes import GroupChange
from trioha.jobs.groups import GroupDetail, GroupList
from trioha.jobs.offsets import OffsetChange
from trioha.jobs.topic_changes import TopicChange
from trioha.jobs.topics import TopicDetail, TopicList, TopicStats

DOCUMENTS: Mapping[str, type] = {
    "topic list": TopicList,
    "topic describe": TopicDetail,
    "topic create": TopicChange,
    "topic alter": TopicChange,
    "topic delete": TopicChange,
    "topic stats": TopicStats,
    "group list": GroupList,
    "group describe": GroupDetail,
    "group create": GroupChange,
    "group alter": GroupChange,
    "group delete": GroupChange,
    "group clone-offsets": GroupChange,
    "group reset-offsets": OffsetChange,
    "group skip": OffsetChange,
}
"""Command → class of its document."""


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a document. It may get more properties in later versions."""
    import msgspec

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(kind),
    }
