"""Stores for tests of the analysis, and what was told to them: the truth to hold reports against.

`Told` is noted when a message is put, from what the test said and what the store answered; nothing
of it is read back from the files.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from support.stores.analysed import bin_of
from support.stores.small import message, open_store, small_config
from trioha.analysis.engine import Window
from trioha.analysis.inputs import open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports import REPORTS
from trioha.analysis.results import Report, ReportOptions
from trioha.store.message_store import FileMessageStore
from trioha.wire import fastjson
from trioha.wire.message_id import pack_host
from trioha.wire.properties import encode_properties

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MONDAY_MS = 1_700_438_400_000
"""A day's beginning (UTC)."""


@attrs.frozen(kw_only=True)
class Told:
    """One message as it was put."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size: int
    body: bytes
    born_ms: int
    born_host: str
    store_ms: int
    tags: str
    keys: tuple[str, ...]
    unique_key: str
    reconsume_times: int
    sys_flag: int
    properties: dict[str, str]

    @property
    def latency_ms(self) -> int:
        return self.store_ms - self.born_ms


class ToldStore:
    """A store that is being written; a context manager that closes it in order."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.config = small_config(
            root, **{"segment_bytes": 64 << 10, "log_chunk_bytes": 64 << 10} | changes
        )
        self.told: list[Told] = []
        self.store: FileMessageStore = open_store(self.config, wall_ms=MONDAY_MS)

    def __enter__(self) -> ToldStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def put(
        self,
        topic: str = "T",
        queue_id: int = 0,
        *,
        at_ms: int,
        body: bytes = b"hello",
        latency_ms: int = 3,
        host: str = "10.0.0.1",
        port: int = 40_000,
        tags: str = "",
        keys: Sequence[str] = (),
        unique_key: str = "",
        reconsume_times: int = 0,
        sys_flag: int = 0,
        tags_code: int | None = None,
        **properties: str,
    ) -> Told:
        """Store one message at a time of the store's clock, which must not go back."""
        pairs = dict(properties)
        if unique_key:
            pairs["UNIQ_KEY"] = unique_key
        put = message(
            body,
            topic=topic,
            queue_id=queue_id,
            tags=tags,
            keys=tuple(keys),
            properties=encode_properties(pairs),
            sys_flag=sys_flag,
        )
        if unique_key:
            put.keys = [unique_key.encode(), *put.keys]
        put.born_timestamp = at_ms - latency_ms
        put.born_host = pack_host(host, port)
        put.reconsume_times = reconsume_times
        if tags_code is not None:
            put.tags_code = tags_code
        result = self.store.put_message(put, at_ms)
        told = Told(
            topic=topic,
            queue_id=queue_id,
            queue_offset=result.queue_offset,
            phy_offset=result.phy_offset,
            size=result.size,
            body=body,
            born_ms=at_ms - latency_ms,
            born_host=host,
            store_ms=at_ms,
            tags=tags,
            keys=tuple(keys),
            unique_key=unique_key,
            reconsume_times=reconsume_times,
            sys_flag=sys_flag,
            properties=pairs,
        )
        self.told.append(told)
        return told


def write_config(root: Path, name: str, document: dict[str, Any]) -> None:
    """A file of config/."""
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_bytes(fastjson.dumps(document))


def copy_store(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def flip(store: Path, phy_offset: int, segment_bytes: int = 64 << 10, mask: int = 0xFF) -> None:
    """Change one byte of the log: its bits in `mask`."""
    base = phy_offset - phy_offset % segment_bytes
    path = store / "commitlog" / f"{base:020d}"
    with open(path, "r+b") as file:
        file.seek(phy_offset - base)
        (byte,) = file.read(1)
        file.seek(phy_offset - base)
        file.write(bytes([byte ^ mask]))


def make_report(
    name: str,
    *stores: Path,
    journals: Sequence[Path] = (),
    window: Window | None = None,
    now_ms: int = MONDAY_MS + 10 * DAY_MS,
    **options: Any,
) -> Report:
    """One report without a JVM."""
    inputs = open_inputs([str(store) for store in stores], [str(path) for path in journals], window)
    with LocalEngine(inputs) as engine:
        return REPORTS[name].load().run(engine, ReportOptions(now_ms=now_ms, **options))


def rows_of(report: Report, table: str) -> list[dict[str, Any]]:
    """A table's rows by column name."""
    (found,) = [each for each in report.tables if each.name == table]
    names = [column.name for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def check_latencies(row: dict[str, Any], told: list[Told]) -> None:
    """A row of a latency table says what these messages say."""
    latencies = sorted(each.latency_ms for each in told)
    assert row["messages"] == len(latencies)
    assert row["negative"] == sum(latency < 0 for latency in latencies)
    assert row["min_ms"] == bin_of(latencies[0])
    assert row["max_ms"] == bin_of(latencies[-1])
    for percent in (50, 95, 99):
        rank = max(1, -(-len(latencies) * percent // 100))
        assert row[f"p{percent}_ms"] == bin_of(latencies[rank - 1])


def texts_of(report: Report, severity: str) -> list[str]:
    return [finding.text for finding in report.findings if finding.severity == severity]


def busy_store(root: Path, seed: int = 1) -> ToldStore:
    """Three days of several topics, producers with clocks of their own, keys, tags and sizes."""
    rng = random.Random(seed)
    at_ms = MONDAY_MS + 5 * HOUR_MS
    with ToldStore(root) as store:
        while at_ms < MONDAY_MS + 3 * DAY_MS:
            host, latency_ms = rng.choice(
                [
                    ("10.0.0.1", rng.randrange(20)),
                    ("10.0.0.2", rng.randrange(400)),
                    ("10.0.0.3", rng.randrange(20) - 5000),
                ]
            )
            is_order = rng.random() < 0.6
            store.put(
                "orders" if is_order else "clicks",
                0 if is_order and rng.random() < 0.7 else rng.randrange(4),
                at_ms=at_ms,
                latency_ms=latency_ms,
                host=host,
                port=rng.randrange(30_000, 30_010),
                body=rng.randbytes(rng.randrange(600)),
                tags=rng.choice(["paid", "paid", "paid", "sent", ""]),
                keys=rng.choice(
                    [("hot",), ("hot", f"k{len(store.told)}"), (f"k{len(store.told)}",), ()]
                ),
                unique_key=f"{len(store.told):032X}",
                sys_flag=1 if rng.random() < 0.25 else 0,
            )
            # More on each day than on the day before.
            day = (at_ms - MONDAY_MS) // DAY_MS
            at_ms += rng.randrange(2 * HOUR_MS // (4 + 4 * day))
    return store
