"""A group's lag and rebalances, out of recordings and journals."""

from __future__ import annotations

from support.fakes.raw_answers import RawCluster

from trioha.journal.file import Event
from trioha.watch.group_past import (
    ROUNDS_MAX,
    LagPoint,
    lags_at,
    past_of_journals,
    past_of_recording,
)
from trioha.watch.recording import Encoder, Recording

GROUP = "billing"


def told(wall_ms: int, topic: str, lag: int, consumed: int, group: str = GROUP) -> Event:
    fields = {"topic": topic, "group": group, "lag": lag, "consumer_offset": consumed}
    return Event(wall_ms, wall_ms, "consumer_lag", fields)


def test_the_lag_is_the_sum_over_topics_and_sets() -> None:
    past = past_of_journals(
        {
            "broker-a": [
                told(1000, "orders", 5, 10),
                told(2000, "%RETRY%billing", 1, 0),
                told(2000, "orders", 9, 9, group="another"),
                told(5000, "orders", 0, 15),
            ],
            "broker-b": [told(3000, "orders", 20, 1), Event(1, 4000, "role", {"lag": 7})],
        },
        GROUP,
    )
    assert past.lags == [
        LagPoint(1000, 5, 10),
        LagPoint(2000, 6, 10),
        LagPoint(3000, 26, 11),
        LagPoint(5000, 21, 16),
    ]
    assert past.rebalances == ()


def test_two_events_of_a_moment_are_one_point() -> None:
    events = [told(1000, "orders", 5, 10), told(1000, "bills", 2, 1)]
    assert past_of_journals({"broker-a": events}, GROUP).lags == [LagPoint(1000, 7, 11)]


def test_an_event_that_lacks_its_figures_is_left_out() -> None:
    odd = Event(1, 1000, "consumer_lag", {"group": GROUP, "topic": "orders", "lag": "many"})
    assert past_of_journals({"broker-a": [odd]}, GROUP).lags == []


def test_a_point_holds_until_the_next() -> None:
    lags = [LagPoint(1000, 5, 10), LagPoint(3500, 0, 15)]
    found = lags_at(lags, 0, 4000, 4)
    assert [one and one.lag for one in found] == [5, 5, 5, 0]
    assert lags_at(lags, 0, 900, 3) == [None, None, None]
    assert lags_at([], 0, 900, 1) == [None]


class Recorded:
    """A recording of one broker and a group that reads `orders`."""

    def __init__(self) -> None:
        self.cluster = RawCluster()
        self.master, _ = self.cluster.add_set("broker-a")
        self.encoder = Encoder()
        self.data = bytearray(self.encoder.begin(0, {}))

    def round(self, consumed: int, **members: list[int]) -> None:
        rows = [[0, 100, consumed, 1]]
        self.cluster.say(self.master, "progress", {GROUP: {"orders": rows}})
        clients = [{"client_id": one} for one in members]
        self.cluster.say(self.master, f"members/{GROUP}", {"clients": clients})
        for one, queues in members.items():
            answer = {"queues": [["orders", "broker-a", number] for number in queues]}
            self.cluster.say(self.master, f"client/{GROUP}/{one}", answer)
        self.cluster.tick()
        self.data += self.encoder.frame(self.cluster.raw())


def test_a_recording_tells_lag_and_rebalances_oldest_first() -> None:
    recorded = Recorded()
    recorded.round(10, a=[0, 1])
    recorded.round(60, a=[0, 1])
    recorded.round(100, a=[0], b=[1])
    recorded.round(100, b=[0, 1])
    past = past_of_recording(Recording(bytes(recorded.data)), GROUP)
    assert [one.lag for one in past.lags] == [90, 40, 0, 0]
    assert [one.consumed for one in past.lags] == [10, 60, 100, 100]
    times = [one.wall_ms for one in past.lags]
    assert times == sorted(times)
    assert [(one.what, one.client_id) for one in past.rebalances] == [
        ("came", "b"),
        ("queues", "a"),
        ("queues", "b"),
        ("left", "a"),
    ]
    assert past_of_recording(Recording(bytes(recorded.data)), "nosuch").lags == []


def test_of_a_long_recording_not_every_round_is_read() -> None:
    recorded = Recorded()
    for number in range(5):
        recorded.round(number)
    recording = Recording(bytes(recorded.data))
    recording.frames *= ROUNDS_MAX
    assert len(past_of_recording(recording, GROUP).lags) == ROUNDS_MAX


def test_a_damaged_round_is_left_out() -> None:
    recorded = Recorded()
    ends = []
    for number in range(3):
        recorded.round(number)
        ends.append(len(recorded.data))
    recorded.data[ends[0] + 30] ^= 0xFF
    past = past_of_recording(Recording(bytes(recorded.data)), GROUP)
    assert [one.consumed for one in past.lags] == [0]
