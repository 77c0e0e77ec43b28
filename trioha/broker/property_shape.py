"""The treatment of a property string, found once per shape.

Theory of operation. A send's properties are parsed, WAIT is taken out, CLUSTER is added, tags are
hashed, and it is looked for the few names that send the message another way. The strings of one
producer differ in nothing but the unique id of the message. So the id is cut out, and what is left,
the shape, is looked up: it tells which bytes to put around the id. A string without an id, or with
KEYS, which differ as well, has no shape and goes the long way; so does any that is not `is_plain`.

Most often a message has the properties of the message before, and then nothing is looked for or
looked up: `trioha.wire.unique_id` has the comparison. `BatchSender._entries` and
`Dispatcher._run_piece` compare in the same way.

Shapes are learned by sending a stand-in for the id the long way. They are bounded in number and
size, and may be forgotten at any time.
"""

from __future__ import annotations

from typing import Final

from trioha.broker.message_fields import is_true, tags_code
from trioha.errors import RemoteProtocolError
from trioha.wire.properties import (
    CLUSTER,
    DELAY,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from trioha.wire.timers import is_timer
from trioha.wire.unique_id import IdShape, id_place

_TIMER_START: Final = b"TIMER_DELIVER_MS\x01"

_STAND_IN: Final = "\x03unique id\x03"
_STAND_IN_BYTES: Final = b"\x03unique id\x03"
_SHAPES_MAX: Final = 1024
_SHAPE_BYTES_MAX: Final = 512


class PropertyShape:
    """The treatment of every property string of one shape."""

    __slots__ = ("head", "is_plain", "tags_code", "tail", "wait")

    def __init__(
        self, is_plain: bool, wait: bool = True, tags: int = 0, head: bytes = b"", tail: bytes = b""
    ) -> None:
        self.is_plain = is_plain
        """Stored with `head` before the id and `tail` behind, in the topic that the send names."""
        self.wait = wait
        self.tags_code = tags
        self.head = head
        self.tail = tail


class PropertyShapes:
    """The shapes of one broker's sends; `cluster` is what is added to each.

    `cluster` is empty for the messages of a batch, which keep WAIT and get theirs from the batch.
    """

    def __init__(self, cluster: str) -> None:
        self.known: dict[bytes, PropertyShape] = {}
        """Shapes by the string without the id. Look here first, then `learn`."""
        self.last = PropertyShape(False)
        """The shape of the string that `id_of` was last given."""
        self._like_last: IdShape | None = None
        self._cluster = cluster

    def id_of(self, properties: bytes) -> bytes | None:
        """Return the unique id of a string and let `last` be its shape; None if it has none. HOT.

        Errors: RemoteProtocolError for what is not UTF-8.
        """
        like_last = self._like_last
        if like_last is not None:
            unique_id = like_last.id_of(properties)
            if unique_id is not None:
                return unique_id
        begin, end = id_place(properties)
        if begin >= end:
            return None
        before, after = properties[:begin], properties[end:]
        shape = self.known.get(before + after)
        if shape is None:
            shape = self.learn(before, after)
        self.last, self._like_last = shape, IdShape(properties, begin, end)
        return properties[begin:end]

    def learn(self, before: bytes, after: bytes) -> PropertyShape:
        """The shape of the strings that have `before` and `after` around their id.

        Errors: RemoteProtocolError for what is not UTF-8.
        """
        try:
            text = (before + _STAND_IN_BYTES + after).decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"properties that are not UTF-8: {error}") from None
        shape = self._shape_of(text)
        # Each message has another delivery time.
        is_rare = _TIMER_START in before or _TIMER_START in after
        if len(before) + len(after) <= _SHAPE_BYTES_MAX and not is_rare:
            if len(self.known) >= _SHAPES_MAX:
                self.known.clear()
            self.known[before + after] = shape
        return shape

    def _shape_of(self, text: str) -> PropertyShape:
        properties = decode_properties(text)
        if (
            DELAY in properties
            or TRAN_MSG in properties
            or is_timer(properties)
            or properties.get(UNIQ_KEY) != _STAND_IN
        ):
            return PropertyShape(False)
        tags = tags_code(properties)
        if not self._cluster:
            return PropertyShape(True, True, tags)
        wait = is_true(properties.pop(WAIT, "true"))
        properties[CLUSTER] = self._cluster
        stored = encode_properties(properties)
        head, _, tail = stored.partition(_STAND_IN_BYTES)
        return PropertyShape(_STAND_IN_BYTES not in tail, wait, tags, head, tail)
