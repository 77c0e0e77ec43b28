"""Choice of the engine that an analysis runs on: `--engine auto`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

EngineName = Literal["local", "spark"]
_NEEDED = ("duckdb", "numpy", "pyarrow")


def choose_engine(wanted: str, *, wants_master: bool) -> EngineName:
    """Choose Spark only if the user asks for it.

    One machine's processors are busy with the local engine too, which needs no JVM; Spark is for
    a cluster. `wants_master`: the user named a Spark master, or came through `spark-submit`.
    """
    return "spark" if wanted == "spark" or (wanted == "auto" and wants_master) else "local"


def lacking_packages() -> list[str]:
    """Name the packages of the extra `analysis` that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]
