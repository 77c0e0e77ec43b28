"""A stream whose driver is killed in the middle of batches, and started again: each record once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.stores.logs import LogMessage, make_log
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

BATCHES_BEFORE_A_KILL = 2
PROGRAM = """
import json, sys

from pyspark.sql import SparkSession

from trioha.analysis.spark import register
from trioha.analysis.spark.progress import LagListener

store, out, checkpoint, task = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
register(spark)
spark.streams.addListener(LagListener(lambda lag: print(lag.bytes_behind, flush=True)))
writer = (
    spark.readStream.format("rocketmq_commitlog_full")
    .option("columns", "phy_offset,body")
    .option("maxBytesPerTrigger", "2k" if task == "follow" else "1m")
    .load(store)
    .writeStream.format("parquet")
    .option("checkpointLocation", checkpoint)
)
if task == "follow":
    writer.start(out).awaitTermination()
writer.trigger(availableNow=True).start(out).awaitTermination()
rows = spark.read.parquet(out).collect()
print(json.dumps(sorted((row["phy_offset"], row["body"].decode()) for row in rows)))
"""


def test_each_record_is_there_once_after_two_kills(tmp_path: Path) -> None:
    skip_unless(importable("pyspark"), "needs the extra spark")
    from trioha.analysis.spark.java import find_java

    log = make_log([LogMessage(body=b"%d" % n) for n in range(400)])
    log.write(tmp_path / "store" / "commitlog")

    def start(task: str) -> subprocess.Popen[str]:
        with (tmp_path / "stderr").open("a") as errors:
            return subprocess.Popen(
                [
                    *(sys.executable, "-c", PROGRAM, str(tmp_path / "store")),
                    *(str(tmp_path / "out"), str(tmp_path / "checkpoint"), task),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={
                    **os.environ,
                    "JAVA_HOME": str(find_java().home),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )

    behind = [log.end]
    for _ in range(2):
        process = start("follow")
        assert process.stdout is not None
        try:
            for _ in range(BATCHES_BEFORE_A_KILL):
                line = process.stdout.readline()
                assert line, (tmp_path / "stderr").read_text()
                behind.append(int(line))
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Python and its JVM, in the middle of a batch
            process.wait()
            process.stdout.close()
    assert behind == sorted(behind, reverse=True)
    assert behind[-1] > 4096
    process = start("finish")
    output, _ = process.communicate()
    assert process.returncode == 0, (tmp_path / "stderr").read_text()
    expected = [[r.phy_offset, bytes(r.message.body).decode()] for r in log.records]
    assert json.loads(output.splitlines()[-1]) == expected
