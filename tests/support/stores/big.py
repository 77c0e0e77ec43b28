"""Stores of any size, written fast: what a busy broker leaves behind after a day.

Theory of operation. A record's bytes are made once per topic, queue, host, body and set of
properties; writing one is a copy and four numbers set in place (queue offset, log offset, two
times) and a serial number in its properties. Checksums hold, since bodies are never changed. The
order of templates repeats, the times do not: a day with a quiet night, latencies of a few
milliseconds, now and then of seconds. Log, consume queues and config files agree with one another.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attrs

from trioha.wire.java_hash import string_hash
from trioha.wire.properties import encode_properties
from trioha.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC, body_crc

HEADER = struct.Struct(">iIiiiqqiq8sq8siqi")
OFFSETS = struct.Struct(">qq")
TIME = struct.Struct(">q")
ENTRY = struct.Struct(">qiq")
BLANK = struct.Struct(">iI")
QUEUE_FILE_BYTES = 6_000_000
SMALL_QUEUE_FILE_BYTES = 20_000
"""So that a store of 46 queues takes one megabyte, not 270, once it has been copied."""
OFFSETS_AT, BORN_AT, STORED_AT = 20, 40, 56
SCHEDULE = 65_536
"""Templates drawn before their order repeats."""
SERIAL = b"00000000"
BEGIN_MS = 1_763_510_400_000  # 2025-11-19T00:00:00Z
DAY_MS = 86_400_000
HOSTS = tuple(bytes((10, 0, 1, n)) + (40_000 + n).to_bytes(4, "big") for n in range(1, 7))
STORE_HOST = bytes((10, 0, 0, 1)) + (10_911).to_bytes(4, "big")
FLUSH_BYTES = 8 << 20


@attrs.frozen
class Topic:
    name: str
    queues: int
    weight: float
    body_bytes: tuple[int, int]
    tags: tuple[str, ...] = ()
    compressed: bool = False


TOPICS = (
    Topic("orders", 8, 40, (80, 320), ("created", "paid", "shipped")),
    Topic("clicks", 16, 30, (60, 180)),
    Topic("payments", 4, 12, (150, 450), ("ok", "declined")),
    Topic("audit", 4, 8, (300, 900)),
    Topic("images", 4, 1, (1500, 4500), ("thumb",), compressed=True),
    Topic("stock", 8, 7, (80, 160), ("in", "out")),
    Topic("%RETRY%billing", 1, 0.8, (200, 600)),
    Topic("%DLQ%billing", 1, 0.2, (200, 600)),
)


@attrs.frozen
class Template:
    """A record but for its numbers."""

    record: bytes
    serial_at: int
    queue: int
    """Place in the list of queues."""
    tags_code: int


@attrs.frozen
class BigStore:
    root: Path
    messages: int
    log_bytes: int
    """Up to the end of the last record."""
    by_topic: dict[str, int]


def write_big_store(
    root: Path,
    log_bytes: int,
    *,
    segment_bytes: int = 1 << 30,
    queue_file_bytes: int = QUEUE_FILE_BYTES,
    seed: int = 1,
) -> BigStore:
    """Write a store with about `log_bytes` of log; return what lies in it."""
    rng = random.Random(seed)
    queues = [(topic.name, n) for topic in TOPICS for n in range(topic.queues)]
    templates = _templates(rng, {queue: place for place, queue in enumerate(queues)})
    schedule = rng.choices(templates[0], cum_weights=templates[1], k=SCHEDULE)
    latencies = [_latency(rng) for _ in range(SCHEDULE)]
    next_offsets = [0] * len(queues)
    entries = [bytearray() for _ in queues]
    writers = [
        _QueueWriter(root / "consumequeue" / name / str(n), queue_file_bytes) for name, n in queues
    ]
    log = _LogWriter(root / "commitlog", segment_bytes)
    mean = sum(len(template.record) for template in schedule) / SCHEDULE
    clock = _clock(max(1, round(log_bytes / mean)))
    messages = 0
    pack_offsets, pack_time, pack_entry = OFFSETS.pack_into, TIME.pack_into, ENTRY.pack
    while log.phy_offset < log_bytes:
        for template, latency in zip(schedule, latencies, strict=True):
            record = template.record
            size = len(record)
            phy_offset = log.make_room(size)
            if phy_offset >= log_bytes:
                break
            buffer = log.buffer
            at = len(buffer)
            buffer += record
            queue = template.queue
            stored_ms = next(clock)
            pack_offsets(buffer, at + OFFSETS_AT, next_offsets[queue], phy_offset)
            pack_time(buffer, at + BORN_AT, stored_ms - latency)
            pack_time(buffer, at + STORED_AT, stored_ms)
            serial_at = at + template.serial_at
            buffer[serial_at : serial_at + 8] = b"%08X" % messages
            entries[queue] += pack_entry(phy_offset, size, template.tags_code)
            next_offsets[queue] += 1
            messages += 1
            log.phy_offset = phy_offset + size
        for queue, data in enumerate(entries):
            writers[queue].write(data)
            data.clear()
    end = log.phy_offset
    log.close()
    for writer in writers:
        writer.close()
    _write_config(root, queues, next_offsets)
    by_topic: dict[str, int] = {}
    for (name, _), count in zip(queues, next_offsets, strict=True):
        by_topic[name] = by_topic.get(name, 0) + count
    return BigStore(root, messages, end, by_topic)


def _templates(
    rng: random.Random, places: dict[tuple[str, int], int]
) -> tuple[list[Template], list[float]]:
    templates, weights, total = [], [], 0.0
    for topic in TOPICS:
        for queue in range(topic.queues):
            # Queues of a topic are not all alike: the first gets somewhat more.
            weight = topic.weight / topic.queues * (1.5 if queue == 0 else 1.0)
            for host in HOSTS:
                for _ in range(4):
                    templates.append(_template(rng, topic, queue, host, places[topic.name, queue]))
                    total += weight
                    weights.append(total)
    return templates, weights


def _template(rng: random.Random, topic: Topic, queue: int, host: bytes, place: int) -> Template:
    body = rng.randbytes(rng.randint(*topic.body_bytes))
    properties = {
        "UNIQ_KEY": "0A000101" + f"{rng.getrandbits(64):016X}" + SERIAL.decode(),
        "KEYS": f"customer-{int(rng.paretovariate(0.5)) % 5000}",
        "WAIT": "true",
    }
    tag = rng.choice(topic.tags) if topic.tags else ""
    if tag:
        properties["TAGS"] = tag
    packed = encode_properties(properties)
    name = topic.name.encode()
    tail = body + bytes([len(name)]) + name + struct.pack(">h", len(packed)) + packed
    head = HEADER.pack(
        HEADER.size + len(tail),
        MAGIC,
        body_crc(body),
        queue,
        0,
        0,
        0,
        1 if topic.compressed else 0,
        0,
        host,
        0,
        STORE_HOST,
        rng.randint(1, 3) if topic.name.startswith("%RETRY%") else 0,
        0,
        len(body),
    )
    record = head + tail
    return Template(record, record.rindex(SERIAL), place, string_hash(tag) if tag else 0)


def _latency(rng: random.Random) -> int:
    """Milliseconds from born to stored; a slow one in a thousand, a wrong clock in ten thousand."""
    luck = rng.random()
    if luck < 0.0001:
        return -rng.randint(1, 40)
    return rng.randint(500, 4000) if luck < 0.001 else int(rng.expovariate(0.4))


def _clock(messages: int) -> Iterator[int]:
    """Store times of a day: three times as busy at noon as at midnight."""
    count = 0
    while True:
        share = count / messages
        shifted = share + math.sin(2 * math.pi * share) / (4 * math.pi)
        moment = BEGIN_MS + int(shifted * DAY_MS)
        for _ in range(32):  # a broker stores in bursts
            yield moment
        count += 32


class _LogWriter:
    def __init__(self, directory: Path, segment_bytes: int) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segment_end = 0
        self._file: BinaryIO | None = None
        self.buffer = bytearray()
        self.phy_offset = 0

    def make_room(self, size: int) -> int:
        """Where the next record goes, in a new segment if the old one cannot hold it."""
        if self.phy_offset + size + BLANK_SIZE > self._segment_end:
            self._roll()
        elif len(self.buffer) >= FLUSH_BYTES:
            self._flush()
        return self.phy_offset

    def _roll(self) -> None:
        rest = self._segment_end - self.phy_offset
        if rest:
            self.buffer += BLANK.pack(rest, BLANK_MAGIC)
            self.phy_offset += rest
        self.close()
        self._segment_end = self.phy_offset + self._segment_bytes
        self._file = (self._directory / f"{self.phy_offset:020d}").open("wb")

    def _flush(self) -> None:
        assert self._file is not None
        self._file.write(self.buffer)
        self.buffer.clear()

    def close(self) -> None:
        if self._file is not None:
            self._flush()
            self._file.truncate(self._segment_bytes)
            self._file.close()


class _QueueWriter:
    def __init__(self, directory: Path, file_bytes: int) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._file_bytes = file_bytes
        self._position = 0
        self._file: BinaryIO | None = None

    def write(self, data: bytearray) -> None:
        at = 0
        while at < len(data):
            if self._position % self._file_bytes == 0:
                self.close()
                self._file = (self._directory / f"{self._position:020d}").open("wb")
            assert self._file is not None
            piece = data[at : at + self._file_bytes - self._position % self._file_bytes]
            self._file.write(piece)
            self._position += len(piece)
            at += len(piece)

    def close(self) -> None:
        if self._file is not None:
            self._file.truncate(self._file_bytes)
            self._file.close()


def _write_config(root: Path, queues: list[tuple[str, int]], next_offsets: list[int]) -> None:
    config = root / "config"
    config.mkdir()
    topics = {
        topic.name: {
            "topicName": topic.name,
            "readQueueNums": topic.queues,
            "writeQueueNums": topic.queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic in TOPICS
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    consumed: dict[str, dict[str, int]] = {}
    for (name, queue), offset in zip(queues, next_offsets, strict=True):
        # One group lags by a hundredth, and a little more in the first queue.
        behind = offset // (50 if queue == 0 else 100)
        consumed.setdefault(f"{name}@billing", {})[str(queue)] = offset - behind
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": consumed}))
