"""Frames into bytes and back, byte by byte cut, damaged, and jumped about in."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.fakes.raw_answers import RawCluster
from support.stores.recordings import BOMBS, HEAD, record_of

from trioha.cli.record import facts_in_words, recording_facts
from trioha.errors import TriohaError
from trioha.watch.marks import ROLE, Mark
from trioha.watch.recording import KEY_FRAMES, MAGIC, Encoder, FrameKind, Recording, open_recording
from trioha.watch.replay import Replay
from trioha.watch.snapshot import ClusterSnapshot

FACTS = {"namesrvs": ["10.0.0.9:9876"], "interval_ms": 1000}


def recorded(count: int) -> tuple[bytes, list[dict[str, Any]], list[int]]:
    """A file of `count` seconds in which the log grows, the frames, and where each record ends."""
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    encoder = Encoder()
    data = encoder.begin(cluster.wall_ms, FACTS)
    frames, ends = [], [len(data)]
    for number in range(count):
        cluster.statuses[master]["max_phy_offset"] = 4096 + number
        cluster.tick()
        raw = cluster.raw()
        frames.append(raw)
        data += encoder.frame(raw)
        ends.append(len(data))
    return data, frames, ends


def test_every_frame_comes_back_forwards_and_backwards() -> None:
    data, frames, _ = recorded(2 * KEY_FRAMES + 7)
    recording = Recording(data)
    assert recording.head["namesrvs"] == FACTS["namesrvs"]
    assert [entry.kind for entry in recording.frames].count(FrameKind.KEY) == 3
    numbers = list(range(len(frames)))
    for number in numbers + numbers[::-1]:
        assert recording.raw(number) == frames[number]
    assert not recording.is_cut
    assert list(recording.raws(3, 5)) == frames[3:6]


def test_a_moment_has_the_frame_that_was_current_then() -> None:
    data, frames, _ = recorded(10)
    recording = Recording(data)
    third = frames[3]["at_wall_ms"]
    assert recording.number_at(third) == 3
    assert recording.number_at(third + 999) == 3
    assert recording.number_at(0) == 0
    assert recording.number_at(2**62) == 9


def test_a_file_cut_anywhere_reads_up_to_its_last_whole_frame() -> None:
    data, frames, ends = recorded(4)
    for length in range(ends[1], len(data)):
        recording = Recording(data[:length])
        whole = sum(end <= length for end in ends) - 1
        assert len(recording.frames) == whole
        assert recording.raw(whole - 1) == frames[whole - 1]
        assert recording.is_cut is (length not in ends)


def test_a_file_without_a_whole_frame_is_told_apart_from_what_is_none() -> None:
    data, _, ends = recorded(1)
    for length in range(len(MAGIC), ends[1]):
        with pytest.raises(TriohaError, match="without a single whole frame"):
            Recording(data[:length])
    for other in (b"", b"TRIOHAJ1", b"\x00" * 100):
        with pytest.raises(TriohaError, match="no recording of trioha"):
            Recording(other)


def test_frames_that_build_on_damage_are_left_out_until_the_next_key() -> None:
    data, frames, ends = recorded(KEY_FRAMES + 5)
    broken = bytearray(data)
    broken[ends[10] + 30] ^= 0xFF
    recording = Recording(bytes(broken))
    assert [flaw.reason for flaw in recording.flaws] == ["damaged"]
    assert not recording.is_cut
    seen = [recording.raw(number) for number in range(len(recording.frames))]
    assert seen == frames[:10] + frames[KEY_FRAMES:]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_invents_a_frame(draw: st.DataObject) -> None:
    data, frames, ends = recorded(8)
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(ends[0], len(data) - 1))
        broken[place] = draw.draw(st.integers(0, 255))
    try:
        recording = Recording(bytes(broken))
    except TriohaError:
        return
    for number in range(len(recording.frames)):
        assert recording.raw(number) in frames


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a:1", "b:2", "c:3"]),
            st.dictionaries(st.sampled_from(["status", "topics"]), st.integers(0, 3), max_size=2),
            max_size=3,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_comes_and_goes_comes_back(rounds: list[dict[str, dict[str, int]]]) -> None:
    encoder = Encoder()
    data = encoder.begin(0, {})
    frames = []
    for number, told in enumerate(rounds):
        raw = {
            "version": 1,
            "at_wall_ms": number,
            "namesrvs": [],
            "members": {address: {"id": 0} for address in told},
            "answers": {
                address: {
                    key: {"value": value, "wall_ms": number, "error": ""}
                    for key, value in answers.items()
                }
                for address, answers in told.items()
            },
        }
        frames.append(copy.deepcopy(raw))
        data += encoder.frame(raw)
    recording = Recording(data)
    assert [recording.raw(number) for number in range(len(frames))] == frames


def test_marks_lie_between_the_frames(tmp_path: Path) -> None:
    data, frames, _ = recorded(2)
    encoder = Encoder()
    mark = Mark(frames[1]["at_wall_ms"], ROLE, "broker-a", "broker-a: b is master now", 1)
    newer = attrs.asdict(mark) | {"colour": "red"}
    data += encoder.mark(mark)
    path = tmp_path / "r"
    path.write_bytes(data)
    recording = open_recording(path)
    assert recording.marks == [mark]
    assert recording.size == len(data)
    assert newer["kind"] == "role"


def test_what_is_told_again_and_is_the_same_costs_little() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    queues = [[number, 0, 10**6 + number, 1] for number in range(10_000)]
    encoder = Encoder()
    cluster.say("10.0.1.1:10911", "topic_stats/T", queues)
    first = encoder.frame(cluster.raw())
    cluster.tick()
    cluster.say("10.0.1.1:10911", "topic_stats/T", list(queues))
    second = encoder.frame(cluster.raw())
    assert len(second) < 1500 < len(first) / 10


def test_a_file_of_another_format_says_which(tmp_path: Path) -> None:
    data = Encoder().begin(0, {"format": 9})
    with pytest.raises(TriohaError, match="has format 9, this trioha reads 1"):
        Recording(data)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(TriohaError, match="an empty file"):
        open_recording(empty)


@pytest.mark.parametrize("kind", [FrameKind.HEAD, FrameKind.KEY, FrameKind.MARK])
@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_record_that_unpacks_to_gigabytes_is_damage(bomb: str, kind: FrameKind) -> None:
    """A process of its own reads it, whose memory has a limit."""
    begin, unit, count = BOMBS[bomb]
    file = HEAD + record_of(kind, begin + unit * count) + recorded(2)[0][len(MAGIC) :]
    assert len(file) < 1 << 20
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "from trioha.errors import TriohaError\n"
        "from trioha.watch.recording import Recording\n"
        "try:\n"
        "    recording = Recording(sys.stdin.buffer.read())\n"
        "    print(len(list(recording.raws(0, len(recording.frames) - 1))), len(recording.marks))\n"
        "except TriohaError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=file, capture_output=True)
    assert done.stderr == b""
    said = done.stdout.decode().strip()
    assert said == "2 0" or "has format None" in said


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["format", "at_wall_ms", "answers", "gone", "members", "namesrvs", "kind", "text", "level"]
)

MARKS = st.fixed_dictionaries(
    {
        "wall_ms": st.just(1_700_000_000_000) | ANYTHING,
        "kind": st.just(ROLE) | ANYTHING,
        "subject": st.text(max_size=5),
        "text": st.text(max_size=5) | ANYTHING,
        "level": st.integers(-1, 3) | ANYTHING,
    }
)
SOUND = Mark(1_700_000_000_000, ROLE, "broker-a", "b is master now", 1)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(FrameKind),
            ANYTHING | st.dictionaries(FIELDS, ANYTHING, max_size=9) | MARKS,
            st.integers(0, 2**64 - 1) | st.just(1_700_000_000_000),
        ),
        max_size=6,
    ),
    st.booleans(),
)
@example([(FrameKind.MARK, attrs.asdict(SOUND) | {"level": level}, 1) for level in (1, 3)], True)
def test_what_a_recording_of_a_stranger_holds_raises_nothing_but_our_error(
    records: list[tuple[FrameKind, Any, int]], has_frame: bool
) -> None:
    file = HEAD + (recorded(1)[0][len(MAGIC) :] if has_frame else b"")
    for kind, body, wall_ms in records:
        file += record_of(kind, msgpack.packb(body), wall_ms)
    try:
        recording = Recording(file)
        facts_in_words(recording_facts(recording, Path("x")))
    except TriohaError:
        return
    replay = Replay(recording)
    assert all(mark.level in (0, 1, 2) for mark in replay.marks)
    for raw in recording.raws(0, len(recording.frames) - 1):
        snapshot = ClusterSnapshot.of(raw)
        _ = snapshot.topics, snapshot.groups  # each looks at the answers when it is asked for
