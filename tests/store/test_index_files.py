from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.stores.small import dispatch_all, message, open_store, small_config

from trioha.store.index_file import IndexFile
from trioha.store.index_files import keys_of
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire.java_hash import index_key_hash
from trioha.wire.properties import decode_properties
from trioha.wire.record import decode_record

NAME = "20260102030405006"


@pytest.fixture
def file(config: StoreConfig) -> IndexFile:
    config.index_path.mkdir(parents=True)
    file = IndexFile(config, config.index_path / NAME)
    file.create()
    return file


def add(file: IndexFile, key_hash: int, phy_offset: int, timestamp: int) -> None:
    assert file.add([(phy_offset, timestamp, "T", b"k")], [key_hash], 0) == 1


def found(file: IndexFile, key_hash: int, begin: int = 0, end: int = 1 << 60) -> list[int]:
    return list(file.find(key_hash, begin, end))


def test_the_file_is_laid_out_as_rocketmq_does(config: StoreConfig, file: IndexFile) -> None:
    key_hash = index_key_hash("T", "k1")
    add(file, key_hash, 700, 5000)
    add(file, key_hash, 900, 8500)
    file.save()
    data = file.path.read_bytes()
    assert len(data) == 40 + 16 * 4 + 12 * 20
    assert struct.unpack_from(">qqqqii", data) == (5000, 8500, 700, 900, 1, 3)
    slot_at = 40 + key_hash % 16 * 4
    assert struct.unpack_from(">i", data, slot_at) == (2,)
    assert struct.unpack_from(">iqii", data, 40 + 64 + 20) == (key_hash, 700, 0, 0)
    assert struct.unpack_from(">iqii", data, 40 + 64 + 40) == (key_hash, 900, 3, 1)


def test_the_newest_is_found_first(file: IndexFile) -> None:
    for number in range(5):
        add(file, 77, number * 100, 1000 * number)
        add(file, 77 + 16, number * 100 + 50, 1000 * number)  # the same slot
    assert found(file, 77) == [400, 300, 200, 100, 0]
    assert found(file, 77, 1000, 3000) == [300, 200, 100]
    assert found(file, 78) == []


def test_entries_1_to_n_minus_1_are_used(file: IndexFile) -> None:
    count = 0
    while not file.is_full:
        add(file, count, count, 1000)
        count += 1
    assert count == 11
    assert all(found(file, number) == [number] for number in range(11))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(hashes=st.lists(st.integers(0, 40), max_size=11), keep=st.integers(0, 11), data=st.data())
def test_undoing_is_as_if_never_added(
    config: StoreConfig, hashes: list[int], keep: int, data: st.DataObject
) -> None:
    """Also when the process died before the header counted the last entries."""
    config.index_path.mkdir(parents=True, exist_ok=True)
    images = []
    for part in (hashes, hashes[:keep]):
        path = config.index_path / NAME
        path.unlink(missing_ok=True)
        file = IndexFile(config, path)
        file.create()
        saved = data.draw(st.integers(0, len(part)))
        for number, key_hash in enumerate(part):
            add(file, key_hash, 100 * (number + 1), 1000 * number)
            if number < saved:
                file.save()
        if part is hashes:
            file = IndexFile(config, path)
            file.load()
            assert file.next_number == saved + 1
            file.truncate_phy(100 * (keep + 1))
            kept = min(keep, saved)
            for key_hash in range(41):
                expected = [100 * (n + 1) for n in reversed(range(kept)) if hashes[n] == key_hash]
                assert found(file, key_hash) == expected
            for number in range(kept, min(keep, len(hashes))):
                add(file, hashes[number], 100 * (number + 1), 1000 * number)
        file.save()
        images.append(path.read_bytes()[32:])  # times are to the second after an undo
    assert images[0] == images[1]


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(hashes=st.lists(st.integers(0, 40), max_size=11), keep=st.integers(0, 11))
def test_slots_are_rebuilt_from_the_entries(
    config: StoreConfig, hashes: list[int], keep: int
) -> None:
    config.index_path.mkdir(parents=True, exist_ok=True)
    path = config.index_path / NAME
    path.unlink(missing_ok=True)
    file = IndexFile(config, path)
    file.create()
    for number, key_hash in enumerate(hashes):
        add(file, key_hash, 100 * (number + 1), 1000 * number)
    file.save()
    keep = min(keep, len(hashes))
    file.file.buffer[40 : 40 + 64] = b"\x07" * 64
    file.rebuild_slots(keep + 1)
    assert file.used_slots == len({key_hash % 16 for key_hash in hashes[:keep]})
    for key_hash in range(41):
        expected = [100 * (n + 1) for n in reversed(range(keep)) if hashes[n] == key_hash]
        assert found(file, key_hash) == expected


def test_a_chain_that_bites_its_tail_ends(file: IndexFile) -> None:
    add(file, 5, 100, 1000)
    add(file, 5, 200, 1000)
    struct.pack_into(">i", file.file.buffer, 40 + 64 + 2 * 20 + 16, 2)
    assert found(file, 5) == [200]


def test_keys_are_the_unique_key_and_each_word() -> None:
    assert keys_of(b"KEYS\x01a  b\x02UNIQ_KEY\x01u") == [b"u", b"a", b"b"]
    assert keys_of(b"TAGS\x01x") == []
    assert keys_of(b"") == []
    assert keys_of(b"UNIQ_KEY\x01u\x02WAIT\x01true") == [b"u"]
    assert keys_of(b"A\x01x\x02UNIQ_KEY\x01u") == [b"u"]
    assert keys_of(b"MY_UNIQ_KEY\x01u") == []
    assert keys_of(b"A\x01UNIQ_KEY\x01u") == []
    assert keys_of(b"UNIQ_KEY\x01\x02A\x01x") == []
    assert keys_of(b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01") == [b"u"]


PIECES = st.sampled_from(
    [
        "UNIQ_KEY\x01",
        "MY_UNIQ_KEY\x01",
        "KEYS\x01",
        "A\x01",
        "\x01",
        "\x02",
        "aaaa",
        "bbbb",
        "\u00e9",
    ]
)
STRINGS = st.lists(PIECES, max_size=8).map("".join)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(STRINGS, min_size=2, max_size=4))
@example(
    ["MY_UNIQ_KEY\x01aaaa\x02UNIQ_KEY\x01aaaa", "MY_UNIQ_KEY\x01bbbb\x02UNIQ_KEY\x01aaaa"],
)
def test_a_slave_notes_the_keys_that_decoding_finds(tmp_path: Path, texts: list[str]) -> None:
    """The key of a message that is like the last one was taken from another property."""
    with TemporaryDirectory(dir=tmp_path) as root:
        master = open_store(small_config(Path(root, "master"), segment_bytes=1 << 16))
        slave = open_store(small_config(Path(root, "slave"), segment_bytes=1 << 16))
        found: dict[str, set[int]] = {}
        # The first message of a queue is dispatched by itself, those behind it in a run.
        for text in ["A\x01x", *texts]:
            put = master.put_message(message(properties=text.encode()), 5000)
            values = decode_properties(text)
            words = {values.get("UNIQ_KEY", ""), *values.get("KEYS", "").split(" ")}
            for word in {*text.replace("\x02", "\x01").split("\x01"), *words} - {""}:
                found.setdefault(word, set()).update({put.phy_offset} if word in words else ())
        slave.append_log(0, bytes(master.read_log(0, master.max_phy_offset)))
        dispatch_all(slave)
        assert {word: set(offsets(slave, word)) for word in found} == found
        master.close()
        slave.close()


# Through the store.


def offsets(store: FileMessageStore, key: str, topic: str = "T") -> list[int]:
    views, _, _ = store.query_message(topic, key, 64, 0, 1 << 60)
    return [decode_record(view).phy_offset for view in views]


def put(store: FileMessageStore, *keys: str, topic: str = "T", **kwargs: Any) -> int:
    return store.put_message(message(topic=topic, keys=keys, **kwargs), 5000).phy_offset


def test_a_message_is_found_by_each_of_its_keys_at_once(config: StoreConfig) -> None:
    store = open_store(config)
    first, second = put(store, "a", "b"), put(store, "b", "c")
    assert offsets(store, "a") == [first]
    assert offsets(store, "b") == [second, first]
    assert offsets(store, "c") == [second]
    assert offsets(store, "a", topic="U") == []
    _, stamp, phy_offset = store.query_message("T", "b", 1, 0, 1 << 60)
    assert (stamp, phy_offset) == (5000, second)
    store.close()


def test_many_keys_fill_many_files(config: StoreConfig) -> None:
    store = open_store(config)
    places = [put(store, f"key{number}", "common") for number in range(40)]
    dispatch_all(store)
    assert len(list(config.index_path.iterdir())) == 8
    assert [offsets(store, f"key{number}") for number in range(40)] == [[at] for at in places]
    assert offsets(store, "common") == places[::-1]
    store.close()


def test_when_too_much_is_pending_the_log_is_read_again(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, index_pending_max=5))
    places = [put(store, f"key{number}") for number in range(40)]
    assert [store._index.following] == [False]
    dispatch_all(store)
    assert [store._index.following] == [True]
    assert [offsets(store, f"key{number}") for number in range(40)] == [[at] for at in places]
    last = put(store, "last")
    assert offsets(store, "last") == [last]
    store.close()


def test_a_rolled_back_message_is_not_found_and_a_half_one_is(config: StoreConfig) -> None:
    store = open_store(config)
    put(store, "rolled", sys_flag=0xC)
    half = put(store, "half", sys_flag=0x4)
    assert offsets(store, "rolled") == []
    assert offsets(store, "half") == [half]
    store.close()


def test_a_full_disk_stops_the_index_and_nothing_else(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(config)
    put(store, "before")
    dispatch_all(store)

    real = os.posix_fallocate

    def fail(fd: int, at: int, size: int) -> None:
        if "index" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, at, size)

    places = [put(store, f"key{number}") for number in range(20)]
    monkeypatch.setattr(os, "posix_fallocate", fail)
    assert not store.dispatch(1 << 20)
    assert offsets(store, "key19") == []
    monkeypatch.setattr(os, "posix_fallocate", real)
    dispatch_all(store)
    assert [offsets(store, f"key{number}") for number in range(20)] == [[at] for at in places]
    store.close()


def test_without_an_index_nothing_is_written(config: StoreConfig) -> None:
    store = open_store(attrs.evolve(config, index_enable=False))
    put(store, "a")
    dispatch_all(store)
    assert offsets(store, "a") == []
    assert not config.index_path.exists()
    store.close()
