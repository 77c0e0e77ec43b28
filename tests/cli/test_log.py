"""`trioha log`: dump, verify and diff of a small store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trioha.cli import cli
from trioha.config import BrokerConfig
from trioha.journal import NullSink
from trioha.store.interface import PutMessage, PutStatus
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig
from trioha.wire.message_id import pack_host
from trioha.wire.properties import encode_properties

HOST = pack_host("127.0.0.1", 10911)
COUNT = 5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "a"
    config = StoreConfig.of(
        BrokerConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 20,
            max_message_size=1 << 16,
            mapped_file_size_consume_queue=2000,
            max_hash_slot_num=100,
            max_index_num=400,
            disk_max_used_space_ratio=99,
            disk_space_warning_level_ratio=99,
        )
    )
    opened = FileMessageStore.open(config, NullSink(), wall_ms=1_700_000_000_000)
    for number in range(COUNT):
        message = PutMessage(
            topic="even" if number % 2 == 0 else "odd",
            queue_id=0,
            flag=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            store_host=HOST,
            body=b"text %d" % number if number else b"\xff\x00",
            properties=encode_properties({"KEYS": f"k{number}"}),
            keys=(b"k%d" % number,),
        )
        assert opened.put_message(message, 1_700_000_000_000 + number).status is PutStatus.PUT_OK
    while opened.dispatch(1 << 20):
        pass
    opened.close()
    return root


def log(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["log", *map(str, arguments)])


def offsets(result: Result) -> list[int]:
    return [json.loads(line)["phy_offset"] for line in result.output.splitlines()]


def test_dump_prints_each_record(store: Path) -> None:
    result = log("dump", store)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) == COUNT
    assert "even q0@0  2 B  \\xff\\x00" in lines[0]
    assert "odd q0@0  6 B  text 1" in lines[1]
    assert "2023-11-14T22:13:20.001Z" in lines[1]


def test_dump_as_json_has_every_field(store: Path) -> None:
    first, second, *_ = map(json.loads, log("dump", store, "-o", "json").output.splitlines())
    assert first["body_hex"] == "ff00"
    assert second["body"] == "text 1"
    assert second["keys"] == ["k1"]
    assert second["store_host"] == "127.0.0.1:10911"
    assert second["store_timestamp"] == 1_700_000_000_001
    assert second["phy_offset"] == first["size"]


def test_dump_can_be_narrowed(store: Path) -> None:
    every = offsets(log("dump", store, "-o", "json"))
    assert offsets(log("dump", store, "-o", "json", "--count", "2")) == every[:2]
    assert offsets(log("dump", store, "-o", "json", "--begin", str(every[2]))) == every[2:]
    assert offsets(log("dump", store, "-o", "json", "--end", str(every[2]))) == every[:2]
    assert offsets(log("dump", store / "commitlog", "-o", "json", "--topic", "odd")) == every[1::2]


def test_a_sound_store_verifies(store: Path) -> None:
    result = log("verify", store)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "sound"
    report = json.loads(log("verify", store, "-o", "json").output)
    assert report["sound"] is True
    assert (report["records"], report["queues"]) == (COUNT, 2)


def damage(store: Path, position: int) -> None:
    (segment,) = (store / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_a_flipped_bit_is_found_and_passed_over(store: Path) -> None:
    every = offsets(log("dump", store, "-o", "json"))
    damage(store, every[1] + 88)  # the first byte of its body
    result = log("verify", store)
    assert result.exit_code == 1
    assert "are damaged" in result.output
    dumped = log("dump", store, "-o", "json")
    assert dumped.exit_code == 0
    lines = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert [line["phy_offset"] for line in lines] == [every[0], *every[2:]]
    assert "are damaged" in dumped.stderr


def test_equal_logs_are_equal_and_a_difference_is_named(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "b"
    shutil.copytree(store, other)
    result = log("diff", store, other)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "equal, byte for byte"
    every = offsets(log("dump", store, "-o", "json"))
    damage(other, every[1] + 90)
    result = log("diff", store, other)
    assert result.exit_code == 1
    assert f"they differ at offset {every[1] + 90}" in result.output
    report = json.loads(log("diff", store, other, "-o", "json").output)
    assert (report["equal"], report["first_difference"]) == (False, every[1] + 90)


def test_a_log_that_ends_earlier_is_not_equal(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "b"
    shutil.copytree(store, other)
    every = offsets(log("dump", store, "-o", "json"))
    (segment,) = (other / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(every[-1])
        file.write(bytes(1000))
    result = log("diff", store, other)
    assert result.exit_code == 1
    assert "equal where both have bytes, but B ends" in result.output


def test_a_directory_without_a_log_is_an_error(tmp_path: Path) -> None:
    assert log("verify", tmp_path).exit_code == 1
    assert log("verify", tmp_path / "nowhere").exit_code == 2
