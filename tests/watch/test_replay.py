"""The play head: it moves by time, jumps to marks, and shows what was current."""

from __future__ import annotations

import pytest
from support.fakes.raw_answers import RawCluster

from trioha.watch.alerts import Alerts
from trioha.watch.marks import ALERT, LINK, NODE, ROLE, MarkFinder, counted
from trioha.watch.recording import Encoder, Recording
from trioha.watch.replay import SPEEDS, Replay
from trioha.watch.snapshot import ClusterSnapshot


def incident(*, with_marks: bool = True) -> Recording:
    """60 s: at 20 s the slave is silent, at 30 s its link is gone, at 40 s it is master."""
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    encoder, finder, alerts = Encoder(), MarkFinder(), Alerts()
    data = encoder.begin(cluster.wall_ms, {})
    for second in range(60):
        if second == 20:
            cluster.silent[slave] = "did not answer within 3 s"
        if second == 30:
            cluster.statuses[master]["connections"] = []
        if second == 40:
            cluster.silent = {master: "connection refused"}
            cluster.statuses[slave].update(standing="MASTER", epoch=2, slave=None)
        cluster.tick()
        raw = cluster.raw()
        data += encoder.frame(raw)
        snapshot = ClusterSnapshot.of(raw)
        for mark in finder.look(snapshot, alerts.look(snapshot)):
            if with_marks:
                data += encoder.mark(mark)
    return Recording(data)


def seconds(replay: Replay) -> float:
    return (replay.at_wall_ms - replay.recording.start_wall_ms) / 1000


def test_an_incident_leaves_its_marks() -> None:
    recording = incident()
    told = [
        (mark.kind, (mark.wall_ms - recording.start_wall_ms) // 1000) for mark in recording.marks
    ]
    assert (NODE, 20) in told
    assert (LINK, 30) in told
    assert (ROLE, 40) in told
    assert counted(recording.marks)[ALERT] >= 3
    (role,) = [mark for mark in recording.marks if mark.kind == ROLE]
    assert role.text == "broker-a: 10.0.1.2:10911 is master now, after 10.0.1.1:10911"


def test_a_recording_without_marks_is_looked_through_for_them() -> None:
    assert Replay(incident(with_marks=False)).marks == Replay(incident()).marks


def test_playing_moves_by_time_and_speed_and_stops_at_the_end() -> None:
    replay = Replay(incident())
    assert not replay.advance(5)  # it stands
    replay.play()
    assert replay.advance(1.0)
    assert (replay.number, seconds(replay)) == (1, 1.0)
    assert not replay.advance(0.4)  # the same frame
    assert replay.advance(0.6)
    replay.speed = 10
    replay.advance(2)
    assert seconds(replay) == 22
    replay.advance(100)
    assert replay.is_at_end
    assert not replay.playing
    assert replay.share == 1
    replay.play(2.0)  # from the start
    assert (seconds(replay), replay.playing, replay.speed) == (0, True, 2.0)
    replay.pause()
    assert not replay.playing


def test_jumping_from_mark_to_mark_shows_the_frame_of_each() -> None:
    replay = Replay(incident())
    mark = replay.next_mark()
    assert mark is not None
    assert (mark.kind, replay.at_wall_ms) == (NODE, mark.wall_ms)
    slave = ClusterSnapshot.of(replay.raw).replica("10.0.1.2:10911")
    assert slave is not None
    assert slave.answer.error
    times = [seconds(replay)]
    while replay.next_mark() is not None:
        times.append(seconds(replay))
    assert times == sorted(set(times))
    assert replay.previous_mark() is not None
    replay.seek(0)
    before = replay.at_wall_ms
    assert replay.previous_mark() is None
    assert replay.at_wall_ms == before


def test_stepping_and_the_slider_stay_within_the_recording() -> None:
    replay = Replay(incident())
    replay.play()
    assert replay.step()
    assert (replay.number, replay.playing) == (1, False)
    assert replay.step(-1)
    assert not replay.step(-1)
    assert replay.step(10_000)
    assert replay.is_at_end
    replay.seek_share(0.5)
    assert replay.number == 29
    assert replay.share == pytest.approx(0.5, abs=0.02)
    replay.seek_share(7)
    assert replay.is_at_end


def test_the_frames_that_led_here_fill_a_history() -> None:
    replay = Replay(incident())
    replay.seek_share(0.5)
    raws = list(replay.before(10))
    assert len(raws) == 10
    assert raws[-1] == replay.raw
    replay.seek(0)
    assert len(list(replay.before(10))) == 1


def test_speeds_go_up_and_down_and_end() -> None:
    replay = Replay(incident())
    replay.faster()
    assert replay.speed == 2.0
    replay.slower()
    replay.slower()
    assert replay.speed == 0.5
    for _ in range(20):
        replay.faster()
    assert replay.speed == SPEEDS[-1]
    for _ in range(20):
        replay.slower()
    assert replay.speed == SPEEDS[0]


def test_a_node_that_is_silent_has_not_changed_its_role() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    finder = MarkFinder()
    finder.look(ClusterSnapshot.of(cluster.raw()))
    cluster.silent[master] = "gone"
    cluster.tick()
    (mark,) = finder.look(ClusterSnapshot.of(cluster.raw()))
    assert mark.kind == NODE
    cluster.silent.clear()
    cluster.tick()
    (mark,) = finder.look(ClusterSnapshot.of(cluster.raw()))
    assert mark.text.endswith("answers again")
