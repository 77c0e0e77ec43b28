"""Receipt handles and the offsets of a pop's answer (ExtraInfoUtil.java, KeyBuilder.java).

A handle is text, parts with a space between them::

    start offset, pop time, invisible time, revive queue, retry, broker, queue, offset

`retry` is 0 for the topic itself, 1 for the retry topic ``%RETRY%group_topic``, 2 for the retry
topic ``%RETRY%group+topic`` of enableRetryTopicV2. Clients put the handle of a message together
from the fields `startOffsetInfo` and `msgOffsetInfo`; a proxy adds the offset in the log.

Revive queue 999 marks an ordered pop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode
from trioha.wire.names import RETRY_PREFIX, retry_topic

ORDER_REVIVE_QUEUE: Final = 999
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
HANDLE_CHARS_MAX: Final = 1_024
"""Eight numbers and the name of a broker."""
_INT64: Final = 2**63


@attrs.frozen
class Handle:
    """One message that a client received, as its acknowledgement names it."""

    start_offset: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def encode(self, offset: int) -> str:
        """Return the handle of the message at a queue offset."""
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_ms} {self.revive_queue} "
            f"{self.retry} {self.broker_name} {self.queue_id} {offset}"
        )


def parse_handle(text: str) -> Handle:
    """Read a handle. Errors: CommandError(INVALID_PARAMETER) when it is none."""
    parts = text[: HANDLE_CHARS_MAX + 1].split(" ")
    if len(text) > HANDLE_CHARS_MAX or len(parts) < 6:
        raise _invalid(text)
    try:
        start, pop_time, invisible, revive = map(int, parts[:4])
        queue_id = int(parts[6]) if len(parts) > 6 else 0
    except ValueError:
        raise _invalid(text) from None
    if any(not 0 <= number < _INT64 for number in (start, pop_time, invisible, revive, queue_id)):
        raise _invalid(text)
    return Handle(start, pop_time, invisible, revive, parts[4], parts[5], queue_id)


def _invalid(text: str) -> CommandError:
    return CommandError(
        ResponseCode.INVALID_PARAMETER,
        f"extraInfo {text!r:.80} is no receipt handle: pass the POP_CK of the message unchanged",
    )


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Return where a group's popped messages of a topic wait to be delivered again.

    The first without enableRetryTopicV2, the second with it. Group ``a`` with topic ``b_c`` and
    group ``a_b`` with topic ``c`` share the first; the second is theirs alone.
    """
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def normal_topic(topic: str, group: str) -> str:
    """Return the topic itself, given it or the retry topic of the group for it."""
    prefix = retry_topic(group)
    if topic.startswith((f"{prefix}_", f"{prefix}+")):
        return topic[len(prefix) + 1 :]
    return topic


def retry_mark(topic: str) -> str:
    """Return the handle's `retry` for a topic that was popped from."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def topic_of_mark(topic: str, group: str, mark: str) -> str:
    """Return the topic that was popped from, given the topic itself and the `retry` of a handle.

    Errors: CommandError(INVALID_PARAMETER) for another mark.
    """
    if mark == NORMAL:
        return topic
    if mark in (RETRY_V1, RETRY_V2):
        return pop_retry_topics(topic, group)[mark == RETRY_V2]
    raise CommandError(ResponseCode.INVALID_PARAMETER, f"retry {mark!r:.20} is not 0, 1 or 2")


def start_offset_info(topic: str, queue_id: int, start_offset: int) -> str:
    return f"{retry_mark(topic)} {queue_id} {start_offset}"


def msg_offset_info(topic: str, queue_id: int, offsets: Sequence[int]) -> str:
    return f"{retry_mark(topic)} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(topic: str, queue_id: int, offset: int, times: int) -> str:
    """Return how often the message at a queue offset was delivered before."""
    return f"{retry_mark(topic)} qo{queue_id}%{offset} {times}"


def queue_count_info(topic: str, queue_id: int, times: int) -> str:
    """Return the same for the whole queue, as the oldest clients of POP read it."""
    return f"{retry_mark(topic)} {queue_id} {times}"
