"""A filter of records that remembers its answers by the values that they depend on.

Theory of operation. A filter that takes one message of a hundred is asked about ninety-nine others,
and nearly all of them have values that it has seen: a region, a type, a level. An answer depends on
nothing but the values of the properties that the expression names. So these are found in the
record's property string, undecoded, and looked up; only values that are new are decoded and
evaluated. The table begins anew when it is full. Where values hardly come twice, an identifier for
instance, it is not asked for the next thousands of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trioha.store.record_filter import RecordFilter
from trioha.wire.properties import property_mark, raw_property

NAMES_MAX: Final = 4
"""A longer expression names so many properties that decoding all of them is quicker."""
_ANSWERS_MAX: Final = 256
_VALUE_BYTES_MAX: Final = 64
_PASSED_OVER: Final = 16_384


class KnownAnswers(RecordFilter):
    """Answers of one expression."""

    def __init__(
        self, names: tuple[str, ...], evaluate: Callable[[dict[str, str]], bool], cost: int = 1
    ) -> None:
        super().__init__(cost)
        self._names = names
        self._marks = [property_mark(name) for name in names]
        self._first_mark = self._marks[0]
        self._has_one_name = len(names) == 1
        self._evaluate = evaluate
        self._by_value: dict[bytes | None, bool] = {}
        self._by_values: dict[tuple[bytes | None, ...], bool] = {}
        self._asked = 0
        """Questions since the table began anew."""
        self._passed_over = 0
        """Questions that are still to be answered without the table."""

    def wants(self, record: bytes, begin: int = 0) -> bool:
        """Is a record taken whose property string goes from `begin` to the end? HOT."""
        if self._passed_over:
            self._passed_over -= 1
            return self._answer(self._values(record, begin))
        self._asked += 1
        if self._has_one_name:
            value = raw_property(record, self._first_mark, begin)
            answer = self._by_value.get(value)
            if answer is None:
                answer = self._answer((value,))
                if value is None or len(value) <= _VALUE_BYTES_MAX:
                    if len(self._by_value) >= _ANSWERS_MAX:
                        self._begin_anew()
                    self._by_value[value] = answer
            return answer
        values = self._values(record, begin)
        answer = self._by_values.get(values)
        if answer is None:
            answer = self._answer(values)
            if sum([len(value) for value in values if value is not None]) <= _VALUE_BYTES_MAX:
                if len(self._by_values) >= _ANSWERS_MAX:
                    self._begin_anew()
                self._by_values[values] = answer
        return answer

    def _begin_anew(self) -> None:
        if self._asked < 2 * _ANSWERS_MAX:
            # Fewer than half of the values had come before: the table costs more than it saves.
            self._passed_over = _PASSED_OVER
        self._asked = 0
        self._by_value.clear()
        self._by_values.clear()

    def _values(self, record: bytes, begin: int) -> tuple[bytes | None, ...]:
        if self._has_one_name:
            return (raw_property(record, self._first_mark, begin),)
        return tuple([raw_property(record, mark, begin) for mark in self._marks])

    def _answer(self, values: tuple[bytes | None, ...]) -> bool:
        known: dict[str, str] = {}
        for index, value in enumerate(values):
            if value is not None:
                known[self._names[index]] = str(value, "utf-8", "replace")
        return self._evaluate(known)
