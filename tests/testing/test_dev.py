"""`trioha dev`: the command's exit code, its environment, the hands over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from support.processes.rig import trioha_command

from trioha.testing import TriohaCluster
from trioha.testing.fault_port import serve_faults

ACROSS_A_FAILOVER = """
import json, os, urllib.request
def hand(path, **fields):
    request = urllib.request.Request(os.environ["TRIOHA_DEV_FAULTS"] + path)
    request.add_header("Content-Type", "application/json")
    answer = urllib.request.urlopen(request, json.dumps(fields).encode(), timeout=60)
    return json.load(answer)
assert os.environ["ROCKETMQ_NAMESRV_ADDR"] == os.environ["NAMESRV_ADDR"]
print(hand("/brokers/broker-a-0/kill"), hand("/fail_over", to=1, force=True))
raise SystemExit(7)
"""


def run_dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        trioha_command("dev", *arguments), capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_the_command_hurts_the_cluster_and_gives_its_exit_code() -> None:
    done = run_dev("pair", "--fault-port", "0", "--", sys.executable, "-c", ACROSS_A_FAILOVER)
    assert done.returncode == 7, done.stderr
    assert "{'done': 'fail_over', 'broker': 'broker-a-1'}" in done.stdout
    assert "trioha dev pair ready namesrv=127.0.0.1:" in done.stderr


@pytest.mark.slow
def test_stores_are_kept_where_asked(tmp_path: Path) -> None:
    done = run_dev("single", "--store", str(tmp_path / "here"), "--", "true")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "broker-a-0" / "commitlog").is_dir()


@pytest.mark.slow
def test_a_command_that_does_not_exist_is_told() -> None:
    done = run_dev("single", "--", "no-such-command")
    assert done.returncode == 127
    assert "cannot run no-such-command: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_layout_that_does_not_exist_is_told() -> None:
    done = run_dev("pear")
    assert done.returncode == 2
    assert "no layout has the name pear; take one of single, pair" in done.stderr


async def ask(
    address: str, method: str, path: str, body: bytes = b"", kind: str = "application/json"
) -> tuple[int, Any]:
    host, port = address.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {kind}\r\n"
    async with stream:
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        data = b"".join([piece async for piece in stream])
    top, _, rest = data.partition(b"\r\n\r\n")
    code = int(top.split()[1])
    return code, json.loads(rest) if b"application/json" in top else rest.decode()


@pytest.mark.trio(run=trio.run)
@pytest.mark.trioha(layout="raft")
async def test_hands_over_http(trioha_cluster: TriohaCluster, nursery: trio.Nursery) -> None:
    address = await nursery.start(serve_faults, trioha_cluster, 0)
    code, status = await ask(address, "GET", "/status")
    assert code == 200
    assert sum(one["standing"] == "MASTER" for one in status["brokers"]) == 1
    leader = (await trioha_cluster.master_of()).label
    assert await ask(address, "POST", f"/brokers/{leader}/kill") == (
        *(200, {"done": "kill", "broker": leader}),
    )
    code, done = await ask(address, "POST", "/fail_over")
    assert code == 200
    assert done["broker"] != leader
    code, story = await ask(address, "GET", "/story")
    assert f"{leader}: down" in story


@pytest.mark.trio(run=trio.run)
async def test_requests_that_are_not_hands_are_refused_with_the_cure(
    trioha_cluster: TriohaCluster, nursery: trio.Nursery
) -> None:
    address = await nursery.start(serve_faults, trioha_cluster, 0)
    wrong: Mapping[tuple[str, ...], tuple[int, str]] = {
        ("GET", "/"): (404, "there are: /status /story"),
        ("PUT", "/"): (405, "only GET and POST"),
        ("POST", "/fall_over"): (404, "/fail_over"),
        ("POST", "/brokers/broker-a-0/die"): (404, "kill|stop"),
        ("POST", "/fail_over", "[]"): (400, "JSON object"),
        ("POST", "/fail_over", "{"): (400, "no JSON"),
        ("POST", "/fail_over", '{"too": 1}'): (400, "no field too; there are: name, to, force"),
        ("POST", "/fail_over", '{"to": "1"}'): (400, "to has to be of type int"),
        ("POST", "/fail_over", '{"name": "nobody"}'): (409, "nobody"),
    }
    for (method, path, *body), (code, words) in wrong.items():
        told, answer = await ask(address, method, path, "".join(body).encode())
        assert told == code, answer
        assert words in answer["error"]
    assert (await ask(address, "POST", "/fail_over", kind="text/plain"))[0] == 415
