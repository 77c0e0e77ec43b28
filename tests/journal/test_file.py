"""The journal on disk: what was written is read, whatever tore, flipped or filled up."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.errors import StoreLocked
from trioha.journal import EVENTS, EventLevel
from trioha.journal.file import (
    BUFFER_BYTES_MAX,
    FILES_MAX,
    FRAME,
    MAGIC,
    Damage,
    Event,
    JournalFile,
    journal_files,
    read_journal,
)
from trioha.log_lines import LineFormat, LogLines, Tee, logfmt_value, rfc3339


class Wall:
    """A clock that ticks a millisecond per look."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., JournalFile]:
    def make(**options: int) -> JournalFile:
        bytes_max = options.pop("bytes_max", 1 << 20)
        return JournalFile(tmp_path / "journal", "broker-a:0", Wall(), bytes_max=bytes_max)

    return make


def events_of(directory: Path) -> list[Event]:
    return [item for item in read_journal(directory) if isinstance(item, Event)]


def damages_of(directory: Path) -> list[Damage]:
    return [item for item in read_journal(directory) if isinstance(item, Damage)]


def journal_bytes(directory: Path, count: int) -> tuple[bytes, list[int]]:
    """Return one file of `count` events, and where each of its records begins."""
    journal = JournalFile(directory, "n", Wall(), bytes_max=1 << 20)
    for number in range(count):
        journal.event("ha_progress", peer="127.0.0.1:1", gap_bytes=number)
    journal.close()
    (path,) = journal_files(directory)
    data = path.read_bytes()
    starts = []
    position = len(MAGIC)
    while position < len(data):
        starts.append(position)
        position += FRAME.size + FRAME.unpack_from(data, position)[0]
    return data, starts[1:]  # the first names the writer of the file


def test_events_come_back_in_order_with_numbers_and_times(
    make: Callable[..., JournalFile],
) -> None:
    journal = make()
    journal.event("ha_connected", peer="127.0.0.1:1", offset=0)
    journal.event("write_resumed")
    journal.close()
    first, second = events_of(journal.directory)
    assert (first.sequence, first.name) == (0, "ha_connected")
    assert first.fields == {"peer": "127.0.0.1:1", "offset": 0}
    assert (second.sequence, second.fields) == (1, {})
    assert second.wall_ms > first.wall_ms > 1_700_000_000_000


def test_the_head_of_a_file_says_who_wrote_it(make: Callable[..., JournalFile]) -> None:
    journal = make()
    journal.event("write_resumed")
    journal.close()
    (path,) = journal_files(journal.directory)
    assert path.name == "00000000000000000000.journal"
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    length, _ = FRAME.unpack_from(data, len(MAGIC))
    start = len(MAGIC) + FRAME.size
    head = msgpack.unpackb(data[start : start + length])
    assert head["node"] == "broker-a:0"
    assert head["format"] == 1
    assert head["sequence"] == 0


def test_a_restart_begins_a_new_file_and_goes_on_counting(
    make: Callable[..., JournalFile],
) -> None:
    for _ in range(3):
        journal = make()
        journal.event("write_resumed")
        journal.event("write_resumed")
        journal.close()
    assert [event.sequence for event in events_of(journal.directory)] == list(range(6))
    assert [path.stem.lstrip("0") for path in journal_files(journal.directory)] == ["", "2", "4"]


def test_nothing_is_written_until_the_owner_flushes_and_it_is_told_once(tmp_path: Path) -> None:
    dirty = []
    journal = JournalFile(tmp_path, "n", Wall(), bytes_max=1 << 20)
    with journal.when_dirty(lambda: dirty.append(1)):
        journal.event("write_resumed")
        journal.event("write_resumed")
        assert dirty == [1]
        assert events_of(tmp_path) == []
        journal.flush_nowait()
        assert len(events_of(tmp_path)) == 2
        journal.event("write_resumed")
        assert dirty == [1, 1]
    journal.close()


def test_a_full_buffer_is_written_at_once(make: Callable[..., JournalFile]) -> None:
    journal = make()
    while not events_of(journal.directory):
        journal.event("task_failed", error="x" * 1000)
    assert sum(len(str(e.fields)) for e in events_of(journal.directory)) > BUFFER_BYTES_MAX * 0.9
    journal.close()


def test_size_is_bounded_and_the_oldest_goes_first(make: Callable[..., JournalFile]) -> None:
    bytes_max = 64 << 10
    journal = make(bytes_max=bytes_max)
    for number in range(5000):
        journal.event("ha_progress", peer="127.0.0.1:1", gap_bytes=number)
        if number % 10 == 0:
            journal.flush_nowait()
    journal.close()
    files = journal_files(journal.directory)
    assert len(files) == FILES_MAX
    assert sum(path.stat().st_size for path in files) <= bytes_max
    sequences = [event.sequence for event in events_of(journal.directory)]
    assert sequences == list(range(sequences[0], 5000))
    assert int(files[0].stem) == sequences[0]


def test_an_event_that_cannot_be_packed_is_kept_as_text(make: Callable[..., JournalFile]) -> None:
    journal = make()
    journal.event("task_failed", task="t", error=ValueError("broken"))
    journal.event("task_failed", task="t", error="\ud800")
    journal.event("task_failed", task="t", error=2**70)
    journal.event("task_failed", task="t", error="x" * 100_000)
    journal.close()
    errors = [event.fields["error"] for event in events_of(journal.directory)]
    assert errors[0] == "broken"
    assert errors[1] == "'\\ud800'"
    assert errors[2] == str(2**70)
    assert len(errors[3]) == 1024


def test_a_second_writer_is_refused(make: Callable[..., JournalFile]) -> None:
    journal = make()
    with pytest.raises(StoreLocked, match="in use by another process"):
        make()
    journal.close()
    make().close()


def test_events_after_the_end_are_forgotten(make: Callable[..., JournalFile]) -> None:
    journal = make()
    journal.close()
    journal.event("write_resumed")
    journal.flush_nowait()
    journal.close()
    assert journal_files(journal.directory) == []


# A full disk.


def test_a_full_disk_costs_events_but_never_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    journal = JournalFile(tmp_path, "n", Wall(), bytes_max=1 << 20, complain=lines.append)
    journal.event("write_refused", reason="disk")
    journal.flush_nowait()
    real = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) > 10:
            return real(fd, data[:10])  # the kernel takes what still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(3):
            journal.event("write_refused", reason="x" * (7 + 90))
            journal.flush_nowait()
    assert journal.dropped_count == 3
    journal.event("write_resumed")
    journal.close()
    names = [event.name for event in events_of(tmp_path)]
    assert names == ["write_refused", "write_resumed", "journal_dropped"]
    assert damages_of(tmp_path) == []  # the half records were cut off again
    assert len(lines) == 2


def test_a_disk_that_takes_nothing_is_said_once_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    journal = JournalFile(tmp_path, "n", Wall(), bytes_max=1 << 20, complain=lines.append)
    journal.event("node_started")
    journal.flush_nowait()

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for _ in range(3):
            journal.event("write_refused", reason="disk")
            journal.event("write_refused", reason="disk")
            journal.flush_nowait()
    assert journal.dropped_count == 6
    assert lines == [f"journal: cannot write to {tmp_path}: No space left on device"]
    journal.event("write_resumed")
    journal.close()
    assert lines[1:] == ["journal: writing again; 6 events are lost"]
    events = events_of(tmp_path)
    assert [event.name for event in events] == ["node_started", "write_resumed", "journal_dropped"]
    assert events[-1].fields["count"] == 6
    assert damages_of(tmp_path) == []


def test_a_disk_that_takes_no_new_file_keeps_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(FILES_MAX):
        journal = JournalFile(tmp_path, "n", Wall(), bytes_max=1 << 20)
        journal.event("node_started")
        journal.close()
    before = journal_files(tmp_path)

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    journal = JournalFile(tmp_path, "n", Wall(), bytes_max=1 << 20)
    for _ in range(20):
        journal.event("node_started")
        journal.flush_nowait()
    journal.close()
    assert journal_files(tmp_path) == before


# Damage.


def test_every_truncation_point_loses_only_what_was_cut(tmp_path: Path) -> None:
    data, starts = journal_bytes(tmp_path, 6)
    (path,) = journal_files(tmp_path)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        items = list(read_journal(tmp_path))
        whole = sum(end <= size for end in [*starts[1:], len(data)])
        assert [item.sequence for item in items if isinstance(item, Event)] == list(range(whole))
        on_border = size in (0, len(MAGIC), *starts, len(data))
        assert [item.reason for item in items if isinstance(item, Damage)] == (
            [] if on_border else ["torn tail"]
        )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_flipped_bit_costs_one_event_and_is_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("flip")
    content, starts = journal_bytes(directory, 12)
    position = data.draw(st.integers(starts[0], len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    journal_files(directory)[0].write_bytes(damaged)
    struck = sum(start <= position for start in starts) - 1
    items = list(read_journal(directory))
    sequences = [item.sequence for item in items if isinstance(item, Event)]
    assert sequences == [number for number in range(12) if number != struck]
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert damage.position == starts[struck]
    # A journal that goes on after the damage never uses a number twice.
    journal = JournalFile(directory, "n", Wall(), bytes_max=1 << 20)
    journal.event("write_resumed")
    journal.close()
    assert events_of(directory)[-1].sequence >= 12


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_a_fuss(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("any")
    for prefix in (b"", MAGIC):
        (directory / f"{0:020d}.journal").write_bytes(prefix + content)
        assert events_of(directory) == []


def test_files_that_are_no_journal_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.journal").write_text("mine")
    journal_bytes(tmp_path / "j", 1)
    assert journal_files(tmp_path) == []


# Lines.


def lines_of(line_format: LineFormat, level: EventLevel = EventLevel.DEBUG) -> str:
    stream = io.StringIO()
    log = LogLines(
        lambda: 1_700_000_000_123, node="n", stream=stream, line_format=line_format, level=level
    )
    log.event("ha_disconnected", peer="127.0.0.1:1", reason="closed by peer\nX")
    log.event("ha_progress", gap_bytes=7)
    return stream.getvalue()


def test_json_lines_carry_time_level_and_fields() -> None:
    first, second = map(json.loads, lines_of(LineFormat.JSON).splitlines())
    assert first == {
        "ts": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "event": "ha_disconnected",
        "node": "n",
        "peer": "127.0.0.1:1",
        "reason": "closed by peer\nX",
    }
    assert second["gap_bytes"] == 7


def test_logfmt_quotes_what_could_forge_a_line() -> None:
    first, second = lines_of(LineFormat.LOGFMT).splitlines()
    assert first == (
        "ts=2023-11-14T22:13:20.123Z level=warning event=ha_disconnected node=n"
        ' peer=127.0.0.1:1 reason="closed by peer\\nX"'
    )
    assert second.endswith("gap_bytes=7")


def test_console_lines_are_short_and_quiet_about_progress() -> None:
    text = lines_of(LineFormat.CONSOLE, EventLevel.INFO)
    assert text.count("\n") == 1
    assert re.match(r"\d\d:\d\d:\d\d\.123 WARNING ha_disconnected peer=127.0.0.1:1 reason=", text)


@given(st.text())
def test_no_value_breaks_a_logfmt_line(text: str) -> None:
    shown = logfmt_value(text)
    assert shown.isprintable()
    assert shown == text or json.loads(shown) == text


def test_a_closed_stderr_does_not_reach_the_node() -> None:
    stream = io.StringIO()
    log = LogLines(lambda: 0, stream=stream, line_format=LineFormat.AUTO)
    stream.close()
    log.event("write_refused", reason="disk")


def test_a_tee_feeds_every_sink(make: Callable[..., JournalFile]) -> None:
    journal, stream = make(), io.StringIO()
    log = LogLines(lambda: 0, stream=stream, line_format=LineFormat.LOGFMT)
    Tee(journal, log).event("write_resumed")
    journal.close()
    assert len(events_of(journal.directory)) == 1
    assert "write_resumed" in stream.getvalue()


def test_times_are_rfc_3339() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"


# The documented interface.

ROOT = Path(__file__).parents[2]


def documented_events() -> dict[str, list[str]]:
    """Name -> fields, from the tables of docs/journal.md."""
    text = (ROOT / "docs/journal.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}


def test_docs_and_code_agree_on_every_event() -> None:
    assert documented_events() == {name: list(kind.fields) for name, kind in EVENTS.items()}


def test_docs_and_code_agree_on_levels() -> None:
    text = (ROOT / "docs/journal.md").read_text()
    levels = dict(re.findall(r"^\| `(\w+)` \| (debug|info|warning|error) \|", text, re.MULTILINE))
    assert levels == {name: kind.level.name.lower() for name, kind in EVENTS.items()}


def written_events() -> list[tuple[str, str, set[str]]]:
    """(where, name, fields) of every ``….event("name", …)`` in the code."""
    found = []
    for path in sorted((ROOT / "trioha").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("event", "_append")
                and node.args
            ):
                continue
            names = [n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant)]
            fields = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            found += [(where, name, fields) for name in names if isinstance(name, str)]
    return found


def test_the_code_writes_only_documented_events_and_fields() -> None:
    written = written_events()
    assert len(written) > 20
    unknown = [
        f"{where}: {name} {sorted(fields)}"
        for where, name, fields in written
        if name not in EVENTS or not fields <= set(EVENTS[name].fields)
    ]
    assert unknown == []


def test_every_documented_event_is_written_somewhere() -> None:
    assert EVENTS.keys() - {name for _, name, _ in written_events()} == set()
