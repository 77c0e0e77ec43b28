"""Beginning and end of a read of a log, for each store, named as Kafka's source names them.

`startingOffsets`, `endingOffsets`: earliest, latest, or JSON with an offset for every store.
`startingTimestamp`, `endingTimestamp`: a time for all stores; `…OffsetsByTimestamp`: JSON with one
for every store. A time stands for the first record that was stored then or later, and for the end
of the log when there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from trioha.analysis.log_end import LogEnd
from trioha.analysis.scan import ScanFilter, plan_splits, scan_split
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import StoreFiles

EARLIEST, LATEST = "earliest", "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STARTING = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@attrs.frozen
class ReadPlace:
    """One place, in any number of logs."""

    option: str
    word: str = ""
    """`EARLIEST` or `LATEST`; empty when offsets or times say it."""
    offsets: Mapping[str, int] | None = None
    times_ms: Mapping[str, int] | None = None
    time_ms: int | None = None

    def offset_in(self, store: StoreFiles) -> int | None:
        """The offset in this log; None when the log has no record.

        Errors: AnalysisError when the option says nothing of this store.
        """
        if not store.segments:
            return None
        if self.word == EARLIEST:
            return store.segments[0].from_offset
        if self.word == LATEST:
            return LogEnd().find(store)
        if self.offsets is not None:
            return self.of(self.offsets, store.label)
        time_ms = self.time_ms
        if time_ms is None:
            time_ms = self.of(self.times_ms or {}, store.label)
        return first_at(store, time_ms)

    def of(self, values: Mapping[str, int], label: str) -> int:
        """The value of a store.

        Errors: AnalysisError when there is none.
        """
        if label not in values:
            raise AnalysisError(f"option {self.option} says nothing of {label}")
        return values[label]


def first_at(store: StoreFiles, time_ms: int) -> int:
    """Offset of the first record stored at this time or later; the log's end without one.

    Errors: AnalysisError when a file cannot be read.
    """
    late = ScanFilter(store_ms_from=time_ms)
    for split in plan_splits(store, late):
        for batch in scan_split(split, filters=late):
            if batch.row_count:
                return int(batch.numbers("phy_offset")[0])
    return LogEnd().find(store)


def place_of(options: Mapping[str, str], names: tuple[str, str, str], default: str) -> ReadPlace:
    """The place that one of these three options names.

    Errors: AnalysisError naming the option that is wrong.
    """
    given = [name for name in names if options.get(name, "").strip()]
    if len(given) > 1:
        raise AnalysisError(f"options {' and '.join(given)} say the same: give one")
    if not given:
        return ReadPlace(names[0], default)
    [name] = given
    text = options[name].strip()
    if name == names[1]:
        return ReadPlace(name, time_ms=time_option(options, name))
    if name == names[2]:
        moments = _by_store(name, text, "no JSON object with the time of every store")
        texts = {path: {name: str(value)} for path, value in moments.items()}
        times = {path: time_option(each, name) or 0 for path, each in texts.items()}
        return ReadPlace(name, times_ms=times)
    if text in (EARLIEST, LATEST):
        return ReadPlace(name, text)
    what = "neither earliest nor latest nor a JSON object with the offset of every store"
    offsets = _by_store(name, text, what)
    try:
        return ReadPlace(name, offsets={path: int(value) for path, value in offsets.items()})
    except (ValueError, TypeError):
        raise _wrong(name, text, what) from None


def _by_store(name: str, text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _wrong(name, text, what)
    return found


def _wrong(name: str, text: str, what: str) -> AnalysisError:
    return AnalysisError(f"option {name}: {text!r} is {what}" + ', like {"/data/store-a": 0}')


def time_option(options: Mapping[str, str], name: str) -> int | None:
    """Milliseconds since 1970; None when the option is not given.

    Errors: AnalysisError when it is no time.
    """
    text = options.get(name, "").strip()
    if not text:
        return None
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AnalysisError(
            f"option {name}: {text!r} is neither milliseconds since 1970 nor like "
            "2026-11-20T14:00:00 (UTC unless it says otherwise)"
        ) from None
    return -(-microseconds(moment) // 1000)


def microseconds(moment: datetime) -> int:
    """Since 1970, of a moment in UTC unless it says otherwise."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
