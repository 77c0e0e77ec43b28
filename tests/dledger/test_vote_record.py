"""Term and vote on disk: whole, ours, or an error that names the cure."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger.bootstrap import Birth
from trioha.dledger.message_codec import TERM_MAX, GroupDoor
from trioha.dledger.ready import HardState
from trioha.dledger.vote_record import VoteRecord, decode_vote_record, encode_vote_record
from trioha.errors import StoreError
from trioha.store.two_slot_file import TwoSlotFile

_OWNER = GroupDoor("c", "g", "n1", ("n0", "n1", "n2"))


@given(
    st.builds(
        HardState,
        term=st.integers(0, TERM_MAX),
        voted_for=st.text(max_size=20),
        impaired=st.booleans(),
        committed_offset=st.integers(0, 2**63 - 1),
    )
)
def test_what_was_saved_is_read(hard: HardState) -> None:
    assert decode_vote_record(encode_vote_record(hard, _OWNER), _OWNER).hard == hard


@pytest.mark.parametrize("hard", [None, HardState(3, "n0")])
def test_how_the_group_began_is_kept_beside_the_vote(hard: HardState | None) -> None:
    birth = Birth(b"n" * 16, {"n0": b"m" * 16, "n1": b"n" * 16}, "n0")
    data = encode_vote_record(hard, _OWNER, birth)
    assert decode_vote_record(data, _OWNER) == VoteRecord(hard, birth)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError):
        decode_vote_record(data, _OWNER)


@pytest.mark.parametrize(
    "other",
    [
        GroupDoor("c", "g", "n2", ("n0", "n1", "n2")),
        GroupDoor("c", "h", "n1", ("n0", "n1", "n2")),
        GroupDoor("d", "g", "n1", ("n0", "n1", "n2")),
    ],
)
def test_the_record_of_another_member_is_refused(other: GroupDoor) -> None:
    data = encode_vote_record(HardState(3, "n0"), other)
    with pytest.raises(StoreError, match=r"this store belongs to .* correct dLegerSelfId"):
        decode_vote_record(data, _OWNER)


@pytest.mark.parametrize(("term", "committed"), [(-1, 0), (TERM_MAX + 1, 0), ("1", 0), (1, -1)])
def test_numbers_out_of_range_are_damage(term: object, committed: object) -> None:
    birth: list[object] = [b"", {}, ""]
    data = msgpack.packb([1, "c", "g", "n1", [term, "", False, committed], birth])
    with pytest.raises(StoreError, match="is damaged"):
        decode_vote_record(data, _OWNER)


def test_a_vote_outlives_a_torn_save(tmp_path: Path) -> None:
    file = TwoSlotFile(tmp_path / "raft")
    file.save(encode_vote_record(HardState(3, "n0"), _OWNER))
    file.save(encode_vote_record(HardState(4, "n1"), _OWNER))
    newest = max(tmp_path.iterdir(), key=lambda path: path.read_bytes()[8:16])
    newest.write_bytes(newest.read_bytes()[:20])
    payload = TwoSlotFile(tmp_path / "raft").payload
    assert payload is not None
    assert decode_vote_record(payload, _OWNER).hard == HardState(3, "n0")
