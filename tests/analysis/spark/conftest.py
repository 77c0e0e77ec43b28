"""One Spark session for all tests that need one: two threads, no UI, UTC."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.suite.skips import importable, skip_unless

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a user's own session, without our settings. A test restores the options that it sets.

    Short queries are not worth compiling well, which takes half of the processor time.
    """
    skip_unless(importable("pyspark"), "needs the extra spark")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own sockets
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.local.dir", str(scratch / "local"))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
