"""The text of accounts on its way from a master to its slaves, and out of a group's log."""

from __future__ import annotations

import pytest

from trioha.broker.access_text import AccessText
from trioha.broker.metadata_ops import (
    ACCESS_CHARS_MAX,
    AccessPut,
    MetadataOp,
    decode_ops,
    encode_ops,
)
from trioha.errors import RemoteProtocolError


def test_a_text_survives_the_round_trip() -> None:
    ops: list[MetadataOp] = [AccessPut("users", "{}")]
    assert decode_ops(encode_ops(ops)) == ops


@pytest.mark.parametrize("text", [b"x", 5, None, "x" * (ACCESS_CHARS_MAX + 1)])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_ops(encode_ops([AccessPut("users", text)]))  # type: ignore[arg-type]


def test_a_master_tells_what_is_new_and_no_more() -> None:
    told: list[AccessPut] = []
    master = AccessText("users", on_op=told.append)
    for text in ("a", "a", "b"):
        master.changed_here(text)
    assert told == [AccessPut("users", "a"), AccessPut("users", "b")]
    assert master.ops() == [AccessPut("users", "b")]


def test_a_slave_writes_the_masters_text_and_tells_nobody() -> None:
    told: list[AccessPut] = []
    slave = AccessText("users", "own", on_op=told.append)
    slave.follow(AccessPut("users", "the master's"))
    assert slave.pending == "the master's"
    slave.changed_here("own")  # its file was looked at before it was written
    assert slave.newest == "the master's"
    slave.pending = None
    slave.changed_here("the master's")
    assert told == []


@pytest.mark.parametrize("kind", ["", "accounts"])
def test_a_text_of_another_kind_is_passed_over(kind: str) -> None:
    slave = AccessText(kind)
    slave.follow(AccessPut("users", "x"))
    assert slave.pending is None
    assert slave.ops() == []


def test_a_password_is_not_in_a_representation() -> None:
    assert "hush" not in repr(AccessPut("users", "hush"))
