from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioha.store.index_file import Keyed
from trioha.store.index_hash import IndexHasher
from trioha.wire.java_hash import index_key_hash

TOPICS = st.sampled_from(["T", "Topic", "%RETRY%g"])
IDS = st.sampled_from([32, 56]).flatmap(
    lambda size: st.text("0123456789ABCDEF", min_size=size, max_size=size)
)
NEARLY = st.text("aé0F", min_size=28, max_size=34) | st.text("aé0F", min_size=52, max_size=58)
KEYS = IDS | NEARLY | st.text(max_size=60)


@settings(deadline=None)
@given(rows=st.lists(st.tuples(TOPICS, KEYS), max_size=20))
@example(rows=[("T", "é" + "0" * 30)])
@example(rows=[("T", "7F00" * 7 + "BEEF"), ("T", "7F00" * 7 + "BEE0")])
@example(rows=[("T", "FD00" * 13 + "BEEF"), ("T", "FD00" * 13 + "BEE0")])
def test_each_hash_is_java_s(rows: list[tuple[str, str]]) -> None:
    keyed: list[Keyed] = [(0, 0, topic, key.encode()) for topic, key in rows]
    hasher = IndexHasher()
    for _ in range(2):
        assert hasher.hashes(keyed) == [index_key_hash(topic, key) for topic, key in rows]


def test_what_is_remembered_is_bounded() -> None:
    hasher = IndexHasher()
    for number in range(200):
        hasher.hashes([(0, 0, f"T{number}", b"%032X" % number)])
        hasher.hashes([(0, 0, "T", b"%028X0000" % serial) for serial in range(50 * number)])
    assert len(hasher._heads) <= 64
    assert all(len(heads) <= 512 for heads in hasher._heads.values())
