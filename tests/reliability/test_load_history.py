"""The judge itself: a log with each known fault in it must be found guilty."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from support.histories.load import Sent
from support.histories.load_history import LoadHistory
from support.histories.messages import Place, make_body
from support.stores.records import encode_record
from support.stores.small import message

SEGMENT_BYTES = 16_384
Entry = tuple[str, int, int]
"""Name, queue id, queue offset."""

GOOD: list[Entry] = [("a", 0, 0), ("b", 1, 0), ("c", 0, 1), ("d", 0, 2)]


def write_log(directory: Path, entries: list[Entry], topic: str = "T") -> dict[str, Place]:
    """A commitlog of one segment with these messages; where each of them is."""
    directory.mkdir(parents=True, exist_ok=True)
    data = b""
    places = {}
    for name, queue_id, queue_offset in entries:
        place = Place(queue_id, queue_offset, len(data))
        places[name] = place
        made = message(make_body(name, 20), topic=topic, queue_id=queue_id)
        data += encode_record(made, queue_offset, len(data), 1)
    (directory / f"{0:020d}").write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))
    return places


def sent(name: str, code: int | None, place: Place | None = None) -> Sent:
    body = make_body(name, 20)
    return Sent(name, len(body), zlib.crc32(body), code, place)


@pytest.fixture
def history(tmp_path: Path) -> LoadHistory:
    """All four were acknowledged, and the log was good."""
    places = write_log(tmp_path, GOOD)
    history = LoadHistory("T")
    history.add(sent(name, 0, place) for name, place in places.items())
    history.check(tmp_path)
    return history


@pytest.mark.parametrize(
    ("entries", "finding"),
    [
        (GOOD[:3], "d was acknowledged"),
        ([*GOOD, ("d", 0, 3)], "d is stored 2 times"),
        ([*GOOD[:3], ("d", 0, 3)], "queue 0 is not dense"),
        ([*GOOD[:3], ("d", 0, 1)], "queue 0 is not dense"),
        ([*GOOD, ("stranger", 1, 1)], "stranger was never sent"),
        ([GOOD[1], GOOD[0], *GOOD[2:]], "was told Place"),
    ],
    ids=["lost", "twice", "a hole", "an offset given twice", "made up", "moved"],
)
def test_each_fault_of_a_log_is_found(
    history: LoadHistory, tmp_path: Path, entries: list[Entry], finding: str
) -> None:
    write_log(tmp_path, entries)
    with pytest.raises(AssertionError, match=finding):
        history.check(tmp_path)


def test_another_body_is_found(history: LoadHistory, tmp_path: Path) -> None:
    (segment,) = tmp_path.iterdir()
    data = bytearray(segment.read_bytes())
    data[88 + 30] ^= 1
    segment.write_bytes(data)
    with pytest.raises(AssertionError, match="a has another body"):
        history.check(tmp_path)


def test_what_was_cut_off_may_be_there_or_not_but_not_come_and_go(tmp_path: Path) -> None:
    history = LoadHistory("T")
    history.add([sent("a", None), sent("b", None)])
    write_log(tmp_path, [])
    history.check(tmp_path)
    write_log(tmp_path, [("b", 0, 0)])
    history.check(tmp_path)
    write_log(tmp_path, [("a", 0, 0)])
    with pytest.raises(AssertionError, match="b was at Place"):
        history.check(tmp_path)


def test_what_was_refused_must_not_be_there(tmp_path: Path) -> None:
    history = LoadHistory("T")
    history.add([sent("a", 14)])
    write_log(tmp_path, [("a", 0, 0)])
    with pytest.raises(AssertionError, match=r"a was refused \(14\)"):
        history.check(tmp_path)


def test_a_replica_needs_what_was_safe_and_nothing_else(tmp_path: Path) -> None:
    places = write_log(tmp_path, GOOD)
    history = LoadHistory("T")
    history.add(
        [sent("a", 0, places["a"]), sent("b", 0, places["b"]), sent("c", 11), sent("d", 12)]
    )
    write_log(tmp_path, GOOD[:2])
    history.check_replica(tmp_path)
    write_log(tmp_path, GOOD[:1])
    with pytest.raises(AssertionError, match=r"lacks 1 SEND_OK, the first \['b'\]"):
        history.check_replica(tmp_path)
