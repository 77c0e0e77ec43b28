"""The recorder's file: refused, replaced, rotated; and what ends it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import attrs
import pytest
import trio
from support.fakes.raw_answers import RawCluster

from trioha.client.recorder import RecordingFile, RecordOptions, earlier_file, record
from trioha.errors import TriohaError
from trioha.watch.marks import NODE, Mark
from trioha.watch.recording import open_recording


def options(path: Path) -> RecordOptions:
    return RecordOptions(path=path, namesrv="127.0.0.1:1", interval_s=0.1, timeout_s=0.5)


@pytest.mark.parametrize("taken", ["r", "r.1"])
def test_what_is_there_is_not_overwritten_unless_asked_to(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(TriohaError, match="is there already; --overwrite replaces it"):
        RecordingFile(options(tmp_path / "r"), 1)
    assert (tmp_path / taken).read_text() == "precious"
    RecordingFile(attrs.evolve(options(tmp_path / "r"), overwrite=True), 1).close()
    assert {path.name for path in tmp_path.iterdir()} == {"r"}


def test_a_full_file_makes_room_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "r"
    file = RecordingFile(attrs.evolve(options(path), size_max=20_000), 1)
    cluster = RawCluster()
    cluster.add_set("broker-a")
    times = []
    while file.file_count < 4:
        cluster.tick()
        file.frame(cluster.raw())
        file.mark(Mark(cluster.wall_ms, NODE, "s", "t", 0))
        times.append(cluster.wall_ms)
    file.close()
    assert {one.name for one in tmp_path.iterdir()} == {"r", "r.1"}
    earlier, last = open_recording(earlier_file(path)), open_recording(path)
    assert 20_000 <= earlier.size < 25_000
    kept = [entry.wall_ms for entry in earlier.frames + last.frames]
    assert kept == times[-len(kept) :]
    assert len(earlier.marks) == len(earlier.frames)
    assert last.raw(0)["at_wall_ms"] == times[-1]


def test_a_full_disk_is_told_with_the_file_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r"
    file = RecordingFile(options(path), 1)
    cluster = RawCluster()
    cluster.add_set("broker-a")
    file.frame(cluster.raw())
    write, sizes = os.write, list[int]()

    def half(handle: int, data: bytes) -> int:
        sizes.append(len(data))
        if len(sizes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    cluster.tick()
    with pytest.raises(OSError, match="No space left on device") as raised:
        file.frame(cluster.raw())
    assert raised.value.filename == str(path)
    monkeypatch.undo()
    file.close()
    recording = open_recording(path)
    assert (len(recording.frames), recording.is_cut) == (1, True)


async def test_a_cluster_that_does_not_answer_is_recorded_as_such(tmp_path: Path) -> None:
    marks: list[Mark] = []
    shutdown = trio.Event()
    with trio.fail_after(20):
        done = await record(
            attrs.evolve(options(tmp_path / "r"), for_s=0.5), shutdown, on_mark=marks.append
        )
    recording = open_recording(tmp_path / "r")
    assert len(recording.frames) == done.frame_count > 0
    answers = recording.raw(done.frame_count - 1)["answers"]
    assert "refused" in answers["127.0.0.1:1"]["cluster"]["error"]


async def test_it_stops_when_told_to_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    shutdown = trio.Event()
    path = tmp_path / "r"
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(record, options(path), shutdown)
            while not path.exists() or path.stat().st_size < 1000:
                await trio.lowlevel.checkpoint()
            assert not open_recording(path).flaws
            shutdown.set()
    assert open_recording(path).frames
