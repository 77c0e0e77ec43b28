"""Which engine an analysis runs on, and why: `--engine auto`."""

from __future__ import annotations

from typing import Literal

import attrs

from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.java import find_java, spark_version

EngineName = Literal["local", "spark"]
LOCAL_BYTES_MAX = 512 << 20
"""Of log. Below it Spark's start, several seconds, costs more than it saves."""


@attrs.frozen
class Choice:
    engine: EngineName
    why: str
    """A clause for the user; empty when the user chose."""


def choose_engine(wanted: str, *, bytes_total: int, wants_master: bool) -> Choice:
    """`wants_master`: the user named a Spark master, or came through `spark-submit`."""
    if wanted == "local":
        return Choice("local", "")
    if wanted == "spark" or wants_master:
        return Choice("spark", "")
    size = f"{bytes_total / (1 << 20):.0f} MiB of log"
    if bytes_total < LOCAL_BYTES_MAX:
        return Choice("local", f"{size}, so in this process")
    lack = spark_lack()
    if lack is None:
        return Choice("spark", f"{size}, so on Spark")
    return Choice("local", f"{size} would go to Spark, but {lack}; so in this process")


def spark_lack() -> str | None:
    """Why Spark cannot be used here, as a clause; None when it can."""
    if spark_version() is None:
        return "pyspark is not installed (`pip install 'trioha[spark]'`)"
    try:
        find_java()
    except AnalysisError as error:
        return str(error)
    return None
