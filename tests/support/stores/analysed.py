"""A source and bins for the analysis, made by hand."""

from __future__ import annotations

from trioha.analysis.reports.bins import _VALUE_BITS_MAX, _width


class MemorySource:
    """A segment in memory: `trioha.analysis.log_source.LogSource`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def find(self, needle: bytes, begin: int, end: int) -> int:
        return self._data.find(needle, begin, end)


def bin_of(value: int) -> int:
    """Return the bin that `bin_sql` gives a value."""
    magnitude = abs(value)
    width = _width(min(magnitude.bit_length(), _VALUE_BITS_MAX))
    lower = magnitude - magnitude % width
    return -lower if value < 0 else lower
