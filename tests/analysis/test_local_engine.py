"""The engine without a JVM answers what an independent reading of the log says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.stores.big import BEGIN_MS, BigStore, write_big_store
from support.stores.logs import LogMessage, make_log
from support.stores.told import rows_of

from trioha.analysis.engine import (
    Progress,
    Window,
    bucket,
    literal,
    literals,
    mentioned_columns,
    quotient,
)
from trioha.analysis.inputs import open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports import REPORTS
from trioha.analysis.results import ReportOptions
from trioha.analysis.schema import COMMITLOG, COMMITLOG_FULL, AnalysisError
from trioha.analysis.spill import LogTask, Task
from trioha.store.inspect import DamagedStretch, iter_records
from trioha.wire.names import SCHEDULE_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.record import Record

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> BigStore:
    root = tmp_path_factory.mktemp("big") / "store"
    return write_big_store(root, 300_000, segment_bytes=1 << 17)


@pytest.fixture(scope="module")
def records(store: BigStore) -> list[Record]:
    found = list(iter_records(store.root / "commitlog", 0, None))
    assert not any(isinstance(item, DamagedStretch) for item in found)
    return [item for item in found if isinstance(item, Record)]


@pytest.fixture(scope="module")
def engine(store: BigStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    scratch = tmp_path_factory.mktemp("scratch")
    with LocalEngine(open_inputs([str(store.root)]), scratch=scratch) as made:
        yield made
    assert not any(scratch.iterdir()), "the database outlived its engine"


def test_headers_are_all_there(engine: LocalEngine, records: list[Record]) -> None:
    rows = engine.query(
        "SELECT COUNT(*) AS n, SUM(size) AS bytes, MIN(store_ms) AS first FROM commitlog",
    )
    assert rows == [
        {
            "n": len(records),
            "bytes": sum(record.size for record in records),
            "first": min(record.store_timestamp for record in records),
        }
    ]


def test_a_later_query_may_name_more_columns(engine: LocalEngine, store: BigStore) -> None:
    rows = engine.query(
        "SELECT topic, COUNT(*) AS n FROM commitlog WHERE born_ms < store_ms + 1000 GROUP BY topic",
    )
    assert {row["topic"]: row["n"] for row in rows} == {
        name: count for name, count in store.by_topic.items() if count
    }


def test_minutes_are_counted_by_queue(engine: LocalEngine, records: list[Record]) -> None:
    rows = engine.query(
        "SELECT topic, queue_id, minute_ms, messages, bytes FROM commitlog_stats",
    )
    counts: Counter[tuple[str, int, int]] = Counter()
    sizes: Counter[tuple[str, int, int]] = Counter()
    for record in records:
        minute_ms = record.store_timestamp // 60_000 * 60_000
        counts[record.topic, record.queue_id, minute_ms] += 1
        sizes[record.topic, record.queue_id, minute_ms] += record.size
    keys = [(row["topic"], row["queue_id"], row["minute_ms"]) for row in rows]
    assert dict(zip(keys, [row["messages"] for row in rows], strict=True)) == counts
    assert dict(zip(keys, [row["bytes"] for row in rows], strict=True)) == sizes


def test_latencies_keep_their_extremes_and_sum(engine: LocalEngine, records: list[Record]) -> None:
    rows = engine.query(
        "SELECT SUM(messages) AS n, SUM(latency_sum_ms) AS total, MIN(latency_min_ms) AS low,"
        " MAX(latency_max_ms) AS high FROM latency_stats",
    )
    latencies = [record.store_timestamp - record.born_timestamp for record in records]
    assert rows == [
        {
            "n": len(latencies),
            "total": sum(latencies),
            "low": min(latencies),
            "high": max(latencies),
        }
    ]


def test_bodies_and_properties_are_there_when_named(engine: LocalEngine) -> None:
    rows = engine.query(
        f"SELECT COUNT(*) AS n, COUNT({engine.item('properties', 'KEYS')}) AS keyed,"
        " SUM(CASE WHEN crc_ok THEN 1 ELSE 0 END) AS sound, MIN(OCTET_LENGTH(body)) AS smallest,"
        f" COUNT(DISTINCT {engine.host('born_host')}) AS hosts FROM commitlog_full",
    )
    [row] = rows
    assert row["n"] == row["keyed"] == row["sound"] > 500
    assert row["smallest"] == 60
    assert row["hosts"] == 6


def test_queue_entries_are_as_many_as_records(engine: LocalEngine, store: BigStore) -> None:
    rows = engine.query("SELECT COUNT(*) AS n FROM consumequeue")
    assert rows == [{"n": store.messages}]


def test_a_sound_log_has_no_corrupt_rows(engine: LocalEngine) -> None:
    assert engine.query("SELECT * FROM commitlog_corrupt") == []


def test_the_window_is_half_open(store: BigStore, records: list[Record], tmp_path: Path) -> None:
    window = Window(BEGIN_MS + 6 * HOUR_MS, BEGIN_MS + 9 * HOUR_MS)
    wanted = sum(
        BEGIN_MS + 6 * HOUR_MS <= record.store_timestamp < BEGIN_MS + 9 * HOUR_MS
        for record in records
    )
    assert 0 < wanted < len(records)
    with LocalEngine(open_inputs([str(store.root)], window=window), scratch=tmp_path) as engine:
        for view, count in (("commitlog", "COUNT(*)"), ("commitlog_stats", "SUM(messages)")):
            rows = engine.query(f"SELECT {count} AS n FROM {view}")
            assert rows == [{"n": wanted}], view


def test_flipped_bits_show_as_corrupt_rows(tmp_path: Path) -> None:
    made = write_big_store(tmp_path / "store", 60_000, segment_bytes=1 << 16)
    log = made.root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF  # within the first body
    log.write_bytes(data)
    with LocalEngine(open_inputs([str(made.root)]), scratch=tmp_path) as engine:
        rows = engine.query("SELECT phy_offset FROM commitlog_corrupt")
        assert rows == [{"phy_offset": 0}]
        rows = engine.query(
            "SELECT COUNT(*) AS bad FROM commitlog_full WHERE NOT crc_ok",
        )
        assert rows == [{"bad": 1}]


class Decoder:
    """Runs tasks in this process, and counts how often a log was decoded."""

    def __init__(self) -> None:
        self.tasks: list[LogTask] = []

    def __call__(self, what: str, tasks: Sequence[Task], progress: Progress) -> None:
        self.tasks += [task for task in tasks if isinstance(task, LogTask)]
        for task in tasks:
            task.run()


def test_a_broker_s_log_is_decoded_once_for_all_reports(tmp_path: Path) -> None:
    """The store has index files, delayed messages and transactions, as real brokers have."""
    made = write_big_store(
        tmp_path / "store", 600_000, segment_bytes=1 << 18, is_real=True, index_slots=500
    )
    inputs, decoder = open_inputs([str(made.root)]), Decoder()
    reports = {}
    with LocalEngine(inputs, run_tasks=decoder, views=["commitlog_full"]) as engine:
        for name in ("throughput", "latency", "integrity", "queues", "retention"):
            reports[name] = REPORTS[name].load().run(engine, ReportOptions(now_ms=BEGIN_MS))
    assert len(decoder.tasks) == len(inputs.stores[0].splits())
    assert reports["integrity"].exit_code == 0, reports["integrity"].findings
    (index,) = rows_of(reports["integrity"], "index")
    assert index["files"] > 1
    assert index["keys_checked"] == index["entries"] > made.messages
    (delays,) = rows_of(reports["queues"], "delays")
    assert delays["stored"] == made.by_topic[SCHEDULE_TOPIC] > delays["delivered"] > 0
    (transactions,) = rows_of(reports["queues"], "transactions")
    assert transactions["done"] == made.by_topic[TRANS_OP_HALF_TOPIC] > 0
    assert transactions["committed"] >= transactions["done"]


def test_a_query_of_few_topics_reads_only_these_and_leaves_the_rest_as_it_was(
    store: BigStore, tmp_path: Path
) -> None:
    decoder = Decoder()
    with LocalEngine(open_inputs([str(store.root)]), scratch=tmp_path, run_tasks=decoder) as engine:
        count = "SELECT COUNT(*) AS n, COUNT(tags) AS tagged FROM commitlog_full"
        before = engine.query(count)
        decoded = len(decoder.tasks)
        of_stock = "SELECT COUNT(*) AS n, COUNT(properties) AS p FROM commitlog_full"
        rows = engine.query(of_stock, topics={"stock"})
        assert rows == [{"n": store.by_topic["stock"], "p": store.by_topic["stock"]}]
        assert all(task.filters.topics == frozenset({"stock"}) for task in decoder.tasks[decoded:])
        assert not any(task.finds_damage for task in decoder.tasks[decoded:])
        assert engine.query(count) == before
        assert len(decoder.tasks) == 2 * decoded


def test_a_wrong_query_is_one_sentence(engine: LocalEngine) -> None:
    with pytest.raises(AnalysisError, match="nonsense"):
        engine.query("SELECT nonsense FROM commitlog")


def test_an_unknown_view_is_told(engine: LocalEngine) -> None:
    with pytest.raises(AnalysisError, match="commitlogs"):
        engine.query("SELECT 1 FROM commitlogs")


def test_more_rows_than_a_result_may_have_are_refused(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioha.analysis.database.ROWS_MAX", 10)
    with pytest.raises(AnalysisError, match="more than 10 rows"):
        engine.query("SELECT phy_offset FROM commitlog")


def test_stores_given_twice_are_refused(store: BigStore) -> None:
    with pytest.raises(AnalysisError, match="is given twice"):
        open_inputs([str(store.root), str(store.root)])


@pytest.mark.parametrize("text", ["it's", "a\\b", "'", "\\'", "plain", ""])
def test_literals_mean_themselves(engine: LocalEngine, text: str) -> None:
    rows = engine.query(f"SELECT {literal(text)} AS t, {literal(None)} AS n")
    assert rows == [{"t": text, "n": None}]


def test_a_list_of_nothing_matches_nothing(engine: LocalEngine) -> None:
    rows = engine.query(f"SELECT 1 AS one WHERE 'a' IN {literals([])}")
    assert rows == []


def test_times_of_damaged_records_overflow_no_query(tmp_path: Path) -> None:
    odd = LogMessage(store_ms=-(1 << 63), born_timestamp=(1 << 63) - 1)
    make_log([odd, LogMessage(store_ms=5, born_timestamp=3)]).write(tmp_path / "commitlog")
    with LocalEngine(open_inputs([str(tmp_path)])) as engine:
        rows = engine.query("SELECT MAX(store_ms - born_ms) AS most FROM commitlog")
        assert rows == [{"most": 2}]
        rows = engine.query("SELECT SUM(messages) AS messages FROM latency_stats")
        assert rows == [{"messages": 2}]


@pytest.mark.parametrize(("order", "values"), [("ASC", [None, 1, 2]), ("DESC", [2, 1, None])])
def test_unknown_values_are_sorted_as_by_spark(
    engine: LocalEngine, order: str, values: list[int | None]
) -> None:
    rows = engine.query(f"SELECT x FROM (VALUES (2), (NULL), (1)) AS t(x) ORDER BY x {order}")
    assert [row["x"] for row in rows] == values


@pytest.mark.parametrize("width", [1, 4, 5])
@pytest.mark.parametrize("value", [-7, -5, -4, -1, 0, 4, 5, 13])
def test_buckets_round_down(engine: LocalEngine, value: int, width: int) -> None:
    low, whole = bucket(f"({value})", width), quotient(f"({value})", width)
    [row] = engine.query(f"SELECT {low} AS low, {whole} AS q")
    assert row == {"low": value // width * width, "q": value // width}


def test_only_mentioned_columns_are_filled() -> None:
    assert mentioned_columns(COMMITLOG, "SELECT SUM(size) FROM commitlog") == {"size"}
    assert mentioned_columns(COMMITLOG, "SELECT * FROM (SELECT topic FROM commitlog)") == {"topic"}
    assert mentioned_columns(COMMITLOG, "SELECT c.* FROM commitlog c") == set(COMMITLOG.names)
    assert mentioned_columns(COMMITLOG, "SELECT COUNT(*) FROM commitlog") == {"phy_offset"}
    assert mentioned_columns(COMMITLOG_FULL, "SELECT 1 WHERE properties = 'KEYS'") == {"properties"}
