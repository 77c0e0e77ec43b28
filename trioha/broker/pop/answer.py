"""The answer to a pop, while it is put together."""

from __future__ import annotations

from typing import Final

import attrs

from trioha.broker.pop.handles import msg_offset_info, start_offset_info
from trioha.broker.pop.queue_reader import FoundMessages
from trioha.wire.remoting_command import ExtValue

NEVER: Final = 1 << 62


@attrs.define(eq=False)
class PopAnswer:
    """Messages that one pop has found so far."""

    buffers: list[memoryview] = attrs.field(factory=list)
    count: int = 0
    size: int = 0
    rest: int = 0
    """Messages that are left in the queues."""
    wake_ms: int = NEVER
    """Wall clock at which a queue that is blocked now is free."""
    start_offsets: list[str] = attrs.field(factory=list)
    msg_offsets: list[str] = attrs.field(factory=list)
    order_counts: list[str] = attrs.field(factory=list)
    pop_time: int = 0

    def add(self, found: FoundMessages) -> None:
        """Add what one queue has."""
        if found.offsets:
            key = found.key
            self.buffers += found.buffers
            self.count += len(found.offsets)
            self.size += found.size
            self.start_offsets.append(start_offset_info(key.topic, key.queue_id, found.offsets[0]))
            self.msg_offsets.append(msg_offset_info(key.topic, key.queue_id, found.offsets))

    def fields(self, invisible_ms: int, revive_queue: int) -> dict[str, ExtValue]:
        """Return the fields of the answer (PopMessageResponseHeader.java)."""
        fields: dict[str, ExtValue] = {
            "popTime": str(self.pop_time),
            "invisibleTime": str(invisible_ms),
            "reviveQid": str(revive_queue),
            "restNum": str(self.rest),
        }
        if self.count:
            fields["startOffsetInfo"] = ";".join(self.start_offsets)
            fields["msgOffsetInfo"] = ";".join(self.msg_offsets)
            if self.order_counts:
                fields["orderCountInfo"] = ";".join(self.order_counts)
        return fields
