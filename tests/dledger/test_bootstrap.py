"""Members that may begin, and members that may not: by what members say of themselves."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger.bootstrap import Begin, Birth, Impaired, PeerNote, WaitForMembers, decide
from trioha.dledger.membership import Configuration
from trioha.errors import RemoteProtocolError

_FOUNDERS = ("n0", "n1", "n2")


def nonce(member: str) -> bytes:
    return member.encode().ljust(16, b"-")


def new(member: str, **more: Any) -> PeerNote:
    """A member with an empty disk."""
    note = PeerNote(begun=False, birth=Birth(nonce(member)), log_bytes=0, has_terms=False)
    return attrs.evolve(note, **more)


def begun(member: str, *, seed: str = "", **nonces: bytes) -> PeerNote:
    """A founder of a group in which the others had these nonces."""
    founders = {one: nonce(one) for one in _FOUNDERS} | nonces
    return new(member, begun=True, birth=Birth(nonce(member), founders, seed))


def test_a_group_begins_when_all_founders_are_there_and_new() -> None:
    decision = decide("n0", _FOUNDERS, new("n0"), {"n1": new("n1"), "n2": new("n2")})
    assert decision == Begin(Birth(nonce("n0"), {one: nonce(one) for one in _FOUNDERS}))


def test_a_group_of_one_begins_alone() -> None:
    assert decide("n0", ("n0",), new("n0"), {}) == Begin(Birth(nonce("n0"), {"n0": nonce("n0")}))


def test_who_is_missing_is_waited_for_by_name() -> None:
    decision = decide("n0", _FOUNDERS, new("n0"), {"n1": new("n1")})
    assert isinstance(decision, WaitForMembers)
    assert decision.reason.startswith("waits for n2:")


def test_a_founder_that_was_away_for_a_moment_finds_its_own_nonce_and_begins() -> None:
    decision = decide("n0", _FOUNDERS, new("n0"), {"n1": begun("n1")})
    assert decision == Begin(Birth(nonce("n0"), {one: nonce(one) for one in _FOUNDERS}))


def test_a_founder_whose_disk_was_replaced_never_votes() -> None:
    notes = {"n1": begun("n1", n0=b"x" * 16), "n2": new("n2")}
    decision = decide("n0", _FOUNDERS, new("n0"), notes)
    assert isinstance(decision, Impaired)
    assert "trioha raft remove" in decision.reason


def test_one_that_knows_another_disk_of_ours_outweighs_one_that_knows_this() -> None:
    notes = {"n1": begun("n1"), "n2": begun("n2", n0=b"x" * 16)}
    assert isinstance(decide("n0", _FOUNDERS, new("n0"), notes), Impaired)


def test_a_wiped_founder_among_members_that_came_later_never_votes() -> None:
    leader = new("n4", begun=True, is_leader=True, voters=("n0", "n3", "n4"))
    assert isinstance(decide("n0", _FOUNDERS, new("n0"), {"n4": leader}), Impaired)


def test_while_another_founder_may_testify_it_is_waited_for() -> None:
    leader = new("n4", begun=True, is_leader=True, voters=("n0", "n1", "n4"))
    decision = decide("n0", _FOUNDERS, new("n0"), {"n4": leader})
    assert isinstance(decision, WaitForMembers)
    assert decision.reason.startswith("waits for n1, n2:")


def test_a_converted_store_founds_the_group_alone() -> None:
    notes = {"n1": new("n1"), "n2": new("n2", log_bytes=7, has_terms=True)}
    decision = decide("n0", _FOUNDERS, new("n0"), notes)
    assert isinstance(decision, Begin)
    assert decision.birth.seed == "n2"
    assert decision.birth.configuration(_FOUNDERS) == Configuration(("n2",), ("n0", "n1"))


def test_two_founders_with_messages_do_not_begin() -> None:
    notes = {"n1": new("n1", log_bytes=3, has_terms=True), "n2": new("n2")}
    ours = new("n0", log_bytes=7, has_terms=True)
    decision = decide("n0", _FOUNDERS, ours, notes)
    assert isinstance(decision, WaitForMembers)
    assert decision.reason.startswith("n0 and n1 have messages")


def test_a_master_slave_store_has_to_be_converted_first() -> None:
    notes = {"n1": new("n1"), "n2": new("n2")}
    decision = decide("n0", _FOUNDERS, new("n0", log_bytes=7), notes)
    assert isinstance(decision, WaitForMembers)
    assert "trioha raft convert" in decision.reason


def test_a_log_without_a_vote_record_joins_no_living_group() -> None:
    ours = new("n0", log_bytes=7, has_terms=True)
    notes = {"n1": begun("n1", n0=b"y" * 16)}
    decision = decide("n0", _FOUNDERS, ours, notes)
    assert isinstance(decision, WaitForMembers)
    assert "start with an empty one" in decision.reason


def test_who_is_added_later_waits_for_the_leader_and_begins() -> None:
    leader = attrs.evolve(begun("n1"), is_leader=True, voters=_FOUNDERS)
    assert isinstance(decide("n3", _FOUNDERS, new("n3"), {"n0": begun("n0")}), WaitForMembers)
    assert decide("n3", _FOUNDERS, new("n3"), {"n1": leader}) == Begin(Birth(nonce("n3")))


def test_who_was_added_and_lost_its_disk_never_votes() -> None:
    leader = attrs.evolve(begun("n1"), is_leader=True, voters=("n0", "n1", "n3"))
    assert isinstance(decide("n3", _FOUNDERS, new("n3"), {"n1": leader}), Impaired)


def test_notes_survive_the_wire() -> None:
    note = attrs.evolve(begun("n1", seed="n2"), is_leader=True, voters=_FOUNDERS, log_bytes=5)
    assert PeerNote.of_plain(note.plain()) == note


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=20),
        lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=20,
    )
)
def test_anything_else_is_no_note(plain: object) -> None:
    with pytest.raises(RemoteProtocolError):
        PeerNote.of_plain(plain)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        (1, b"short", "nonce of a wrong size"),
        (1, "text", "nonce of a wrong size"),
        (7, [7], "no member id"),
        (7, ["n" * 1000], "no member id"),
        (7, ["n\n"], "no member id"),
        (8, 7, "does not name its leader"),
        (9, "a" * 100_000, "does not name its leader"),
    ],
)
def test_a_note_with_a_false_field_is_refused(field: int, value: object, says: str) -> None:
    plain = begun("n1").plain()
    plain[field] = value
    with pytest.raises(RemoteProtocolError, match=says):
        PeerNote.of_plain(plain)


@pytest.mark.parametrize("seed", range(300))
def test_no_order_of_events_founds_a_group_twice(seed: int) -> None:
    """Members of three start, exchange notes, die and lose disks in any order: a member that has
    begun on one disk and was wiped never begins again with a vote."""
    rng = Random(seed)
    disks = {one: 0 for one in _FOUNDERS}
    births: dict[str, Birth | None] = dict.fromkeys(_FOUNDERS)
    impaired: set[str] = set()
    begun_on: dict[str, set[int]] = {one: set() for one in _FOUNDERS}

    def note(member: str) -> PeerNote:
        own = f"{member}-{disks[member]}".encode().ljust(16, b"-")
        birth = births[member]
        is_impaired = member in impaired
        kept = attrs.evolve(birth, nonce=own) if birth is not None else Birth(own)
        return PeerNote(
            begun=birth is not None or is_impaired, birth=kept, log_bytes=0, has_terms=False
        )

    for _ in range(40):
        member = rng.choice(_FOUNDERS)
        if rng.random() < 0.15:
            disks[member] += 1
            births[member] = None
            impaired.discard(member)
            continue
        if births[member] is not None or member in impaired:
            continue
        others = [one for one in _FOUNDERS if one != member and rng.random() < 0.8]
        decision = decide(member, _FOUNDERS, note(member), {one: note(one) for one in others})
        if isinstance(decision, Begin):
            births[member] = decision.birth
            begun_on[member].add(disks[member])
        elif isinstance(decision, Impaired):
            impaired.add(member)
    # A group may die with all its disks and be founded anew; as long as one member remembers it,
    # no member has begun on two disks of that group.
    for member in _FOUNDERS:
        for other in _FOUNDERS:
            birth = births[other]
            if birth is not None and birth.founders and births[member] is not None:
                own = f"{member}-{disks[member]}".encode().ljust(16, b"-")
                assert birth.founders[member] == own
