"""`trioha produce --delay` and `trioha timers list` at real nodes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.processes.admin import put_topic
from support.processes.rig import Processes, trioha_broker, trioha_namesrv


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trioha", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_messages_that_wait_are_sent_and_listed(processes: Processes) -> None:
    namesrv = trioha_namesrv(processes).start()
    broker = trioha_broker(processes, namesrv.address).start()
    put_topic(broker.address, "orders", 2)
    here = "-n", namesrv.address
    produce = *("produce", *here, "-t", "orders", "--count", "2"), "--each"
    sent = run(*produce, "--delay", "90m")
    assert sent.returncode == 0, sent.stderr
    assert json.loads(sent.stdout.splitlines()[0])["recall_handle"]
    refused = run(*produce, "--deliver-at", "2099-01-01T00:00")
    assert refused.returncode != 0
    assert "timerMaxDelaySec" in refused.stderr
    both = run(*produce, "--delay", "1s", "--delay-level", "3")
    assert both.returncode == 2
    assert "give one of --delay-level, --delay and --deliver-at" in both.stderr
    text = run("timers", "list", *here).stdout
    assert text.startswith("pending timer messages: broker-a 2\n")
    assert "orders" in text
    found = json.loads(run("timers", "list", *here, "-o", "json", "--count", "1").stdout)
    assert found["broker-a"]["count"] == 2
    assert [one["topic"] for one in found["broker-a"]["shown"]] == ["orders"]
