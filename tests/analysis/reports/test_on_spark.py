"""Every report says on Spark what it says without a JVM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support.stores.journals import BEGIN_MS, Diary
from support.stores.logs import LogMessage, make_log
from support.stores.told import (
    DAY_MS,
    MONDAY_MS,
    ToldStore,
    busy_store,
    copy_store,
    flip,
    write_config,
)
from support.suite.sizes import drawn_cases
from support.suite.skips import importable, skip_unless

from trioha.analysis.engine import Engine, Window
from trioha.analysis.inputs import Inputs, open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports import REPORTS
from trioha.analysis.results import Report, ReportOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]
skip_unless(importable("pyspark"), "needs the extra spark")

OURS = ("throughput", "latency", "divergence", "integrity", "queues", "retention", "trace")


@attrs.frozen
class Case:
    stores: list[Path]
    journals: list[Path]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from trioha.analysis.spark.session import open_session

    scratch = tmp_path_factory.mktemp("spark")
    with open_session(master="local[2]", scratch=scratch, log=scratch / "log") as (found, _):
        yield found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A store with everything in it, and a copy with a fault of every kind."""
    root = tmp_path_factory.mktemp("stores")
    busy = busy_store(root / "busy")
    with ToldStore(busy.root) as store:
        at_ms = busy.told[-1].store_ms
        for i in range(40):
            at_ms += 1000
            again: dict[str, Any] = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "AB" * 16}
            store.put("SCHEDULE_TOPIC_XXXX", i % 2, at_ms=at_ms, latency_ms=9, DELAY=str(1 + i % 2))
            store.put("orders", at_ms=at_ms, latency_ms=8000, DELAY="1", keys=['o"d\\d', "it's"])
            store.put("%RETRY%g", at_ms=at_ms, reconsume_times=1 + i % 3, **again)
            store.put("%DLQ%g", at_ms=at_ms, reconsume_times=16, unique_key="00" * 16, **again)
            store.put("RMQ_SYS_TRANS_HALF_TOPIC", at_ms=at_ms, TRAN_MSG="true")
            store.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", at_ms=at_ms, tags="d", body=b"%d" % (2 * i))
            store.put("clicks", at_ms=at_ms, sys_flag=8)
    offsets = {"orders@g": {"0": 3, "1": 9}, "clicks@it's": {"0": 10_000}}
    write_config(busy.root, "consumerOffset.json", {"offsetTable": offsets})
    write_config(busy.root, "delayOffset.json", {"offsetTable": {"1": 4}})
    write_config(busy.root, "topics.json", {"topicConfigTable": {"clicks": {"writeQueueNums": 6}}})
    copy = copy_store(busy.root, root / "copy")
    for victim, place in ((50, 4), (200, 12), (300, 20), (350, 150)):
        flip(copy, busy.told[victim].phy_offset + place)
    queue = next((copy / "consumequeue" / "clicks" / "1").iterdir())
    data = bytearray(queue.read_bytes())
    data[40:60] = bytes(20)
    data[60:68] = (99).to_bytes(8, "big")
    queue.write_bytes(data)
    diary = Diary(root, "broker-a:0")
    for i, lag in enumerate((4, 90, 12)):
        diary.tell(
            (MONDAY_MS + i * DAY_MS - BEGIN_MS) / 1000,
            "consumer_lag",
            topic="orders",
            group="g",
            lag=lag,
            consumer_offset=0,
            broker_offset=lag,
            queues=1,
            worst_queue=0,
        )
    diary.close()
    return Case([busy.root, copy], [diary.directory])


def inputs_of(case: Case, window: Window) -> Inputs:
    stores = [str(path) for path in case.stores]
    return open_inputs(stores, [str(path) for path in case.journals], window)


def made(engine: Engine, name: str) -> Report:
    options = ReportOptions(now_ms=MONDAY_MS + 9 * DAY_MS, key="k17" if name == "trace" else None)
    return REPORTS[name].load().run(engine, options)


def rounded(value: Any) -> Any:
    """Sums of floats differ in their last digit with the order of their parts."""
    if isinstance(value, float):
        return pytest.approx(value)
    if isinstance(value, (list, tuple)):
        return type(value)(rounded(each) for each in value)
    if attrs.has(type(value)):
        return {name: rounded(each) for name, each in attrs.asdict(value, recurse=False).items()}
    return value


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each) for each in value)
    if attrs.has(type(value)):
        return {name: plain(each) for name, each in attrs.asdict(value, recurse=False).items()}
    return value


A_DAY = Window(MONDAY_MS + DAY_MS, MONDAY_MS + 2 * DAY_MS)


WINDOWS = [(name, Window()) for name in OURS] + [("throughput", A_DAY), ("divergence", A_DAY)]


@pytest.mark.parametrize(
    ("name", "window", "shares"),
    [
        pytest.param(name, window, engine == "decoded", id=f"{name}-window{at}-{engine}")
        for at, (name, window) in enumerate(WINDOWS)
        for engine in drawn_cases(f"engine {at}", ("scanned", "decoded"), 1)
    ],
)
def test_both_engines_say_the_same(
    damaged: Case,
    session: SparkSession,
    name: str,
    window: Window,
    shares: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trioha.analysis.spark.engine import SparkEngine
    from trioha.analysis.spark.jobs import Jobs

    # The real disk fills and empties while the engines take their turns.
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    with LocalEngine(inputs_of(damaged, window)) as local:
        expected = made(local, name)
    inputs = inputs_of(damaged, window)
    if shares:
        run_tasks = Jobs(session, inputs.note).run_tasks
        spark: LocalEngine | SparkEngine = LocalEngine(
            inputs, scratch=tmp_path, run_tasks=run_tasks
        )
    else:
        spark = SparkEngine(session, inputs, scratch=tmp_path)
    try:
        found = made(spark, name)
    finally:
        spark.close()
    assert not any(tmp_path.iterdir())
    assert plain(found) == rounded(expected)
    if window == Window():
        assert found.exit_code == (1 if name in ("divergence", "integrity") else 0)
        empty = [table.name for table in found.tables if not table.rows]
        nothing = {
            "divergence": ["journal"],
            "integrity": ["index_entries"],  # all are explained by damage
            "trace": ["progress"],
        }
        assert empty == nothing.get(name, [])


def test_times_of_damaged_records_overflow_no_statistic(
    session: SparkSession, tmp_path: Path
) -> None:
    from trioha.analysis.spark.engine import SparkEngine

    odd = LogMessage(store_ms=-(1 << 63), born_timestamp=(1 << 63) - 1)
    make_log([odd, LogMessage(store_ms=5, born_timestamp=3)]).write(tmp_path / "commitlog")
    with SparkEngine(session, open_inputs([str(tmp_path)])) as engine:
        rows = engine.query("SELECT SUM(messages) AS messages FROM latency_stats")
        assert rows == [{"messages": 2}]


@pytest.mark.parametrize(("order", "values"), [("ASC", [None, 1, 2]), ("DESC", [2, 1, None])])
def test_unknown_values_are_sorted_as_by_the_local_engine(
    session: SparkSession, tmp_path: Path, order: str, values: list[int | None]
) -> None:
    from trioha.analysis.spark.engine import SparkEngine

    make_log([LogMessage()]).write(tmp_path / "commitlog")
    with SparkEngine(session, open_inputs([str(tmp_path)])) as engine:
        rows = engine.query(f"SELECT x FROM (VALUES (2), (NULL), (1)) AS t(x) ORDER BY x {order}")
        assert [row["x"] for row in rows] == values
