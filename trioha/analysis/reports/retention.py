"""Growth of the stores, their contents, and the time at which the disk is full.

Segments go once they were last written longer ago than fileReservedTime, or when the disk is over
diskMaxUsedSpaceRatio; over 90 % nothing is written any more (CleanCommitLogService). A store says
neither: RocketMQ's defaults are taken. The disk is that of this machine on which the store lies, so
a forecast is for a store that was not copied elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trioha.analysis.engine import Engine, bucket
from trioha.analysis.log_end import LogEnd, held_bytes
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.days import day_table
from trioha.analysis.reports.growth import Trend, cumulative, days_until, last_trend, trend
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import DAY_MS, HOUR_MS, say_bytes, say_ms, say_share, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series, Table
from trioha.analysis.store_files import StoreFiles

SPEC = REPORTS["retention"]
NEEDS = frozenset({"commitlog_stats"})

RESERVED_MS = 72 * HOUR_MS
"""fileReservedTime."""
LIMITS = (
    ("deletes early", 0.75),  # diskMaxUsedSpaceRatio: segments go at any hour
    ("deletes unread", 0.85),  # diskSpaceCleanForciblyRatio: whatever their age
    ("refuses writes", 0.90),  # diskSpaceWarningLevelRatio
)
SOON_DAYS = 14
_SEGMENTS_MAX = 1000
_FORECAST_DAYS_MAX = 3650
"""Longest forecast: beyond it, a date says nothing, and calendars end."""


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    hours = _hours(engine)
    extents = {
        row["store"]: (row["first_ms"], row["last_ms"])
        for row in engine.query(
            "SELECT store, MIN(store_ms_min) AS first_ms, MAX(store_ms_max) AS last_ms "
            "FROM commitlog_stats GROUP BY store",
        )
    }
    findings: list[Finding] = []
    stores, forecasts, series = [], [], []
    for store in engine.stores:
        points = cumulative(hours.get(store.label, {}))
        series.append(Series(store.label, points))
        trends = {"all": trend(points), "last 7 days": last_trend(points)}
        row = _store(store, extents.get(store.label))
        stores.append(row)
        made = [each for name, line in trends.items() for each in _forecast(row, name, line)]
        forecasts += made
        findings += _findings(row, trends, made)
    return Report(
        **SPEC.heading,
        tables=[
            table(
                "stores",
                "Stores and their disks; log: up to the end of its last record",
                "store first_ms:time last_ms:time log_bytes:bytes allocated_bytes:bytes "
                "segments:integer "
                "segment_bytes:bytes queue_bytes:bytes index_bytes:bytes disk_bytes:bytes "
                "disk_used_bytes:bytes disk_used:share beyond_reserved:integer",
                stores,
            ),
            table(
                "forecast",
                "When the disk reaches what RocketMQ's defaults allow, if growth goes on",
                "store fit bytes_per_day:number:B limit limit_share:share days:number:d at_ms:time "
                "kept_bytes:bytes",
                forecasts,
            ),
            day_table(engine, extents),
            _segments(engine),
        ],
        charts=[
            Chart(
                title="Bytes stored since the first record, by store",
                kind="line",
                x_label="time (UTC)",
                y_label="bytes of records",
                x_kind="time",
                y_kind="bytes",
                series=series,
                note="Segments that were deleted before are not in it.",
            )
        ],
        findings=findings,
    )


def _hours(engine: Engine) -> dict[str, dict[int, int]]:
    rows = engine.query(
        f"SELECT store, hour_ms, SUM(bytes) AS bytes FROM (SELECT store, "
        f"{bucket('minute_ms', HOUR_MS)} AS hour_ms, bytes FROM commitlog_stats) AS t "
        "GROUP BY store, hour_ms",
    )
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        found[row["store"]][row["hour_ms"]] = row["bytes"]
    return found


def _store(store: StoreFiles, extent: tuple[int, int] | None) -> dict[str, Any]:
    """Sizes on disk. What cannot be looked at from here is None."""
    row: dict[str, Any] = {
        "store": store.label,
        "first_ms": extent[0] if extent else None,
        "last_ms": extent[1] if extent else None,
        "log_bytes": held_bytes(store),
        "allocated_bytes": sum(segment.data_end for segment in store.segments),
        "segments": len(store.segments),
        "segment_bytes": max((segment.size for segment in store.segments), default=None),
        "queue_bytes": None,
        "index_bytes": None,
        "disk_bytes": None,
        "disk_used_bytes": None,
        "disk_used": None,
        "beyond_reserved": None,
    }
    if extent is not None:
        last_ms = extent[1]
        ages = [_modified_ms(segment.path) for segment in store.segments[:-1]]
        row["beyond_reserved"] = sum(
            age is not None and age < last_ms - RESERVED_MS for age in ages
        )
    if store.root is not None:
        row["queue_bytes"] = _allocated(store.root / "consumequeue")
        row["index_bytes"] = _allocated(store.root / "index")
    place = store.root or (Path(store.segments[0].path).parent if store.segments else None)
    if place is not None and place.exists():
        usage = shutil.disk_usage(place)
        # Counted as by df: space reserved for root is neither used nor free.
        total = usage.used + usage.free
        row |= {
            "disk_bytes": total,
            "disk_used_bytes": usage.used,
            "disk_used": usage.used / total if total else None,
        }
    return row


def _modified_ms(path: str) -> int | None:
    try:
        return int(os.stat(path).st_mtime * 1000)
    except OSError:
        return None


def _allocated(directory: Path) -> int:
    """Bytes that the files below a directory take on the disk; holes take none."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_blocks * 512
            except OSError:
                continue  # deleted meanwhile
    return total


def _forecast(row: dict[str, Any], name: str, line: Trend | None) -> list[dict[str, Any]]:
    if line is None or row["disk_bytes"] is None:
        return []
    log_bytes = row["log_bytes"]
    beside = (row["queue_bytes"] or 0) + (row["index_bytes"] or 0)
    # Records make up most of a log; queues and index grow as they have grown with it.
    per_day = line.bytes_per_day * (1 + beside / log_bytes if log_bytes else 1)
    made = []
    for limit, share in LIMITS:
        days = days_until(share * row["disk_bytes"], row["disk_used_bytes"], per_day)
        at_ms = None
        if days is not None and days <= _FORECAST_DAYS_MAX:
            at_ms = row["last_ms"] + int(days * DAY_MS)
        made.append(
            {
                "store": row["store"],
                "fit": name,
                "bytes_per_day": per_day,
                "limit": limit,
                "limit_share": share,
                "days": days,
                "at_ms": at_ms,
                "kept_bytes": int(max(0.0, per_day) * RESERVED_MS / DAY_MS),
            }
        )
    return made


def _findings(
    row: dict[str, Any], trends: dict[str, Trend | None], made: list[dict[str, Any]]
) -> Iterator[Finding]:
    store = row["store"]
    if row["first_ms"] is None:
        yield Finding.warning(f"{store} holds no record in the window.")
        return
    span = say_ms(row["last_ms"] - row["first_ms"])
    yield Finding.info(
        f"{store} holds {say_bytes(row['log_bytes'])} of log from "
        f"{say_time(row['first_ms'])} on, {span}."
    )
    if not made:
        yield Finding.info(f"{store}: {span} are too short for a forecast.")
        return
    fit = "last 7 days" if trends["last 7 days"] is not None else "all"
    rows = {each["limit"]: each for each in made if each["fit"] == fit}
    refuses = rows["refuses writes"]
    kept, per_day = refuses["kept_bytes"], refuses["bytes_per_day"]
    others = row["disk_used_bytes"] - row["allocated_bytes"]
    early = rows["deletes early"]
    growth = f"{store} grows by {say_bytes(per_day)} a day ({fit})"
    if early["days"] is None:
        yield Finding.info(f"{store} does not grow ({fit}).")
    elif kept + others <= LIMITS[0][1] * row["disk_bytes"]:
        yield Finding.info(
            f"{growth}; with fileReservedTime of {say_ms(RESERVED_MS)} it settles at "
            f"{say_bytes(kept)}, and the disk of {say_bytes(row['disk_bytes'])} holds that."
        )
    else:
        yield Finding(
            "warning" if early["days"] <= SOON_DAYS else "info",
            f"{growth}; the disk ({say_share(row['disk_used_bytes'], row['disk_bytes'])} "
            f"used) reaches {say_share(LIMITS[0][1], 1)} in {early['days']:.1f} days: segments "
            f"then go before fileReservedTime ({say_ms(RESERVED_MS)}) is over.",
        )


def _segments(engine: Engine) -> Table:
    rows = []
    for store in engine.stores:
        end = LogEnd().find(store)
        for segment in store.segments[-_SEGMENTS_MAX:]:
            rows.append(
                {
                    "store": store.label,
                    "segment": Path(segment.path).name,
                    "begin_offset": segment.from_offset,
                    "size_bytes": segment.size,
                    "data_bytes": max(0, min(segment.size, end - segment.from_offset)),
                    "modified_ms": _modified_ms(segment.path),
                }
            )
    return table(
        "segments",
        f"Files of the log, the newest {_SEGMENTS_MAX} of each store",
        "store segment begin_offset:integer size_bytes:bytes data_bytes:bytes modified_ms:time",
        rows,
    )
