"""A segment of 1 GiB in a session with Spark's own settings: what its processes come to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.stores.big import write_big_store
from support.suite.skips import importable, skip_unless

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.release,
    pytest.mark.xdist_group("spark"),
]

GIB = 1 << 30
WORKER_BYTES_MAX = 512 << 20
PROGRAM = """
import json, os, sys

from pyspark.sql import SparkSession

from trioha.analysis.spark import commitlog_from_binary_files, register

way, store = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
if way == "binary files":
    files = spark.read.format("binaryFile").load(f"file:{store}/commitlog")
    rows = commitlog_from_binary_files(files, "full", columns=["size", "body", "crc_ok"])
else:
    rows = spark.read.format("rocketmq_commitlog_full").load(store).select("size", "body", "crc_ok")
found = rows.selectExpr(
    "count(*)", "sum(size)", "sum(length(body))", "count_if(NOT crc_ok)"
).collect()

def peak(process):
    with open(f"/proc/{process}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) << 10

workers = {}
for process in filter(str.isdecimal, os.listdir("/proc")):
    try:
        with open(f"/proc/{process}/cmdline") as words:
            is_worker = "pyspark.daemon" in words.read()
        if is_worker and os.getsid(int(process)) == os.getsid(0):
            workers[process] = peak(process)
    except OSError:
        continue
jvm = peak(spark.sparkContext._gateway.proc.pid)
print(json.dumps({"rows": list(found[0]), "workers": list(workers.values()), "jvm": jvm}))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    root = tmp_path_factory.mktemp("store")
    big = write_big_store(root, GIB - (1 << 20))
    [segment] = (root / "commitlog").iterdir()
    assert segment.stat().st_size == GIB
    return root, big.messages


@pytest.mark.parametrize("way", ["binary files", "source"])
def test_workers_stay_below_half_a_gibibyte_with_the_default_heap(
    way: str, store: tuple[Path, int], tmp_path: Path
) -> None:
    skip_unless(importable("pyspark"), "needs the extra spark")
    from trioha.analysis.spark.java import find_java

    root, messages = store
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, str(root)],
        capture_output=True,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(told)
    count, size, body, wrong = told["rows"]
    assert (count, wrong) == (messages, 0)
    assert GIB * 0.99 < size < GIB
    assert 0 < body < size
    assert len(told["workers"]) >= 2
    assert max(told["workers"]) <= WORKER_BYTES_MAX
