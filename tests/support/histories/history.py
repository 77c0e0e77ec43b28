"""Does a log hold what its clients were told? Read by an own reading of the format.

A history knows every message of a cluster's life and what its sender was told. `check` reads a
master's log and demands: what was acknowledged is there once, where the answer said, with its body;
what was cut off is there once or not at all; what was refused is not there; queue offsets are dense
and given once; and what was there at the last check still is, at the same place.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from support.histories.commitlog import BLANK_MAGIC, MESSAGE_MAGIC, segments
from support.histories.load import Place, Sent, name_of
from trioha.wire.codes import ResponseCode

_FIXED = struct.Struct(">IIIiiqqiq8sq8siqi")
_FINDINGS_SHOWN = 12


@attrs.frozen
class Stored:
    """One record of a log."""

    name: str
    size: int
    crc: int
    place: Place


def stored_messages(commitlog: Path, topic: str) -> Iterator[Stored]:
    """The records of one topic, from the first segment to the first hole."""
    for segment in segments(commitlog):
        base = int(segment.name)
        data = segment.read_bytes()
        position = 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">II", data, position)
            if magic == BLANK_MAGIC:
                break
            if magic != MESSAGE_MAGIC:
                return
            fields = _FIXED.unpack_from(data, position)
            queue_id, queue_offset, phy_offset = fields[3], fields[5], fields[6]
            body_at = position + _FIXED.size
            topic_at = body_at + fields[14]
            if data[topic_at + 1 : topic_at + 1 + data[topic_at]].decode() == topic:
                assert phy_offset == base + position, f"record at {base + position}: {phy_offset}"
                body = data[body_at:topic_at]
                place = Place(queue_id, queue_offset, phy_offset)
                yield Stored(name_of(body), len(body), zlib.crc32(body), place)
            position += size


class History:
    """Everything sent to one topic of one replica set."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.unknown = 0
        self._sent: dict[str, Sent] = {}
        self._places: dict[str, Place] = {}

    def add(self, sent: Iterable[Sent]) -> None:
        for message in sent:
            assert message.name not in self._sent, message.name
            self._sent[message.name] = message
            self.acknowledged += message.stored
            self.unknown += message.code is None

    def check(self, commitlog: Path) -> None:
        """Judge the log of a master. Errors: AssertionError with the first findings."""
        findings: list[str] = []
        seen: dict[str, Place] = {}
        queues: dict[int, list[int]] = defaultdict(list)
        for stored in stored_messages(commitlog, self.topic):
            queues[stored.place.queue_id].append(stored.place.queue_offset)
            sent = self._sent.get(stored.name)
            if sent is None:
                findings.append(f"{stored.name} was never sent")
            elif stored.name in seen:
                findings.append(f"{stored.name} is at {seen[stored.name]} and at {stored.place}")
            elif (stored.size, stored.crc) != (sent.size, sent.crc):
                findings.append(f"{stored.name} has another body")
            elif sent.code is not None and not sent.stored:
                findings.append(f"{stored.name} was refused with {sent.code} and is stored")
            elif sent.place is not None and not _agree(sent.place, stored.place):
                findings.append(f"{stored.name}: told {sent.place}, is at {stored.place}")
            seen[stored.name] = stored.place
        findings += [
            f"{name} was acknowledged with {sent.code} for {sent.place} and is lost"
            for name, sent in self._sent.items()
            if sent.stored and name not in seen
        ]
        for name, place in self._places.items():
            if seen.get(name) != place:
                findings.append(f"{name} was at {place} and now is at {seen.get(name)}")
        for queue_id, offsets in queues.items():
            if offsets != list(range(len(offsets))):
                findings.append(f"queue {queue_id} is not dense: {_first_gap(offsets)}")
        shown = "\n  ".join(findings[:_FINDINGS_SHOWN])
        assert not findings, f"{commitlog}: {len(findings)} finding(s)\n  {shown}"
        self._places = seen

    def check_replica(self, commitlog: Path) -> None:
        """A slave's log holds every message that a SYNC_MASTER has answered with SEND_OK."""
        held = {stored.name: stored.place for stored in stored_messages(commitlog, self.topic)}
        missing = [
            name
            for name, sent in self._sent.items()
            if sent.code == ResponseCode.SUCCESS and name not in held
        ]
        assert not missing, f"{commitlog} lacks {len(missing)} SEND_OK, the first {missing[:5]}"


def _agree(told: Place, found: Place) -> bool:
    return (told.queue_id, told.queue_offset) == (found.queue_id, found.queue_offset) and (
        told.phy_offset in (-1, found.phy_offset)
    )


def _first_gap(offsets: list[int]) -> str:
    for index, offset in enumerate(offsets):
        if index != offset:
            return f"record {index} has offset {offset}"
    return ""
