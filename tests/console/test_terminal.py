"""The console in a real terminal before a real cluster; see `support.screens.console_drill`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.rig import REPO, running_processes
from support.screens.console_drill import check_restored, live_through, open_drill, read_again
from support.screens.terminal import open_terminal

pytestmark = pytest.mark.slow


def test_an_operator_lives_through_an_incident_and_reads_it_again(tmp_path: Path) -> None:
    with (
        running_processes(tmp_path) as processes,
        open_terminal() as terminal,
        open_drill(processes, terminal) as drill,
    ):
        live_through(drill)
        read_again(drill)


def test_a_signal_restores_the_terminal(tmp_path: Path) -> None:
    with open_terminal() as terminal:
        python_path = os.pathsep.join([str(REPO), str(REPO / "console")])
        command = [sys.executable, "-m", "trioha", "console", "-n", "127.0.0.1:1"]
        terminal.run(command, {"PYTHONPATH": python_path, "XDG_STATE_HOME": str(tmp_path)})
        terminal.wait_for(r"No name server answers: Connection refused")
        # To the end of the line: the console of another test may have a port that begins so.
        pattern = r"trioha console -n 127\.0\.0\.1:1$"
        found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
        for pid in found.stdout.split():
            if "python" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(int(pid), signal.SIGTERM)
        terminal.wait_for(r"^\$ ?$")
        check_restored(terminal)


def test_what_cannot_be_opened_is_a_sentence_in_the_shell(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "console")])}
    for arguments, said in (
        (["-n", "nowhere"], "'nowhere' is not an address; write HOST:PORT"),
        (["--replay", str(notes)], "notes.txt: no recording of trioha"),
        (["--replay", str(tmp_path / "none")], "does not exist"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "trioha", "console", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
