"""The greeting of two members: the peers that are let in, and the answer to a stranger."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.peer_hello import (
    BODY_BYTES_MAX,
    PeerHello,
    PeerProofs,
    hello_of,
    pack,
    proof_of,
    unpack,
)
from trioha.errors import RemoteProtocolError

_PEERS = ("n0", "n1", "n2")
_N0 = GroupDoor("c", "g", "n0", _PEERS)
_N1 = GroupDoor("c", "g", "n1", _PEERS)
_HELLO = PeerHello.of(_N0, "n1", "h:1", b"a" * 16)


def test_a_hello_of_one_of_us_is_understood() -> None:
    assert hello_of(unpack(pack(_HELLO.plain())), _N1) == _HELLO


def test_one_that_was_added_later_is_let_in() -> None:
    hello = PeerHello.of(GroupDoor("c", "g", "n7", _PEERS), "n1", "h:1", b"a" * 16)
    assert hello_of(hello.plain(), _N1).source == "n7"


@pytest.mark.parametrize(
    ("door", "target", "words"),
    [
        (
            GroupDoor("d", "g", "n0", _PEERS),
            "n1",
            "a member of group g in cluster d wrote to g in c",
        ),
        (GroupDoor("c", "h", "n0", _PEERS), "n1", "a member of group h in cluster c"),
        (GroupDoor("c", "g", "n0", ("n0", "n1")), "n1", "n0 has another peer list than n1"),
        (_N0, "n2", "a message to n2 came to n1; compare dLegerPeers and dLegerSelfId"),
        (_N1, "n1", "another node has the id n1 too"),
    ],
)
def test_strangers_hear_what_differs(door: GroupDoor, target: str, words: str) -> None:
    hello = PeerHello.of(door, target, "h:1", b"a" * 16)
    with pytest.raises(RemoteProtocolError, match=words):
        hello_of(hello.plain(), _N1)


def test_both_ends_prove_the_secret_and_neither_proof_fits_the_other_way() -> None:
    proofs, nonce = PeerProofs("s3cret"), b"b" * 16
    of_caller, of_callee = proofs.of_caller(_HELLO, nonce), proofs.of_callee(_HELLO, nonce)
    proofs.check_caller(_HELLO, nonce, of_caller)
    proofs.check_callee(_HELLO, nonce, of_callee)
    for wrong in (
        of_callee,
        proofs.of_caller(_HELLO, b"c" * 16),
        b"",
        PeerProofs("x").of_caller(_HELLO, nonce),
    ):
        with pytest.raises(RemoteProtocolError, match="n0 cannot prove that it knows the secret"):
            proofs.check_caller(_HELLO, nonce, wrong)
    other = attrs.evolve(_HELLO, source="n2")
    with pytest.raises(RemoteProtocolError, match="n1 cannot prove"):
        proofs.check_callee(other, nonce, of_callee)


def test_without_a_secret_nothing_is_proved_and_one_that_has_one_notices() -> None:
    none, nonce = PeerProofs(""), b"b" * 16
    none.check_caller(_HELLO, nonce, none.of_caller(_HELLO, nonce))
    with pytest.raises(RemoteProtocolError, match="set dLegerSecret"):
        PeerProofs("s").check_callee(_HELLO, nonce, none.of_callee(_HELLO, nonce))
    with pytest.raises(RemoteProtocolError, match="set dLegerSecret"):
        none.check_callee(_HELLO, nonce, PeerProofs("s").of_callee(_HELLO, nonce))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        hello_of(unpack(data), _N1)


@given(
    st.lists(
        st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=16) | st.just("c"),
        max_size=9,
    )
)
def test_odd_fields_are_refused(fields: list[object]) -> None:
    with pytest.raises(RemoteProtocolError):
        hello_of(["hello", *fields], _N1)
    if len(fields) != 1 or type(fields[0]) is not bytes:
        with pytest.raises(RemoteProtocolError):
            proof_of(["proof", *fields])


def test_what_is_too_large_is_not_looked_at() -> None:
    with pytest.raises(RemoteProtocolError, match="a greeting of"):
        unpack(bytes(BODY_BYTES_MAX + 1))
