"""A recording through the same screens: played, stepped, jumped about in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, Keyboard, PaintedApp, check_snapshot
from textual.pilot import Pilot
from trioha_console.replay_actions import parse_jump
from trioha_console.replay_source import ReplaySource
from trioha_console.widgets.replay_bar import ReplayBar

from trioha.errors import TriohaError
from trioha.watch.alerts import Alerts
from trioha.watch.marks import MarkFinder
from trioha.watch.recording import Encoder, Recording
from trioha.watch.snapshot import ClusterSnapshot

SECONDS = 40
SILENT_FROM, SILENT_UNTIL = 10, 30
FIRST_MARK = SILENT_FROM + 1
"""The round of questions after it."""


def a_recording(*, marks: bool = True) -> bytes:
    """A slave that stands still for twenty seconds out of forty."""
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    encoder, finder, alerts = Encoder(), MarkFinder(), Alerts()
    parts = [encoder.begin(cluster.wall_ms, {})]
    for second in range(SECONDS):
        if second == SILENT_FROM:
            cluster.silent[slave] = "did not answer within 3 s"
        if second == SILENT_UNTIL:
            cluster.silent.clear()
        parts.append(encoder.frame(cluster.raw()))
        snapshot = ClusterSnapshot.of(cluster.raw())
        for mark in finder.look(snapshot, alerts.look(snapshot)):
            if marks:
                parts.append(encoder.mark(mark))
        cluster.tick()
    return b"".join(parts)


class Replaying(Keyboard):
    def __init__(self, app: PaintedApp, source: ReplaySource, pilot: Pilot[Any]) -> None:
        super().__init__(app, pilot)
        self.replay = source.replay

    @property
    def second(self) -> float:
        """Position of the play head in the recording, in seconds."""
        return (self.replay.at_wall_ms - self.replay.recording.start_wall_ms) / 1000


@asynccontextmanager
async def replaying(data: bytes, size: tuple[int, int] = SMALL) -> AsyncIterator[Replaying]:
    source = ReplaySource(Recording(data, "monday.trr"), "monday.trr")
    app = PaintedApp(source)
    async with app.run_test(size=size) as pilot:
        console = Replaying(app, source, pilot)
        await console.settled()
        yield console


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_recording_opens_paused_at_its_beginning(size: tuple[int, int]) -> None:
    async with replaying(a_recording(), size) as console:
        await console.press("right_square_bracket", "right_square_bracket")
        check_snapshot(f"replay-{size[0]}x{size[1]}", console.text)


async def test_the_panel_of_a_lone_set_shows_all_its_lines_on_a_small_screen() -> None:
    async with replaying(a_recording(), SMALL) as console:
        await console.press("right_square_bracket")
        for name in ("epoch", "log ends", "waiting", "clients", "disk"):
            assert f" {name:<12} " in console.text, console.text


async def test_a_jump_to_the_next_mark_shows_what_was_known_then() -> None:
    async with replaying(a_recording()) as console:
        assert "in sync" in console.text
        await console.press("right_square_bracket")
        assert console.second == FIRST_MARK
        assert "unreachable" in console.text
        assert "does not answer" in console.text
        await console.press("left_square_bracket")
        assert console.second == FIRST_MARK  # it was the first
        await console.press("comma")
        assert console.second == SILENT_FROM
        assert "unreachable" not in console.text


async def test_alerts_and_history_are_those_that_led_to_the_moment() -> None:
    async with replaying(a_recording()) as console:
        await console.press("colon", *"jump", "space", "plus", *"25s", "enter")
        assert console.second == 25
        assert [alert.rule for alert in console.app.alerts.active] == ["broker_silent"]
        history = console.app.frame.history  # type: ignore[union-attr]
        (slave,) = [one for one in console.app.frame.snapshot.replicas if not one.is_master]  # type: ignore[union-attr]
        state = history.of(slave.address)
        assert (state.state, state.since_is_known) == ("unreachable", True)
        assert not console.app.notices  # what is past rings no bell


async def test_stepping_shows_one_frame_at_a_time() -> None:
    async with replaying(a_recording()) as console:
        await console.press("full_stop", "full_stop", "full_stop")
        assert console.second == 3
        await console.press("comma")
        assert console.second == 2


async def test_playing_goes_on_by_itself_and_stops_at_the_end() -> None:
    async with replaying(a_recording()) as console:
        await console.press(*["plus"] * 8, "space")
        await console.until("the end", lambda: not console.replay.playing)
        assert console.second == SECONDS - 1
        assert console.app.frame is not None
        assert console.app.frame.wall_ms == console.replay.recording.end_wall_ms


async def test_a_click_on_the_slider_goes_there() -> None:
    async with replaying(a_recording(), LARGE) as console:
        start, width = console.app.query_one(ReplayBar)._slider
        await console.pilot.click(ReplayBar, offset=(start + width // 2, 0))
        await console.settled()
        assert abs(console.second - (SECONDS - 1) / 2) < 1


async def test_nothing_can_be_asked_or_changed_in_a_recording() -> None:
    async with replaying(a_recording()) as console:
        await console.press("F")
        assert console.app.screen is console.app.main
        await console.press("down", "enter", "tab", "tab")
        text = console.text
        assert "Overview" in text
        for word in ("Journal", "Tasks", "Ask again"):
            assert word not in text, "what cannot be had is not offered"


async def test_a_recording_cut_short_plays_to_where_it_is_whole() -> None:
    data = a_recording()
    async with replaying(data[: len(data) * 2 // 3]) as console:
        await console.press("colon", *"jump", "space", "plus", *"1h", "enter")
        assert 10 < console.second < SECONDS - 1


async def test_marks_are_found_in_a_recording_that_has_none() -> None:
    async with replaying(a_recording(marks=False)) as console:
        await console.press("right_square_bracket")
        assert console.second == FIRST_MARK


def test_what_is_no_recording_is_said_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(TriohaError, match=r"notes\.txt: no recording of trioha"):
        ReplaySource.open(path)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("+10s", 1_760_000_010_000),
        ("-1.5m", 1_759_999_910_000),
        ("+250ms", 1_760_000_000_250),
        ("08:54", 1_760_000_040_000),
        ("8:53:25", 1_760_000_005_000),
        ("2025-10-09T09:00", 1_760_000_400_000),
    ],
)
def test_the_ways_to_say_where_to(text: str, ms: int) -> None:
    assert parse_jump(text, 1_760_000_000_000) == ms


@pytest.mark.parametrize("text", ["", "later", "25:99"])
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(TriohaError, match="is no time"):
        parse_jump(text, 1_760_000_000_000)


async def test_a_recording_shows_a_groups_lag_and_rebalances_of_all_its_time() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    encoder = Encoder()
    parts = [encoder.begin(cluster.wall_ms, {})]
    for second, members in enumerate([("a",), ("a",), ("a", "b"), ("b",)]):
        rows = [[0, 100, 25 * second, 1]]
        cluster.say(master, "progress", {"billing": {"orders": rows}})
        cluster.say(master, "members/billing", {"clients": [{"client_id": x} for x in members]})
        for one in members:
            cluster.say(master, f"client/billing/{one}", {"queues": [["orders", "broker-a", 0]]})
        parts.append(encoder.frame(cluster.raw()))
        cluster.tick()
    async with replaying(b"".join(parts), LARGE) as console:
        console.app.action_group("billing")
        await console.press("tab")
        for reading in [one for one in console.app.workers if one.group == "past"]:
            await reading.wait()
        await console.press()
        assert [line.split()[1:3] for line in console.text.splitlines() if "broker-a" in line] == [
            ["left", "a"],
            ["came", "b"],
        ]
        await console.press("tab")
        assert "messages not consumed, " in console.text
        assert "100┤" in console.text
