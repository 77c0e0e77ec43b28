"""A real Prometheus scrapes all three kinds of nodes, and takes the rules that are shipped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.clusters.pair import SMALL_FILES, Cluster
from support.processes.http import get, http_address
from support.processes.rig import REPO, Node, Process, Processes, raft_member
from support.processes.status import node_status, wait_until
from support.suite.ports import free_ports
from support.suite.skips import unavailable

WITHIN_S = 30.0
_MONITORING = REPO / "docs" / "monitoring"
# Their shares of a name: what PromQL adds, and recording labels.
_METRIC = re.compile(r"\b((?:trioha|rocketmq)_[a-z0-9_]+)\b")


@pytest.fixture
def tools() -> str:
    """Return the path of promtool. Debian's package `prometheus` has both programs."""
    promtool, prometheus = shutil.which("promtool"), shutil.which("prometheus")
    if promtool is None or prometheus is None:
        unavailable("no promtool and prometheus here; apt-get install prometheus")
    return promtool


def query(address: str, text: str) -> list[Mapping[str, object]]:
    """PromQL's answer, once it is not empty. Errors: AssertionError after half a minute."""
    url = f"http://{address}/api/v1/query?query={urllib.parse.quote(text)}"
    deadline = time.monotonic() + WITHIN_S
    while not (found := json.loads(get(url))["data"]["result"]):
        assert time.monotonic() < deadline, f"{text}: nothing scraped in {WITHIN_S} s"
        time.sleep(0.2)
    return list(found)


def test_pages_are_clean_and_a_real_prometheus_scrapes_them(
    processes: Processes, tmp_path: Path, tools: str
) -> None:
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True)
    assert cluster.namesrv_node is not None
    targets = [http_address(node) for node in (cluster.namesrv_node, cluster.master, cluster.slave)]
    for target in targets:
        page = get(f"http://{target}/metrics")
        subprocess.run([tools, "check", "metrics"], input=page, check=True)
    config = tmp_path / "prometheus.yml"
    scrape = {
        "job_name": "trioha",
        "scrape_interval": "1s",
        "static_configs": [{"targets": targets}],
    }
    rules = [str(_MONITORING / "alerts.yml")]
    config.write_text(json.dumps({"scrape_configs": [scrape], "rule_files": rules}))  # JSON is YAML
    prometheus = processes.add(
        Process(
            "prometheus",
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            tmp_path / "prometheus.log",
        )
    )
    prometheus.start()
    address = prometheus.wait_for_line(r"address=(127\.0\.0\.1:[1-9]\d*)")[1]
    prometheus.wait_for_line("Server is ready")
    up = query(address, 'count(up{job="trioha"} == 1) == 3')
    assert up
    roles = query(address, 'trioha_ha_role{role="master"} == 1')
    assert len(roles) == 1
    assert query(address, "trioha_ha_connections == 1")
    assert query(address, 'sum(trioha_namesrv_brokers{role="slave"}) == 1')
    loaded = json.loads(get(f"http://{address}/api/v1/rules"))["data"]["groups"]
    assert {group["name"] for group in loaded} == {
        "trioha-replication",
        "trioha-failover",
        "trioha-raft",
        "trioha-namesrv",
        "trioha-broker",
    }


def a_group_of_one(processes: Processes, namesrv: str) -> Node:
    """A member that leads, so that it tells of all that members tell of."""
    address = f"127.0.0.1:{free_ports()}"
    member = raft_member(
        processes,
        namesrv,
        name="broker-raft",
        member_id="n0",
        peers=f"n0-{address}",
        address=address,
        settings=SMALL_FILES,
    )
    member.start()
    wait_until("leading", lambda: bool(node_status(member)["raft"]["is_serving"]))
    page = get(f"http://{http_address(member)}/metrics")
    subprocess.run(["promtool", "check", "metrics"], input=page, check=True)
    return member


def test_shipped_rules_and_board_speak_of_series_that_exist(
    processes: Processes, tools: str
) -> None:
    rules = _MONITORING / "alerts.yml"
    subprocess.run([tools, "check", "rules", str(rules)], check=True, stdout=sys.stderr)
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True)
    assert cluster.namesrv_node is not None
    told: set[str] = set()
    member = a_group_of_one(processes, cluster.namesrv)
    for node in (cluster.namesrv_node, cluster.master, cluster.slave, member):
        page = get(f"http://{http_address(node)}/metrics").decode()
        told |= set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    for path in (rules, _MONITORING / "grafana-board.json"):
        wanted = set(_METRIC.findall(path.read_text()))
        # A histogram's parts are told under its name.
        wanted = {re.sub(r"_(bucket|count|sum)$", "", name) for name in wanted}
        assert wanted
        assert wanted <= told, f"{path.name} speaks of {sorted(wanted - told)}"
