from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import CommandError, RemoteProtocolError
from trioha.namesrv.kv_config import KvConfig

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


def filled(table: dict[str, dict[str, str]]) -> KvConfig:
    config = KvConfig()
    for namespace, values in table.items():
        for key, value in values.items():
            config.put(namespace, key, value)
    return config


@given(st.dictionaries(WORDS, st.dictionaries(WORDS, WORDS, min_size=1, max_size=3), max_size=3))
def test_the_file_survives_the_round_trip(table: dict[str, dict[str, str]]) -> None:
    config = KvConfig.decode(filled(table).encode())
    assert {namespace: config.list(namespace) for namespace in table} == table
    assert config.version == 0


def test_the_file_is_rocketmqs() -> None:
    config = filled({"ns": {"k": "v"}})
    assert config.encode() == b'{"configTable":{"ns":{"k":"v"}}}'
    java = b'{\n\t"configTable":{"ns":{"k":"v"\n\t\t}\n\t}\n}'
    assert KvConfig.decode(java).get("ns", "k") == "v"
    assert KvConfig.decode(b"{}").list("ns") is None


def test_values_are_put_replaced_and_deleted() -> None:
    config = KvConfig()
    assert config.get("ns", "k") is None
    config.put("ns", "k", "v")
    config.put("ns", "k", "w")
    assert config.get("ns", "k") == "w"
    assert config.delete("ns", "k")
    assert not config.delete("ns", "k")
    assert not config.delete("other", "k")
    assert config.list("ns") == {}
    assert config.list("other") is None
    assert config.version == 3


def test_what_peers_can_grow_is_limited() -> None:
    config = KvConfig(entries_max=2)
    config.put("ns", "a", "1")
    config.put("other", "b", "2")
    with pytest.raises(CommandError, match="2 entries"):
        config.put("third", "c", "3")
    assert config.list("third") is None
    config.put("ns", "a", "4")
    config.delete("other", "b")
    config.put("third", "c", "3")
    for namespace, key, value in [
        ("", "k", "v"),
        ("ns", "", "v"),
        ("ns", "k" * 256, "v"),
        ("n" * 256, "k", "v"),
        ("ns", "a", "v" * 65_537),
    ]:
        with pytest.raises(CommandError):
            config.put(namespace, key, value)
    assert config.get("ns", "a") == "4"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"configTable":5}',
        b'{"configTable":{"ns":5}}',
        b'{"configTable":{"n":{"":"v"}}}',
    ],
)
def test_a_file_that_holds_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        KvConfig.decode(data)
