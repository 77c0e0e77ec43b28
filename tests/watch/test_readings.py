from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.watch.readings import number, read, text, truth, whole, words

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "7", "1.5", "nan", "orders"]),
    st.lists(st.integers(), max_size=1),
    st.dictionaries(st.text(max_size=1), st.integers(), max_size=1),
)


@attrs.frozen(kw_only=True)
class Told:
    count: int | None
    age_s: float | None
    is_well: bool | None
    name: str | None
    error: str
    known: int


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("count", "age_s", "is_well"), ODD)))
def test_a_class_is_read_as_each_reader_reads_numbers(fields: dict[str, object]) -> None:
    told = read(Told, fields, known=1)
    assert (told.count, told.age_s, told.is_well) == (
        whole(fields, "count"),
        number(fields, "age_s"),
        truth(fields, "is_well"),
    )
    assert (told.name, told.error, told.known) == (None, "", 1)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "error"), ODD)))
def test_a_class_is_read_as_each_reader_reads_texts(fields: dict[str, object]) -> None:
    told = read(Told, fields, known=1)
    assert (told.name, told.error) == (words(fields, "name"), text(fields, "error"))


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, None), (7, 7), (True, None), (7.0, 7), (7.5, None), ("7", 7), ("x", None), ([], None)],
)
def test_a_whole_number_is_none_of_another_kind(value: object, found: int | None) -> None:
    assert read(Told, {"count": value}, known=1).count == found
