"""A subscription that looks at each record in the log."""

from __future__ import annotations

from collections.abc import Callable


class RecordFilter:
    """Decides by a record's property string; how, a subclass says."""

    def __init__(self, cost: int) -> None:
        """`cost`: steps that a call may take. A pull looks at the fewer records, the more these
        are."""
        self.cost = cost

    def wants(self, record: bytes, begin: int = 0) -> bool:
        """Is a record taken whose property string goes from `begin` to the end? Must not raise."""
        raise NotImplementedError


class PropertyFilter(RecordFilter):
    """Asks a function, which takes the property string as the record holds it."""

    def __init__(self, judge: Callable[[bytes], bool], cost: int = 1) -> None:
        """`judge` must not raise."""
        super().__init__(cost)
        self._judge = judge

    def wants(self, record: bytes, begin: int = 0) -> bool:
        """Is a record taken whose property string goes from `begin` to the end?"""
        return self._judge(record[begin:])
