"""The sources in a user's own session, against what the decoder reads without Spark."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.peers.object_store import object_store, upload
from support.stores.logs import LogMessage, make_log
from support.suite.archives import unpack

from trioha.analysis.scan import ScanFilter, scan_split
from trioha.analysis.schema import COMMITLOG, COMMITLOG_FULL, TABLES
from trioha.analysis.spark import commitlog_from_binary_files, register
from trioha.analysis.store_files import open_store
from trioha.journal.file import JournalFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

GOLDEN = Path(__file__).resolve().parents[2] / "store" / "golden"
SWITCH = "spark.sql.python.filterPushdown.enabled"
BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def pushing(session: SparkSession) -> Iterator[SparkSession]:
    session.conf.set(SWITCH, "true")
    yield session
    session.conf.unset(SWITCH)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


def make_store(root: Path, *, is_dledger: bool = False, count: int = 3000) -> Path:
    messages = [
        LogMessage(
            topic=f"T{n % 5}",
            queue_id=n % 3,
            store_ms=BASE_MS + n,
            born_timestamp=BASE_MS + n - 7,
            properties=f"TAGS\x01t{n % 2}\x02KEYS\x01k{n}".encode() if n % 4 else b"",
            body=b"b" * (n % 50),
            flag=-n,
        )
        for n in range(count)
    ]
    messages[7] = messages[7].with_v6_hosts()
    log = make_log(messages, segment_bytes=1 << 16, is_dledger=is_dledger)
    if 65536 in log.segments:
        log.segments[65536][1000:1400] = bytes(400)
    log.write(root / ("dledger-n0/data" if is_dledger else "commitlog"))
    return root


def rows_without_spark(root: Path, table: str = "commitlog") -> list[tuple[Any, ...]]:
    return [
        row
        for split in open_store(root).splits()
        for batch in scan_split(split, columns="full")
        for row in batch.rows(TABLES[table].names)
    ]


def load(session: SparkSession, kind: str, path: Path | str, **options: str) -> DataFrame:
    return session.read.format(kind).options(**options).load(str(path))


@pytest.mark.parametrize("is_dledger", [False, True])
def test_rows_are_those_of_the_decoder(
    session: SparkSession, is_dledger: bool, tmp_path: Path
) -> None:
    root = make_store(tmp_path, is_dledger=is_dledger)
    for kind, table in [
        ("rocketmq_commitlog", COMMITLOG),
        ("rocketmq_commitlog_full", COMMITLOG_FULL),
    ]:
        frame = load(session, kind, root, splitBytes="20000")
        found = frame.orderBy("phy_offset").collect()
        expected = rows_without_spark(root, table.name)
        assert [tuple(row)[: len(table.names)] for row in found] == expected
        assert frame.rdd.getNumPartitions() > 10
        first = found[0]
        born = datetime.fromtimestamp(first["born_ms"] / 1000, UTC).replace(tzinfo=None)
        assert abs(first["born_time"] - born) < timedelta(milliseconds=1)


def test_damage_is_a_table_of_its_own(session: SparkSession, store: Path) -> None:
    (row,) = load(session, "rocketmq_commitlog_corrupt", store).collect()
    assert row["segment"] == f"{65536:020d}"
    assert 65536 < row["phy_offset"] <= 66536 < 66936 <= row["phy_offset"] + row["length"]


CONDITIONS = [
    "topic = 'T1'",
    "topic IN ('T1', 'T2', NULL) AND queue_id = 2",
    "topic <=> 'T3' AND topic <> 'T1'",
    "topic = 'T1' AND topic = 'T2'",
    "queue_id >= 1",
    "queue_id IN (0, 2)",
    f"store_ms >= {BASE_MS + 100} AND store_ms < {BASE_MS + 200}",
    f"store_ms = {BASE_MS + 100} OR topic = 'T4'",
    "store_time >= TIMESTAMP'2023-11-14 22:13:20.5' AND store_time < '2023-11-14 22:13:21.0005'",
    "store_time > TIMESTAMP'2023-11-14 22:13:20.500' AND store_time <= '2023-11-14 22:13:21'",
    "store_time = TIMESTAMP'2023-11-14 22:13:20.500'",
    "store_time = TIMESTAMP'2023-11-14 22:13:20.5001'",
    "phy_offset BETWEEN 70000 AND 90000",
    "phy_offset > 1000 AND size > 110 AND flag IS NOT NULL",
    "phy_offset < 0",
    "term IS NULL AND born_host LIKE '2001%'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pushed_filters_change_no_answer(
    session: SparkSession, store: Path, condition: str
) -> None:
    def answer() -> list[int]:
        frame = load(session, "rocketmq_commitlog", store, pushFilters="true").where(condition)
        return sorted(row["phy_offset"] for row in frame.select("phy_offset").collect())

    plain = answer()
    session.conf.set(SWITCH, "true")
    try:
        assert answer() == plain
    finally:
        session.conf.unset(SWITCH)


def test_exact_filters_leave_the_plan_and_others_stay(pushing: SparkSession, store: Path) -> None:
    frame = load(pushing, "rocketmq_commitlog", store, pushFilters="true")
    assert "Filter" not in nodes(frame.where("topic = 'T1' AND phy_offset < 9000"))
    assert "Filter" in nodes(frame.where("topic = 'T1' AND size > 9"))
    assert "T1" not in nodes(frame.where("topic = 'T1' AND size > 9"))


def test_a_frame_scanned_again_is_not_narrowed_by_an_earlier_filter(
    pushing: SparkSession, store: Path
) -> None:
    """Spark 4.3 would keep the first filter for every later scan, of the same query too."""
    frame = load(pushing, "rocketmq_commitlog", store)
    total = frame.count()
    some = frame.where("topic = 'T1'")
    assert 0 < some.count() < total
    assert frame.count() == total
    others = frame.where("topic = 'T2'")
    assert some.union(others).count() == some.count() + others.count()


def nodes(frame: DataFrame) -> set[str]:
    """Words of the physical plan."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return set(re.findall(r"\w+", plan))


def test_options_narrow_without_the_switch(session: SparkSession, store: Path) -> None:
    expected = [
        row
        for row in rows_without_spark(store)
        if row[4] in ("T1", "T2") and BASE_MS + 500 <= row[11] < BASE_MS + 1000
    ]
    frame = load(
        session,
        "rocketmq_commitlog",
        store,
        topic="T1, T2",
        **{"from": "2023-11-14T22:13:20.500Z", "to": str(BASE_MS + 1000)},
        columns="topic,phy_offset",
        minPartitions="4",
    )
    assert frame.columns == ["topic", "phy_offset"]
    assert sorted(row["phy_offset"] for row in frame.collect()) == [row[2] for row in expected]
    by_schema = session.read.format("rocketmq_commitlog").schema("size INT, topic STRING")
    assert by_schema.load(str(store)).columns == ["size", "topic"]
    assert by_schema.load(str(store)).count() == len(rows_without_spark(store))


def test_several_stores_come_by_list_and_by_pattern(session: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_store(tmp_path / name, count=10)
    expected = {str(tmp_path / "a"): 10, str(tmp_path / "b"): 10}
    reader = session.read.format("rocketmq_commitlog")
    for frame in (
        reader.load(f"{tmp_path}/*"),
        reader.load([f"{tmp_path}/a", f"file://{tmp_path}/b"]),
        reader.load([f"file:{tmp_path}/a", f"file:{tmp_path}/b"]),  # as Spark itself prints it
        reader.load(f"file:{tmp_path}"),
    ):
        assert {
            r["store"]: r["count"] for r in frame.groupBy("store").count().collect()
        } == expected


@pytest.mark.parametrize(
    ("path", "options", "sentence"),
    [
        ("/nowhere", {}, "/nowhere does not exist; name a broker's storePathRootDir"),
        ("", {"splitBytes": "many"}, "option splitBytes: 'many' is not a size above 0"),
        ("", {"from": "yesterday"}, "option from: 'yesterday' is neither milliseconds"),
        ("", {"columns": "topic,colour"}, "option columns: 'colour' is no column of commitlog"),
    ],
)
def test_what_is_wrong_is_said_in_the_error(
    session: SparkSession, store: Path, path: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence.replace("(", r"\(")):
        load(session, "rocketmq_commitlog", path or store, **options).collect()


def test_an_empty_store_is_an_empty_table(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for kind in ("rocketmq_commitlog", "rocketmq_commitlog_corrupt", "rocketmq_consumequeue"):
        assert load(session, kind, tmp_path).count() == 0


def test_impossible_times_are_null(session: SparkSession, tmp_path: Path) -> None:
    make_log([LogMessage(store_ms=1 << 62), LogMessage(store_ms=5)]).write(tmp_path / "commitlog")
    rows = load(session, "rocketmq_commitlog", tmp_path).orderBy("phy_offset").collect()
    assert [row["store_time"] for row in rows] == [None, datetime(1970, 1, 1, 0, 0, 0, 5000)]


def test_queue_entries_are_rows(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for topic, queue_id in [("T", 0), ("T", 1), ("%DLQ%g", 0)]:
        directory = tmp_path / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        entries = [
            (n * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + (n).to_bytes(8, "big")
            for n in range(30)
        ]
        (directory / f"{0:020d}").write_bytes(b"".join(entries) + bytes(400))
    frame = load(session, "rocketmq_consumequeue", tmp_path, topic="T")
    rows = frame.orderBy("queue_id", "queue_offset").collect()
    assert len(rows) == 60
    assert tuple(rows[31]) == (str(tmp_path), "T", 1, 1, 100, 100, 1)


def test_every_source_reads_a_java_store_of_dledger_mode(
    session: SparkSession, tmp_path: Path
) -> None:
    unpack(GOLDEN / "java-dledger.tar.xz", tmp_path)
    told = json.loads((GOLDEN / "java-dledger.json").read_text())
    expected = {(each["phy_offset"], each["queue_id"], each["queue_offset"]) for each in told}

    def rows(source: str, *names: str) -> list[tuple[Any, ...]]:
        frame = session.read.format(source).load(str(tmp_path)).where("topic = 'golden'")
        return [tuple(row) for row in frame.select(*names).collect()]

    places = ("phy_offset", "queue_id", "queue_offset")
    assert set(rows("rocketmq_commitlog", *places)) == expected
    assert set(rows("rocketmq_consumequeue", *places)) == expected
    found = rows("rocketmq_commitlog_full", *places, "keys", "crc_ok")
    keys = {each["phy_offset"]: each["keys"] or None for each in told}
    assert {row[0]: row[3] or None for row in found} == keys
    assert all(row[4] for row in found)
    assert all(index is not None for (index,) in rows("rocketmq_commitlog", "entry_index"))
    corrupt = session.read.format("rocketmq_commitlog_corrupt").load(str(tmp_path))
    assert corrupt.count() == 0


def test_journals_are_rows_and_their_damage_too(session: SparkSession, tmp_path: Path) -> None:
    sink = JournalFile(tmp_path / "journal", "b:0", lambda: BASE_MS, bytes_max=1 << 20)
    for n in range(50):
        sink.event("ha_progress", peer="p", gap_bytes=n)
    sink.close()
    (file,) = (tmp_path / "journal").glob("*.journal")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    rows = load(session, "trioha_journal", tmp_path).orderBy("sequence").collect()
    assert len(rows) == 49
    assert rows[1]["fields"] == {"peer": "p", "gap_bytes": "1"}
    assert (rows[0]["node"], rows[0]["level"]) == ("b:0", "debug")
    (damage,) = load(session, "trioha_journal_corrupt", tmp_path).collect()
    assert damage["reason"] == "damaged record"
    late = load(session, "trioha_journal", tmp_path, **{"from": str(BASE_MS + 1)})
    assert late.count() == 0


@pytest.fixture
def bucket() -> Iterator[str]:
    with object_store() as settings:
        yield settings


def test_an_object_store_gives_the_same_rows(
    session: SparkSession, store: Path, bucket: str, tmp_path: Path
) -> None:
    queue = tmp_path / "a" / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes([*bytes(7), 9, *bytes(3), 9, *bytes(8)]))
    sink = JournalFile(tmp_path / "a" / "journal", "b:0", lambda: BASE_MS, bytes_max=1 << 20)
    sink.event("ha_progress", peer="p", gap_bytes=7)
    sink.close()
    shutil.copytree(store, tmp_path / "a", dirs_exist_ok=True)
    path = upload(tmp_path / "a", "many/a", bucket)
    for where in (path, path.replace("many/a", "many")):  # itself, and where many would be
        found = load(session, "rocketmq_commitlog", where)
        assert {row["store"] for row in found.select("store").distinct().collect()} == {path}
        assert [tuple(row)[1:20] for row in found.orderBy("phy_offset").collect()] == [
            row[1:] for row in rows_without_spark(store)
        ]
        assert load(session, "rocketmq_commitlog_corrupt", where).count() == 1
        [entry] = load(session, "rocketmq_consumequeue", where).collect()
        assert (entry["topic"], entry["phy_offset"], entry["size"]) == ("T", 9, 9)
        events = load(session, "trioha_journal", where).where("name = 'ha_progress'").collect()
        assert [event["fields"] for event in events] == [{"peer": "p", "gap_bytes": "7"}]


def test_one_foreign_directory_that_a_pattern_takes_in_is_named(
    session: SparkSession, tmp_path: Path
) -> None:
    make_store(tmp_path / "a", count=10)
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(Exception, match=r"lost\+found is not a store"):
        load(session, "rocketmq_commitlog", f"{tmp_path}/*").count()
    assert load(session, "rocketmq_commitlog", tmp_path).count() == 10


def test_files_that_spark_reads_itself_give_the_same_rows(
    session: SparkSession, store: Path
) -> None:
    files = session.read.format("binaryFile").load(f"file://{store}/commitlog")
    found = commitlog_from_binary_files(files).orderBy("phy_offset").collect()
    assert [row[1:20] for row in found] == [row[1:] for row in rows_without_spark(store)]
    damage = commitlog_from_binary_files(files, "corrupt").collect()
    assert len(damage) == 1
    few = commitlog_from_binary_files(
        files, columns=["body"], filters=ScanFilter(topics=frozenset({"T1"})), table="full"
    )
    assert few.count() == sum(row[4] == "T1" for row in rows_without_spark(store))
    with pytest.raises(ValueError, match="no column of commitlog"):
        commitlog_from_binary_files(files, columns=["colour"])


def test_segments_are_read_in_ranges_and_never_whole(
    session: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Spark's default heap held no three segments of 64 MiB, which is what a small broker has."""
    from pyarrow.fs import LocalFileSystem

    from trioha.analysis.spark.binary_files import scan_files

    files = session.read.format("binaryFile").load(f"file://{store}/commitlog")
    in_ranges = scan_files(files, "headers", (), None, LocalFileSystem(), 4096)
    assert [row[1:20] for row in in_ranges.orderBy("phy_offset").collect()] == [
        row[1:] for row in rows_without_spark(store)
    ]
    damage = scan_files(files, "corrupt", (), None, None, 4096)
    assert damage.count() == 1
    messages = [LogMessage(body=bytes(1 << 20), store_ms=BASE_MS)] * 185
    log = make_log(messages, segment_bytes=64 << 20)
    log.write(tmp_path / "commitlog")
    assert len(log.segments) == 3
    large = session.read.format("binaryFile").load(f"file://{tmp_path}/commitlog")
    found = commitlog_from_binary_files(large, "full", columns=["phy_offset", "crc_ok"])
    assert found.where("crc_ok").count() == len(messages)
    with pytest.raises(ValueError, match="have no column length"):
        commitlog_from_binary_files(large.select("path", "content"))


def test_splits_survive_the_way_to_a_worker(store: Path) -> None:
    splits = open_store(store).splits()
    assert pickle.loads(pickle.dumps(splits)) == splits
    assert json.loads(json.dumps(splits[0].segment.name)) == "0" * 20
