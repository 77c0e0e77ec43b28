"""The judge itself: every kind of broken promise, fabricated, must be found, and nothing else."""

from __future__ import annotations

import math

import attrs
import pytest
from support.histories.judge import Commit, History, Look, Read, TopicChange
from support.histories.messages import Place, Put, Stored

SIZE = 100


def stored(name: str, queue_id: int, queue_offset: int, index: int) -> Stored:
    return Stored(name, 1, 1, Place(queue_id, queue_offset, index * SIZE))


LOG = [stored("a", 0, 0, 0), stored("b", 1, 0, 1), stored("c", 0, 1, 2), stored("d", 0, 2, 3)]
PUTS = {
    "a": Put(name="a", client="x", began_s=0.0, ended_s=1.0, outcome="acknowledged"),
    "b": Put(name="b", client="y", began_s=0.0, ended_s=1.5, outcome="acknowledged"),
    "c": Put(name="c", client="x", began_s=1.1, ended_s=9.0),
    "d": Put(name="d", client="y", began_s=2.0, ended_s=3.0, outcome="acknowledged"),
    "r": Put(name="r", client="x", began_s=9.1, ended_s=9.2, outcome="refused", detail="no"),
    "u": Put(name="u", client="x", began_s=9.3),
}


def history(*, reads: list[Read] | None = None, **changed: Put | None) -> History:
    """A good one, with some puts changed or taken out."""
    told = {one.name: one.place for one in LOG}
    puts = {
        name: attrs.evolve(put, place=told[name]) if put.outcome == "acknowledged" else put
        for name, put in PUTS.items()
    } | changed
    return History([put for put in puts.values() if put is not None], reads or [])


def read(name: str, queue_offset: int, queue_id: int = 0, client: str = "reader") -> Read:
    return Read(client=client, queue_id=queue_id, queue_offset=queue_offset, name=name, at_s=5.0)


def test_a_good_history_is_good() -> None:
    good = history(reads=[read("a", 0), read("b", 0, 1), read("c", 1), read("d", 2)])
    good.strict_readers.add("reader")
    good.check(LOG)


def test_what_has_no_outcome_may_be_there_or_not() -> None:
    history().check([*LOG, stored("u", 0, 3, 4)])
    without_c = [LOG[0], LOG[1], stored("d", 0, 1, 2)]
    history(d=attrs.evolve(PUTS["d"], place=Place(0, 1, 200))).check(without_c)


@pytest.mark.parametrize(
    ("log", "finding"),
    [
        (LOG[:3], "d was acknowledged to y"),
        ([*LOG, stored("d", 0, 3, 4)], "d is stored 2 times"),
        ([*LOG, stored("u", 0, 3, 4), stored("u", 0, 4, 5)], "u is stored 2 times"),
        ([*LOG, stored("r", 0, 3, 4)], r"r was refused \(no\)"),
        ([*LOG, stored("stranger", 0, 3, 4)], "stranger was never sent"),
        ([*LOG[:3], stored("d", 0, 3, 3)], "queue 0 is not dense: record 2 has offset 3"),
        ([*LOG, stored("u", 0, 2, 4)], "queue 0 is not dense: record 3 has offset 2"),
        ([*LOG[:2], stored("c", 0, 2, 2), stored("d", 0, 1, 3)], "d was told"),
        ([*LOG[:3], stored("d", 0, 2, 4)], "d was told"),
        ([*LOG[:3], stored("d", 1, 1, 3)], "d was told"),
    ],
    ids=[
        "an acknowledged one is lost",
        "an acknowledged one is there twice",
        "an unknown one is there twice",
        "a refused one is there",
        "one is made up",
        "a hole",
        "an offset given twice",
        "another queue offset than told",
        "another physical offset than told",
        "another queue than told",
    ],
)
def test_each_fault_of_a_log_is_found(log: list[Stored], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        history().check(log)


def test_what_began_after_an_answer_is_not_stored_before_it() -> None:
    late = attrs.evolve(PUTS["a"], began_s=4.0, ended_s=5.0, place=LOG[0].place)
    with pytest.raises(AssertionError, match="a began after the answer to d"):
        history(a=late).check(LOG)


def test_nor_is_what_never_got_an_answer() -> None:
    with pytest.raises(AssertionError, match="c began after the answer to d"):
        history(c=attrs.evolve(PUTS["c"], began_s=3.5)).check(LOG)


def test_at_the_same_time_any_order_is_good() -> None:
    both = attrs.evolve(PUTS["a"], began_s=2.5, ended_s=5.0, place=LOG[0].place)
    history(a=both).check(LOG)


@pytest.mark.parametrize(
    ("reads", "finding"),
    [
        ([read("u", 3)], "read u at offset 3 of queue 0, where the log has nothing"),
        ([read("u", 1)], "read u at offset 1 of queue 0, where the log has c"),
        ([read("c", 0, 1)], "read c at offset 0 of queue 1, where the log has b"),
    ],
    ids=["taken back", "replaced", "in another queue"],
)
def test_whoever_saw_what_was_never_committed_is_heard(reads: list[Read], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        history(reads=reads).check(LOG)


@pytest.mark.parametrize(
    ("reads", "finding"),
    [
        ([read("a", 0), read("d", 2)], "was given offset 2 of queue 0 after 0"),
        ([read("a", 0), read("a", 0)], "was given offset 0 of queue 0 after 0"),
        ([read("c", 1)], "was given offset 1 of queue 0 after -1"),
    ],
    ids=["one is skipped", "one is there twice", "the first is not there"],
)
def test_a_reader_that_goes_on_misses_nothing(reads: list[Read], finding: str) -> None:
    strict = history(reads=reads)
    strict.check(LOG)
    strict.strict_readers.add("reader")
    with pytest.raises(AssertionError, match=finding):
        strict.check(LOG)


def test_a_client_that_tries_again_may_store_twice_but_is_told_the_truth() -> None:
    again = attrs.evolve(PUTS["d"], retries=True, place=Place(0, 3, -1))
    history(d=again).check([*LOG, stored("d", 0, 3, 4)])
    with pytest.raises(AssertionError, match="d was told"):
        history(d=attrs.evolve(again, place=Place(0, 4, -1))).check([*LOG, stored("d", 0, 3, 4)])
    with pytest.raises(AssertionError, match="d was acknowledged"):
        history(d=again).check(LOG[:3])


def commit(value: int, began_s: float, ended_s: float = math.inf) -> Commit:
    return Commit(
        key="g",
        value=value,
        began_s=began_s,
        ended_s=ended_s,
        acknowledged=not math.isinf(ended_s),
    )


def look(value: int, began_s: float, key: str = "g") -> Look:
    return Look(key=key, value=value, began_s=began_s, ended_s=began_s + 0.1, member="n1")


COMMITS = [commit(1, 0.0, 0.5), commit(2, 1.0, 1.5), commit(3, 2.0)]


@pytest.mark.parametrize(
    "looks",
    [
        [look(0, 0.1), look(1, 0.2)],
        [look(1, 1.1), look(2, 1.6)],
        [look(2, 2.1), look(3, 5.0)],
        [look(2, 2.1), look(2, 5.0)],
        [look(0, 9.0, key="another")],
    ],
    ids=["not yet", "under way", "unknown became known", "unknown was lost", "never committed"],
)
def test_progress_that_is_true_is_good(looks: list[Look]) -> None:
    History(commits=list(COMMITS), looks=looks).check([])


@pytest.mark.parametrize(
    ("looks", "finding"),
    [
        ([look(0, 0.6)], "g was 1, then 0 at n1"),
        ([look(1, 1.6)], "g was 2, then 1 at n1"),
        ([look(3, 2.1), look(2, 3.0)], "g was 3, then 2 at n1"),
        ([look(-1, 0.6)], "g was 1, then -1 at n1"),
        ([look(3, 1.7)], "g is 3 at n1, and 2 was the most asked for"),
    ],
    ids=["forgotten", "an older one", "seen, then not", "gone", "from the future"],
)
def test_progress_that_goes_back_is_found(looks: list[Look], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        History(commits=list(COMMITS), looks=looks).check([])


MADE = TopicChange(topic="t", made=True, acknowledged=True)
GONE = TopicChange(topic="t", made=False, acknowledged=True)
LOST = TopicChange(topic="t", made=False)


@pytest.mark.parametrize(
    ("changes", "there"),
    [
        ([MADE], True),
        ([MADE, GONE], False),
        ([MADE, LOST], True),
        ([MADE, LOST], False),
        ([LOST, GONE], False),
    ],
    ids=["made", "deleted", "perhaps not deleted", "perhaps deleted", "deleted after all"],
)
def test_topics_that_are_as_they_were_told_are_good(
    changes: list[TopicChange], there: bool
) -> None:
    topics = {"n0": {"t"} if there else set()}
    History(topic_changes=changes, topics=topics).check([])


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ([MADE], "topic t was made, and is not there at n1"),
        ([MADE, GONE], "topic t was deleted, and is there at n0"),
    ],
    ids=["made", "deleted"],
)
def test_a_topic_that_one_member_has_otherwise_is_found(
    changes: list[TopicChange], finding: str
) -> None:
    topics = {"n0": {"t"}, "n1": set[str]()}
    with pytest.raises(AssertionError, match=finding):
        History(topic_changes=changes, topics=topics).check([])


def test_an_account_counts_what_the_judge_finds() -> None:
    good = history()
    good.looks.append(Look(key="g", value=7, began_s=1.0, ended_s=2.0))
    assert set(good.counts(LOG).values()) == {0}
    good.looks.append(Look(key="g", value=6, began_s=3.0, ended_s=4.0))
    assert good.counts([one for one in LOG if one.name != "a"]) == {
        "acknowledged_lost": 1,
        "queue_offset_faults": 1,
        "progress_regressions": 1,
    }
