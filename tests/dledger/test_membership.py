"""Members of the group, and the log offset from which each configuration holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger.membership import ChangeKind, Configuration, ConfigurationTable
from trioha.dledger.quorum import VoteOutcome, majority, reached_by_majority, vote_outcome
from trioha.errors import RemoteProtocolError

_THREE = Configuration.of("n0", "n1", "n2")


@given(
    st.sets(st.sampled_from("abcdefg"), min_size=1),
    st.sampled_from("abcdefg"),
    st.sampled_from(ChangeKind),
)
def test_majorities_before_and_after_a_change_have_a_member_in_common(
    voters: set[str], member: str, kind: ChangeKind
) -> None:
    before = Configuration.of(*voters)
    if kind is ChangeKind.PROMOTE and member not in voters:
        before = before.changed(ChangeKind.ADD_LEARNER, member)
    if before.obstacle(kind, member):
        return
    after = before.changed(kind, member)
    both = len(set(before.voters) | set(after.voters))
    assert majority(len(before.voters)) + majority(len(after.voters)) > both


@pytest.mark.parametrize(
    ("kind", "member", "says"),
    [
        (ChangeKind.ADD_LEARNER, "n1", "n1 is a member already"),
        (ChangeKind.ADD_LEARNER, "", "'' is no member id"),
        (ChangeKind.PROMOTE, "n1", "n1 is a voter already"),
        (ChangeKind.PROMOTE, "n9", "n9 is no member; there are n0, n1, n2"),
        (ChangeKind.REMOVE, "n9", "n9 is no member; there are n0, n1, n2"),
    ],
)
def test_changes_that_make_no_sense_are_refused(kind: ChangeKind, member: str, says: str) -> None:
    assert _THREE.obstacle(kind, member) == says


def test_the_only_voter_stays() -> None:
    assert Configuration.of("n0").obstacle(ChangeKind.REMOVE, "n0") == "n0 is the only voter"


def test_a_group_has_no_more_members_than_it_may() -> None:
    full = Configuration.of(*(f"n{number:02}" for number in range(15)))
    assert "15 members" in full.obstacle(ChangeKind.ADD_LEARNER, "m")


@pytest.mark.parametrize(
    ("voters", "learners"),
    [(("n1", "n0"), ()), (("n0", "n0"), ()), (("n0",), ("n0",)), (("",), ()), (("x" * 65,), ())],
)
def test_what_is_no_configuration_is_refused(
    voters: tuple[str, ...], learners: tuple[str, ...]
) -> None:
    with pytest.raises(RemoteProtocolError):
        Configuration(voters, learners)


def test_a_log_that_is_cut_loses_its_newest_configurations() -> None:
    four = _THREE.changed(ChangeKind.ADD_LEARNER, "n3")
    table = ConfigurationTable(((0, _THREE),)).add(100, four)
    assert table.latest == four
    assert table.cut(99).latest == _THREE
    assert table.cut(100).latest == four
    assert table.at(99) == _THREE
    assert table.drop_before(150).rows == ((100, four),)
    assert table.drop_before(50).rows == table.rows


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_a_majority_has_reached_what_is_said_and_nothing_more(values: list[int]) -> None:
    reached = reached_by_majority(values)
    assert sum(value >= reached for value in values) >= majority(len(values))
    assert sum(value > reached for value in values) < majority(len(values))


@given(st.dictionaries(st.sampled_from("abcde"), st.booleans()))
def test_votes_are_won_or_lost_when_nothing_can_change_that(votes: dict[str, bool]) -> None:
    yes = sum(votes.values())
    no = len(votes) - yes
    expected = VoteOutcome.WON if yes >= 3 else VoteOutcome.LOST if no >= 3 else VoteOutcome.PENDING
    assert vote_outcome({**votes, "stranger": True}, "abcde") is expected
