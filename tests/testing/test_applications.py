"""`trioha dev` for applications in Java and JavaScript: their own test runners, stock clients."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.peers.clients import JS, require_client
from support.peers.java import require_java
from support.processes.rig import trioha_command

APPLICATIONS = Path(__file__).parent / "applications"
PATIENCE_S = 280
DEV = ("dev", "pair", "--fault-port", "0", "--")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        trioha_command(*DEV, *command),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
    )


@pytest.mark.interop
def test_a_maven_project_tests_itself_across_a_failover(tmp_path: Path) -> None:
    require_java()
    project = tmp_path / "application"
    shutil.copytree(APPLICATIONS / "java", project)
    done = run("mvn", "-q", "-B", "-f", str(project), "test")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    report = (project / "target/surefire-reports/TEST-FailoverTest.xml").read_text()
    assert 'tests="1" errors="0" skipped="0" failures="0"' in report


@pytest.mark.slow
def test_a_node_project_tests_itself_across_a_failover() -> None:
    require_client("js")
    script = (
        # The client can send to topics that exist.
        f"echo made | {' '.join(trioha_command('produce', '-t', 'orders'))} > /dev/null"
        # The library leaves timers. The reporter of no terminal is another one since Node.js 24.
        " && exec node --test --test-force-exit --test-reporter=tap"
        f" {APPLICATIONS / 'js' / 'failover.test.js'}"
    )
    done = run("sh", "-c", script, NODE_PATH=str(JS / "node_modules"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "# pass 1\n# fail 0\n" in done.stdout
