"""Plain records of a window of the log, judged all at once.

Theory of operation. A record states its size, so a loop that reads nothing else finds where each
one begins: `record_begins`, which may be compiled. Everything that makes a record sound is then
judged by NumPy over all of them: magic, PHYSICALOFFSET, body, topic and properties that fill the
size exactly, and in a DLEDGER log the entry's header. The first record that fails ends the run:
`LogWalk` judges it, and by the same rules. Hosts are IPv4 in a plain record, and all of its bytes
lie in the window.
"""

from __future__ import annotations

import attrs
import numpy as np
from librt.strings import read_i32_be
from numpy.typing import NDArray

from trioha.wire.record import MAGIC, SCAN_SIZE
from trioha.wire.record_chain import record_begins

_FLAGS_AT = 36
_V6 = 0x30
_RECORD_ENTRY = 1
_RUN_MIN, _RUN_MAX = 16, 16_384
_HEAD = {
    "size": ("u4", 0),
    "magic": ("u4", 4),
    "phy_offset": ("i8", 28),
    "sys_flag": ("i4", 36),
    "body_size": ("i4", 84),
}
_ENTRY = {"kind": ("u4", 0), "entry_size": ("u4", 4), "stated": ("i8", 24)}


def _head_type(lead: int) -> np.dtype[np.void]:
    """The header of a record, `lead` bytes of an entry before it."""
    fields = {name: (f">{kind}", place + lead) for name, (kind, place) in _HEAD.items()}
    if lead:
        fields |= {name: (f">{kind}", place) for name, (kind, place) in _ENTRY.items()}
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for kind, _ in fields.values()],
            "offsets": [place for _, place in fields.values()],
            "itemsize": lead + SCAN_SIZE,
        }
    )


@attrs.frozen(eq=False)
class PlainRecords:
    """Records that follow one another; all positions are in the window."""

    heads: NDArray[np.void]
    begins: NDArray[np.int64]
    """Position at which the record begins, or its entry in a DLEDGER log."""
    body_at: NDArray[np.int64]
    body_end: NDArray[np.int64]
    topic_end: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begins)

    def first(self, count: int) -> PlainRecords:
        """Return the first `count` records."""
        return self._picked(slice(count))

    def only(self, mask: NDArray[np.bool_]) -> PlainRecords:
        """Return the records that are marked."""
        return self._picked(mask)

    def _picked(self, which: slice | NDArray[np.bool_]) -> PlainRecords:
        places = (self.begins, self.body_at, self.body_end, self.topic_end, self.ends)
        return PlainRecords(self.heads[which], *[column[which] for column in places])


class PlainReader:
    """Reads runs of plain records; `lead` bytes of an entry stand before each."""

    def __init__(self, lead: int) -> None:
        self._lead = lead
        self._type = _head_type(lead)
        self._run = _RUN_MAX

    def read(self, window: bytes, window_at: int, begin: int, stop: int) -> PlainRecords | None:
        """The plain records that follow one another from `begin` on and begin before `stop`.

        `window_at` is the offset in the log of the window's first byte. None when there is none.
        """
        begins = self._begins(window, begin, stop)
        if not len(begins):
            return None
        found = self._judged(window, window_at, begins)
        # If plain records are few, a long look ahead at each of them would take quadratic time.
        is_whole = len(found) == len(begins)
        self._run = min(_RUN_MAX, 4 * self._run) if is_whole else max(_RUN_MIN, 2 * len(found))
        return found if len(found) else None

    def _begins(self, window: bytes, begin: int, stop: int) -> NDArray[np.int64]:
        """Return the positions at which records begin, if every size is right."""
        lead = self._lead
        stop = min(stop, len(window) - lead - SCAN_SIZE + 1)
        if begin >= stop or read_i32_be(window, begin + lead + _FLAGS_AT) & _V6:
            return np.empty(0, np.int64)
        return np.frombuffer(record_begins(window, begin, stop, self._run, lead), "<i8")

    def _judged(self, window: bytes, window_at: int, begins: NDArray[np.int64]) -> PlainRecords:
        lead, data = self._lead, np.frombuffer(window, np.uint8)
        places = len(window) - lead - SCAN_SIZE + 1
        # Bare bytes are kept, for of a type with fields NumPy copies only these.
        stride = lead + SCAN_SIZE
        bare = np.ndarray((places,), f"V{stride}", window, strides=(1,))[begins]
        heads = bare.view(self._type)
        size = heads["size"].astype(np.int64)
        body_at = begins + (lead + SCAN_SIZE)
        body_end = body_at + heads["body_size"]
        ends = begins + lead + size
        last = len(window) - 1
        is_in = (body_end >= body_at) & (ends <= last + 1) & (body_end + 3 <= ends)
        topic_end = body_end + 1 + data[np.clip(body_end, 0, last)]
        at = np.clip(topic_end, 0, last - 1)
        properties_size = data[at].astype(np.int64) << 8 | data[at + 1]
        is_sound = (
            is_in
            & (heads["magic"] == MAGIC)
            & (heads["phy_offset"] == begins + (window_at + lead))
            & (heads["sys_flag"] & _V6 == 0)
            & (topic_end + 2 + properties_size == ends)
        )
        if lead:
            is_sound &= (
                (heads["kind"] == _RECORD_ENTRY)
                & (heads["entry_size"] == size + lead)
                & (heads["stated"] == begins + window_at)
            )
        found = PlainRecords(bare, begins, body_at, body_end, topic_end, ends)
        return found if is_sound.all() else found.first(int(np.argmin(is_sound)))
