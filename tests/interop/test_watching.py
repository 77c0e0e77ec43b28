"""Checks, recordings and bundles of a Java pair, and of a mixed one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from support.clusters.pair import Cluster, Make
from support.processes.rig import Processes
from support.processes.status import run_trioha, wait_until
from support.suite.sizes import drawn_cases

from trioha.watch.recording import open_recording
from trioha.watch.snapshot import ClusterSnapshot


@pytest.mark.parametrize(
    ("make", "slave_make"), drawn_cases("watching", [("java", "java"), ("trioha", "java")])
)
def test_a_java_broker_is_watched_as_far_as_it_tells(
    processes: Processes, tmp_path: Path, make: Make, slave_make: Make
) -> None:
    cluster = Cluster(processes, make=make, slave_make=slave_make, namesrv_make="trioha")
    cluster.start("ASYNC_MASTER", slave=True)
    where = ("-n", cluster.namesrv)

    def well() -> object:
        told = run_trioha("check", "ha", *where)
        return told.code == 0 or told.out

    wait_until("well", well)
    for area in ("broker", "disk", "namesrv", "group"):
        told = run_trioha("check", area, *where)
        assert told.code == 0, told.out

    recording = tmp_path / "r.trioha"
    told = run_trioha("record", "--out", str(recording), *where, "--for", "3s")
    assert told.code == 0, told.err
    inside = open_recording(recording)
    snapshot = ClusterSnapshot.of(inside.raw(len(inside.frames) - 1))
    slave = snapshot.replica(cluster.slave.address)
    assert slave is not None
    assert slave.is_trioha is False
    assert slave.max_phy_offset is not None

    bundle = tmp_path / "b.tar.gz"
    told = run_trioha("bundle", "--out", str(bundle), *where)
    assert told.code == 0, told.err
    with tarfile.open(bundle) as tar:
        files = {name.partition("/")[2]: tar.extractfile(name) for name in tar.getnames()}
        (config,) = [
            file
            for name, file in files.items()
            if name.startswith("nodes/broker-a-1@") and name.endswith("/config.json")
        ]
        assert config is not None
        lines = json.loads(config.read())
    assert any(line.startswith("brokerRole=SLAVE") for line in lines)
    told = run_trioha("journal", "follow", cluster.slave.address, "--once")
    assert (told.code, "it is not a trioha node" in told.err) == (5, True), told.err


def test_a_dead_java_master_is_critical(processes: Processes) -> None:
    cluster = Cluster(processes, make="java", namesrv_make="trioha").start()
    cluster.master.kill()

    def told() -> object:
        told = run_trioha("check", "ha", "-n", cluster.namesrv)
        return told.code in (2, 3) or told.out

    wait_until("not well", told)
