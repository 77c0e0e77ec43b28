"""A console whose terminal is gone ends, wherever it stands."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import closing

import pytest
from support.processes.rig import REPO

LIMIT_S = 60.0
"""Limit for a process that does not end. A sound one takes two seconds."""

WHILE_IT_RUNS = """
import asyncio, os
from trioha_console.hung_up import when_hung_up

async def main():
    when_hung_up(0, lambda: os._exit(7))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
AS_IT_ENDS = """
import asyncio, threading
from trioha_console.hung_up import when_hung_up

async def main():
    when_hung_up(0, lambda: None)

asyncio.run(main())
# Textual stops its thread by a write to the terminal first, and gives up when that fails.
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
"""


@pytest.mark.parametrize(("program", "code"), [(WHILE_IT_RUNS, 7), (AS_IT_ENDS, 1)])
def test_a_process_ends_with_its_terminal(program: str, code: int) -> None:
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "rb", buffering=0)) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "console")])},
        )
        with process:
            os.close(theirs)
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"ready\n"
                terminal.close()
                assert process.wait(LIMIT_S) == code
            finally:
                process.kill()
