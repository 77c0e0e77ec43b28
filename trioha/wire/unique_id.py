"""The unique id in a property string, and the strings that differ from one another in nothing else.

The messages of one producer have the same properties but for the id that the producer makes for
each. `IdShape` recognises them: a broker that has parsed one string knows the next ones. A string
with KEYS has no shape, since keys differ as well.
"""

from __future__ import annotations

from typing import Final

UNIQ_KEY_START: Final = b"UNIQ_KEY\x01"
KEYS_START: Final = b"KEYS\x01"
_START_SIZE: Final = len(UNIQ_KEY_START)
PROPERTY_END: Final = 2


def id_place(properties: bytes) -> tuple[int, int]:
    """Return where the unique id begins and ends; -1 and -1 if there is none, or KEYS. HOT.

    The last of several counts, as in a map; an empty one counts nothing, and begins where it ends.
    """
    at = properties.rfind(UNIQ_KEY_START)
    # A name or value may end with that. The commonest place, the first one, needs no look.
    if at and (at < 0 or properties[at - 1] != PROPERTY_END):
        return -1, -1
    if properties.find(KEYS_START) >= 0:
        return -1, -1
    begin = at + _START_SIZE
    end = properties.find(b"\x02", begin)
    return begin, len(properties) if end < 0 else end


class IdShape:
    """The property strings that are `properties` but for the bytes from `begin` to `end`."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_size")

    def __init__(self, properties: bytes, begin: int, end: int) -> None:
        self._size = len(properties)
        self._begin = begin
        self._end = end
        self._before = properties[:begin]
        self._after = properties[end:]

    def id_of(self, properties: bytes) -> bytes | None:
        """Return the id in a string of this shape; None for any other string. HOT."""
        if (
            len(properties) != self._size
            or not properties.startswith(self._before)
            or not properties.endswith(self._after)
        ):
            return None
        unique_id = properties[self._begin : self._end]
        # The byte; for bytes, `in` first makes and drops a TypeError.
        return None if PROPERTY_END in unique_id else unique_id
