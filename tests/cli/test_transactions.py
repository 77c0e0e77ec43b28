"""`trioha transactions list` at real nodes, with access to what an operator sees."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from support.handlers.transactions import half
from support.processes.admin import put_topic, request
from support.processes.rig import Processes, trioha_broker, trioha_namesrv


def listing(namesrv: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trioha", "transactions", "list", "-n", namesrv, *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_open_transactions_are_listed_and_counted(processes: Processes) -> None:
    namesrv = trioha_namesrv(processes).start()
    broker = trioha_broker(processes, namesrv.address).start()
    put_topic(broker.address, "orders", 2)
    empty = listing(namesrv.address)
    assert empty.stdout == "open transactions: broker-a 0\n"
    now_ms = int(time.time() * 1000)
    for number in range(3):
        sent = half(f"K{number}", group="shop", topic="orders", born_ms=now_ms)
        assert request(broker.address, sent).code == 0
    text = listing(namesrv.address).stdout
    assert text.startswith("open transactions: broker-a 3\n")
    assert "shop" in text
    assert "orders" in text
    found = json.loads(listing(namesrv.address, "-o", "json", "--count", "2").stdout)
    assert found["broker-a"]["count"] == 3
    assert [one["unique_key"] for one in found["broker-a"]["shown"]] == ["K0", "K1"]
    unknown = listing(namesrv.address, "-b", "nowhere")
    assert unknown.returncode != 0
    assert unknown.stderr == "trioha: no master of nowhere is registered\n"
