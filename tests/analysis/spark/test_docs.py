"""The notebook lines of docs/analysis.md, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.stores.logs import LogMessage, make_log

from trioha.journal.file import JournalFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PAGE = Path(__file__).parents[3] / "docs" / "analysis.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BASE_MS = 1_700_000_000_000


def test_the_notebook_lines_work_as_they_stand(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [LogMessage(store_ms=BASE_MS + 500 * n, topic=f"T{n % 2}") for n in range(200)]
    log = make_log(messages)
    log.write(tmp_path / "commitlog")
    times = iter([BASE_MS + 20_000, BASE_MS + 30_000, BASE_MS + 500_000, BASE_MS + 500_001])
    sink = JournalFile(tmp_path / "journal", "broker-a:0", lambda: next(times), bytes_max=1 << 20)
    for name in ("ha_disconnected", "ha_connected", "ha_disconnected"):
        sink.event(name, peer="10.0.0.2:1234")  # the file's head takes the fourth time
    sink.close()

    names: dict[str, Any] = {}
    exec(block("JOIN log", tmp_path), names)
    stored = [
        record.end - record.begin
        for record in log.records
        if 20_000 <= record.message.store_ms - BASE_MS < 30_000
    ]
    rows = names["lost_slaves"].collect()
    assert [(row["slave"], row["messages"], row["bytes"]) for row in rows] == [
        ("10.0.0.2:1234", len(stored), sum(stored)),
        ("10.0.0.2:1234", 0, None),
    ]
    assert "10.0.0.2:1234" in capsys.readouterr().out

    exec(block("filterPushdown", tmp_path), names)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    elsewhere = block("binaryFile", tmp_path)
    exec(elsewhere.replace("s3a://backup/broker-a", f"file://{tmp_path}"), names)
    assert names["log"].count() == 200
    assert names["damage"].count() == 0
    exec(block("to_date", tmp_path).replace("/tmp/records", f"{tmp_path}/records"), names)
    assert spark.read.parquet(f"{tmp_path}/records").where("day = '2023-11-14'").count() == 200
    compile(block("LagListener", tmp_path), "docs/analysis.md", "exec")  # tested with its stream


def block(mention: str, store: Path) -> str:
    """The lines of the page that mention this, for our store."""
    texts: list[str] = BLOCK.findall(PAGE.read_text())
    [text] = [text for text in texts if mention in text]
    return text.replace("/data/broker-a", str(store))
