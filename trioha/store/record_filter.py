"""A subscription that looks at each record in the log."""

from __future__ import annotations

from collections.abc import Callable


class RecordFilter:
    """Decides by a record's property string."""

    def __init__(self, judge: Callable[[bytes], bool], cost: int = 1) -> None:
        """`judge` takes the property string as the record holds it. It must not raise.

        `cost`: steps that a call may take. A pull looks at the fewer records, the more these are.
        """
        self.cost = cost
        self._judge = judge

    def wants(self, record: bytes, begin: int = 0) -> bool:
        """Is a record taken whose property string goes from `begin` to the end?"""
        return self._judge(record[begin:])
