from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trioha.errors import DiskFull, StoreError
from trioha.store.two_slot_file import TwoSlotFile


def stem(tmp_path: Path) -> Path:
    return tmp_path / "epochs"


def test_at_first_there_is_nothing_and_nothing_is_made(tmp_path: Path) -> None:
    assert TwoSlotFile(stem(tmp_path)).payload is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_saved_last_is_what_is_read(tmp_path: Path) -> None:
    for payload in (b"one", b"", b"three", b"4" * 5000, b"five"):
        file = TwoSlotFile(stem(tmp_path))
        file.save(payload)
        assert file.payload == TwoSlotFile(stem(tmp_path)).payload == payload
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs.0", "epochs.1"]


@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_save_torn_at_any_byte_leaves_the_one_before_or_itself(
    tmp_path: Path, before: int
) -> None:
    file = TwoSlotFile(stem(tmp_path))
    for number in range(before):
        file.save(b"before %d" % number)
    old = {path: path.read_bytes() for path in tmp_path.iterdir()}
    file.save(b"the newest")
    changed = [path for path in tmp_path.iterdir() if path.read_bytes() != old.get(path)]
    assert len(changed) == 1
    whole = changed[0].read_bytes()
    for size in range(len(whole) + 1):
        # In any order of sectors: what is missing may be zeros as well.
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            changed[0].write_bytes(torn)
            found = TwoSlotFile(stem(tmp_path))
            assert found.payload == (
                b"the newest" if torn == whole else b"before %d" % (before - 1)
            )
            assert found.damaged == ([] if torn == whole else changed)


def test_a_node_whose_slots_are_both_damaged_does_not_guess(tmp_path: Path) -> None:
    file = TwoSlotFile(stem(tmp_path))
    for payload in (b"one", b"two"):
        file.save(payload)
    for path in tmp_path.iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with pytest.raises(StoreError, match=r"epochs\.0 and its other slot cannot be read; restore"):
        TwoSlotFile(stem(tmp_path))


def test_a_damaged_slot_is_the_next_one_written(tmp_path: Path) -> None:
    file = TwoSlotFile(stem(tmp_path))
    for payload in (b"one", b"two"):
        file.save(payload)
    (tmp_path / "epochs.1").write_bytes(b"")
    file = TwoSlotFile(stem(tmp_path))
    assert (file.payload, file.damaged) == (b"one", [tmp_path / "epochs.1"])
    file.save(b"three")
    found = TwoSlotFile(stem(tmp_path))
    assert (found.payload, found.damaged) == (b"three", [])


def test_a_save_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TwoSlotFile(stem(tmp_path))
    for payload in (b"one", b"two"):
        file.save(payload)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DiskFull, match=r"cannot write .*epochs\.0"):
            file.save(b"three")
    assert file.payload == b"two"
    file.save(b"four")
    assert TwoSlotFile(stem(tmp_path)).payload == b"four"
