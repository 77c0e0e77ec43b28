"""`trioha play` and the scenarios that come with trioha."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.processes.rig import trioha_command
from support.suite.sizes import sized

from trioha.errors import TriohaError
from trioha.testing import MessageLost
from trioha.testing.playing import Scenario, load_scenario, play, shipped
from trioha.watch.recording import open_recording

SHIPPED = shipped()


@pytest.mark.parametrize("seed", range(sized(1, 20)))
@pytest.mark.parametrize("scenario", SHIPPED, ids=[one.name for one in SHIPPED])
def test_a_shipped_scenario_holds(scenario: Scenario, seed: int) -> None:
    played = play(scenario, seed=seed)
    assert played.failure is None, f"{played.failure}\n{played.story}"


def test_every_shipped_scenario_says_what_it_is() -> None:
    assert len(SHIPPED) >= 8
    assert all(one.title for one in SHIPPED)


LOSING = '''"""The only broker loses power."""
LAYOUT = "single"
SETTINGS = {"flushIntervalCommitLog": 10_000}

async def scenario(cluster):
    async with cluster.load("orders") as load:
        await load.more(20)
        await cluster.broker().power_loss()
        await cluster.broker().start()
        await load.more(5)
    await cluster.assert_nothing_lost(load.sent)
'''


def test_a_failing_scenario_says_what_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "losing.py"
    file.write_text(LOSING)
    scenario = load_scenario(str(file))
    assert (scenario.name, scenario.layout) == ("losing", "single")
    assert scenario.title == "The only broker loses power."
    played = play(scenario, seed=3)
    assert isinstance(played.failure, MessageLost)
    assert "messages are missing" in str(played.failure)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "there is no `async def scenario"),
        ("import nothing_of_that_name", "No module named"),
        ("def", "SyntaxError"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(TriohaError, match=words):
        load_scenario(str(file))


def test_a_name_that_nothing_has_is_told_with_the_nearest() -> None:
    with pytest.raises(TriohaError, match="did you mean split_brain"):
        load_scenario("split_brian")


def run_play(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    return subprocess.run(
        trioha_command("play", *arguments),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def test_two_processes_play_one_seed_alike(tmp_path: Path) -> None:
    logs = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for log in logs:
        done = run_play("power_loss", "--seed", "7", "--events", str(log))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "power_loss, seed 7: held." in done.stdout
        assert "test         power_loss broker=broker-a-0" in done.stdout
        assert done.stderr == ""
    assert logs[0].read_bytes() == logs[1].read_bytes()


def test_a_failure_is_told_with_its_story_and_recorded(tmp_path: Path) -> None:
    file, recording = tmp_path / "losing.py", tmp_path / "losing.trr"
    file.write_text(LOSING)
    done = run_play(str(file), "-q", "--record", str(recording))
    assert done.returncode == 1
    assert "losing, seed 0: failed." in done.stdout
    assert "answered SEND_OK" in done.stdout
    assert "Cluster single, seed 0:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert open_recording(recording).frames


def test_the_shipped_ones_are_listed() -> None:
    done = run_play("--list")
    assert done.returncode == 0
    assert "split_brain" in done.stdout
