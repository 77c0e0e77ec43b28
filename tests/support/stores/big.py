"""Stores of any size, written fast: what a busy broker leaves behind after a day.

Theory of operation. A record's bytes are made once per topic, queue, host, body and set of
properties; writing one is a copy and four numbers set in place (queue offset, log offset, two
times) and a serial number in its properties. Checksums hold, since bodies are never changed. The
order of templates repeats, the times do not: a day with a quiet night, latencies of a few
milliseconds, now and then of seconds. Log, consume queues and config files agree with one another.

With `is_real` the store is what a real broker leaves: index files, delayed messages that were
delivered or wait, transactions that were checked, committed and ended or wait.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import attrs
import numpy as np
from numpy.typing import NDArray

from trioha.wire.java_hash import index_key_hash, string_hash
from trioha.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.properties import encode_properties
from trioha.wire.record import BLANK_MAGIC, BLANK_SIZE, MAGIC, body_crc

HEADER = struct.Struct(">iIiiiqqiq8sq8siqi")
OFFSETS = struct.Struct(">qq")
TIME = struct.Struct(">q")
ENTRY = struct.Struct(">qiq")
BLANK = struct.Struct(">iI")
INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_FIELDS = ("hash", "phy_offset", "seconds", "previous")
INDEX_ENTRY = np.dtype([(name, "i8") for name in _INDEX_FIELDS])
INDEX_FILE_ENTRY = np.dtype(list(zip(_INDEX_FIELDS, (">i4", ">i8", ">i4", ">i4"), strict=True)))
QUEUE_FILE_BYTES = 6_000_000
SMALL_QUEUE_FILE_BYTES = 20_000
"""Small: a store of 46 queues takes one megabyte, not 270, once it has been copied."""
OFFSETS_AT, BORN_AT, STORED_AT = 20, 40, 56
SCHEDULE = 65_536
"""Templates drawn before their order repeats."""
SERIAL = b"00000000"
BEGIN_MS = 1_763_510_400_000  # 2025-11-19T00:00:00Z
DAY_MS = 86_400_000
HOSTS = tuple(bytes((10, 0, 1, n)) + (40_000 + n).to_bytes(4, "big") for n in range(1, 7))
STORE_HOST = bytes((10, 0, 0, 1)) + (10_911).to_bytes(4, "big")
FLUSH_BYTES = 8 << 20
INDEX_SLOTS = 5_000_000
"""Slots of one index file, a broker's default; entries are four times as many."""
WAITING = 10
"""Delayed messages and transactions that wait, at least, for what follows them."""


@attrs.frozen
class Topic:
    name: str
    queues: int
    weight: float
    body_bytes: tuple[int, int]
    tags: tuple[str, ...] = ()
    compressed: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    sys_flag: int = 0
    after: str = ""
    """Its records take the serial number and the birth of the oldest of these that wait."""
    then: str = ""
    """Name under which its records wait."""

    @property
    def flags(self) -> int:
        return self.sys_flag | (1 if self.compressed else 0)


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
_MEANT_FOR = (("REAL_TOPIC", "orders"), ("REAL_QID", "0"))
_HALF = (*_MEANT_FOR, ("TRAN_MSG", "true"))
REAL_TOPICS = (
    *TOPICS,
    Topic(SCHEDULE_TOPIC, 1, 2, (80, 320), properties=(("DELAY", "1"), *_MEANT_FOR), then="delay"),
    Topic("orders", 1, 2, (80, 320), properties=(("DELAY", "1"),), after="delay"),
    Topic(TRANS_HALF_TOPIC, 1, 3, (80, 320), properties=_HALF, then="half"),
    Topic(
        *(TRANS_HALF_TOPIC, 1, 0.3, (80, 320)),
        properties=(*_HALF, ("TRANSACTION_CHECK_TIMES", "1")),
        after="half",
        then="half",
    ),
    Topic("orders", 1, 2.9, (80, 320), sys_flag=8, after="half", then="done"),
    Topic(TRANS_OP_HALF_TOPIC, 1, 2.9, (8, 8), ("d",), after="done"),
)
"""And what a broker stores for itself, and stores again."""


@attrs.frozen
class Template:
    """A record but for its numbers."""

    record: bytes
    serial_at: int
    queue: int
    """Place in the list of queues."""
    tags_code: int
    topic: Topic
    key_hash: int
    """Hash of KEYS in an index file."""
    head_hash: int
    """Hash of ``topic#`` and the unique key up to its serial number."""


@attrs.frozen
class BigStore:
    root: Path
    messages: int
    log_bytes: int
    """Bytes up to the end of the last record."""
    by_topic: dict[str, int]


def write_big_store(
    root: Path,
    log_bytes: int,
    *,
    segment_bytes: int = 1 << 30,
    queue_file_bytes: int = QUEUE_FILE_BYTES,
    seed: int = 1,
    is_real: bool = False,
    index_slots: int = INDEX_SLOTS,
) -> BigStore:
    """Write a store with about `log_bytes` of log; return what lies in it."""
    rng = random.Random(seed)
    topics = REAL_TOPICS if is_real else TOPICS
    queues = list(dict.fromkeys((topic.name, n) for topic in topics for n in range(topic.queues)))
    templates = _templates(rng, topics, {queue: place for place, queue in enumerate(queues)})
    schedule = rng.choices(templates[0], cum_weights=templates[1], k=SCHEDULE)
    latencies = [_latency(rng) for _ in range(SCHEDULE)]
    next_offsets = [0] * len(queues)
    entries = [bytearray() for _ in queues]
    writers = [
        _QueueWriter(root / "consumequeue" / name / str(n), queue_file_bytes) for name, n in queues
    ]
    log = _LogWriter(root / "commitlog", segment_bytes)
    index = _IndexWriter(root / "index", index_slots) if is_real else None
    waiting: dict[str, deque[tuple[int, int, int]]] = {"delay": deque(), "half": deque()}
    waiting["done"] = deque()
    mean = sum(len(template.record) for template in schedule) / SCHEDULE
    clock = _clock(max(1, round(log_bytes / mean)))
    messages = 0
    pack_offsets, pack_time, pack_entry = OFFSETS.pack_into, TIME.pack_into, ENTRY.pack
    while log.phy_offset < log_bytes:
        indexed: list[tuple[Template, int, int, int]] = []
        for template, latency in zip(schedule, latencies, strict=True):
            record, topic, serial, born_ms = template.record, template.topic, messages, 0
            if topic.after:
                if len(waiting[topic.after]) < WAITING:
                    continue
                serial, born_ms, place = waiting[topic.after].popleft()
                if topic.name == TRANS_OP_HALF_TOPIC:
                    record = _op_record(place)
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
            born_ms = born_ms or stored_ms - latency
            pack_time(buffer, at + BORN_AT, born_ms)
            pack_time(buffer, at + STORED_AT, stored_ms)
            if record is template.record:
                serial_at = at + template.serial_at
                buffer[serial_at : serial_at + 8] = b"%08X" % serial
                indexed.append((template, phy_offset, serial, stored_ms))
            tags_code = stored_ms + 1000 if topic.then == "delay" else template.tags_code
            entries[queue] += pack_entry(phy_offset, size, tags_code)
            if topic.then:
                place = next_offsets[queue] if topic.then == "half" else place
                waiting[topic.then].append((serial, born_ms, place))
            next_offsets[queue] += 1
            messages += 1
            log.phy_offset = phy_offset + size
        for queue, data in enumerate(entries):
            writers[queue].write(data)
            data.clear()
        if index is not None:
            index.add(indexed)
    end = log.phy_offset
    log.close()
    if index is not None:
        index.close()
    for writer in writers:
        writer.close()
    _write_config(root, topics, queues, next_offsets)
    if is_real:
        _write_progress(root / "config", next_offsets[queues.index((SCHEDULE_TOPIC, 0))], waiting)
    by_topic: dict[str, int] = {}
    for (name, _), count in zip(queues, next_offsets, strict=True):
        by_topic[name] = by_topic.get(name, 0) + count
    return BigStore(root, messages, end, by_topic)


def _templates(
    rng: random.Random, topics: Sequence[Topic], places: dict[tuple[str, int], int]
) -> tuple[list[Template], list[float]]:
    templates, weights, total = [], [], 0.0
    for topic in topics:
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
    # A record stored again keeps its key, so these share all of it but the serial number.
    head = 1 if topic.after or topic.then else rng.getrandbits(64)
    properties = {
        "UNIQ_KEY": f"0A000101{head:016X}{SERIAL.decode()}",
        "KEYS": f"customer-{int(rng.paretovariate(0.5)) % 5000}",
        "WAIT": "true",
    }
    tag = rng.choice(topic.tags) if topic.tags else ""
    if tag:
        properties["TAGS"] = tag
    record = _record(topic, queue, host, body, properties | dict(topic.properties), rng)
    return Template(
        record,
        record.rindex(SERIAL),
        place,
        string_hash(tag) if tag else 0,
        topic,
        index_key_hash(topic.name, properties["KEYS"]),
        string_hash(f"{topic.name}#{properties['UNIQ_KEY'].removesuffix(SERIAL.decode())}"),
    )


def _op_record(place: int) -> bytes:
    """A record that ends the half message with this queue offset."""
    body, properties = str(place).encode(), {"TAGS": "d"}
    return _record(REAL_TOPICS[-1], 0, HOSTS[0], body, properties, random.Random(0))


def _record(
    topic: Topic,
    queue: int,
    host: bytes,
    body: bytes,
    properties: dict[str, str],
    rng: random.Random,
) -> bytes:
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
        topic.flags,
        0,
        host,
        0,
        STORE_HOST,
        rng.randint(1, 3) if topic.name.startswith("%RETRY%") else 0,
        0,
        len(body),
    )
    return head + tail


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
        """Return the next record's offset, in a new segment if the old one cannot hold it."""
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


class _IndexWriter:
    """Index files: of each record its unique key, then its KEYS, in the order of the log."""

    def __init__(self, directory: Path, slots: int) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._path = directory
        self._slot_count, self._entries_max = slots, 4 * slots
        self._begin = (0, 0)
        self._begin_file()

    def _begin_file(self) -> None:
        self._slots = np.zeros(self._slot_count, ">i4")
        self._entries: list[NDArray[np.void]] = []
        self._count = 0

    def add(self, records: Sequence[tuple[Template, int, int, int]]) -> None:
        """Records as template, phy_offset, serial number, time stored."""
        if not records:
            return
        templates, phy_offsets, serials, times = zip(*records, strict=True)
        digits = np.frombuffer(b"".join(b"%08X" % serial for serial in serials), np.uint8)
        states = np.array([each.head_hash & 0xFFFFFFFF for each in templates], np.uint32)
        for column in digits.reshape(-1, 8).T:
            states = states * np.uint32(31) + column
        hashes = np.empty((len(records), 2), np.int32)
        # Math.abs; no hash here is Integer.MIN_VALUE.
        hashes[:, 0] = np.abs(states.view(np.int32))
        hashes[:, 1] = [each.key_hash for each in templates]
        rows = np.zeros(2 * len(records), INDEX_ENTRY)
        rows["hash"] = hashes.reshape(-1)
        rows["phy_offset"] = np.repeat(phy_offsets, 2)
        rows["seconds"] = np.repeat(times, 2)  # milliseconds, until the file has its beginning
        while len(rows):
            room = self._entries_max - 1 - self._count
            self._take(rows[:room])
            rows = rows[room:]
            if self._count == self._entries_max - 1:
                self.close()
                self._begin_file()

    def _take(self, rows: NDArray[np.void]) -> None:
        times = rows["seconds"].astype(np.int64)
        if not self._count:
            self._begin = (int(times[0]), int(rows["phy_offset"][0]))
            self._path = self._directory / f"{times[0]:017d}"
        slots = rows["hash"] % self._slot_count
        numbers = np.arange(self._count + 1, self._count + 1 + len(rows))
        order = np.argsort(slots, kind="stable")
        is_first = np.append(True, slots[order][1:] != slots[order][:-1])
        before = np.where(is_first, self._slots[slots[order]], np.roll(numbers[order], 1))
        rows["previous"][order] = before
        self._slots[slots] = numbers  # of equal slots the last one stays
        rows["seconds"] = (times - self._begin[0]) // 1000
        self._end = (int(times[-1]), int(rows["phy_offset"][-1]))
        self._entries.append(rows.astype(INDEX_FILE_ENTRY))
        self._count += len(rows)

    def close(self) -> None:
        """Write the file, as large as a broker makes it."""
        if not self._count:
            return
        (begin_ms, begin), (end_ms, end) = self._begin, self._end
        used = int(np.count_nonzero(self._slots))
        with self._path.open("wb") as file:
            file.write(INDEX_HEADER.pack(begin_ms, end_ms, begin, end, used, self._count + 1))
            file.write(self._slots.tobytes())
            file.seek(INDEX_FILE_ENTRY.itemsize, 1)  # entries are numbered from 1
            for entries in self._entries:
                file.write(entries.tobytes())
            file.truncate(INDEX_HEADER.size + 4 * self._slot_count + 20 * self._entries_max)


def _write_progress(
    config: Path, delayed: int, waiting: dict[str, deque[tuple[int, int, int]]]
) -> None:
    """Write the offsets of delivered delayed messages and checked transactions."""
    done = {"1": delayed - len(waiting["delay"])}
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": done}))
    table = json.loads((config / "consumerOffset.json").read_text())
    checked = min((place for _, _, place in waiting["half"]), default=0)
    table["offsetTable"][f"{TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS"] = {"0": checked}
    (config / "consumerOffset.json").write_text(json.dumps(table))


def _write_config(
    root: Path,
    topics: Sequence[Topic],
    queues: list[tuple[str, int]],
    next_offsets: list[int],
) -> None:
    config = root / "config"
    config.mkdir()
    table = {
        topic.name: {
            "topicName": topic.name,
            "readQueueNums": topic.queues,
            "writeQueueNums": topic.queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic in reversed(topics)  # of one name the first says how many queues there are
    }
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    consumed: dict[str, dict[str, int]] = {}
    for (name, queue), offset in zip(queues, next_offsets, strict=True):
        if name not in {topic.name for topic in TOPICS}:
            continue
        # One group lags by a hundredth, and a little more in the first queue.
        behind = offset // (50 if queue == 0 else 100)
        consumed.setdefault(f"{name}@billing", {})[str(queue)] = offset - behind
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": consumed}))
