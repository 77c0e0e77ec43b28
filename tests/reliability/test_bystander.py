"""The judge of harm to a broker: the broker's work counts, not the slowness of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clusters.pair import Cluster
from support.histories.load import undisturbed
from support.processes.admin import create_topic
from support.processes.faults import Failpoint, set_failpoints
from support.processes.rig import Node

pytestmark = pytest.mark.slow

DELAY_S = 0.4
MOST_WORK_S = 0.2
WORKS_LONG = f"""
reserve = os.posix_fallocate
def works_long(*where):
    began_s = time.process_time()
    while time.process_time() < began_s + {DELAY_S}:
        pass
    return reserve(*where)
os.posix_fallocate = works_long
"""


def start(cluster: Cluster, home: Path, *failpoints: Failpoint, breakage: str = "") -> Node:
    """A broker of tiny files, of which each is slow to begin."""
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    cluster.master.stop()
    set_failpoints(cluster.master, home, *failpoints, breakage=breakage)
    return cluster.master.start()


def send_until_a_file_begins(broker: Node, most_work_s: float) -> None:
    assert broker.store is not None
    before = len(list(broker.commitlog.iterdir()))
    with undisturbed(broker, "T", most_work_s) as bystander:
        while len(list(broker.commitlog.iterdir())) < before + 2:
            bystander.wait_for_more(100)


def test_a_slow_disk_is_nobodys_fault(cluster: Cluster, tmp_path: Path) -> None:
    slow = Failpoint(call="posix_fallocate", path="/commitlog/", action="slow", delay_s=DELAY_S)
    send_until_a_file_begins(start(cluster, tmp_path / "site", slow), MOST_WORK_S)


def test_work_for_others_is_told(cluster: Cluster, tmp_path: Path) -> None:
    broker = start(cluster, tmp_path / "site", breakage=WORKS_LONG)
    with pytest.raises(AssertionError, match=r"the broker worked 0\.[3-9]"):
        send_until_a_file_begins(broker, MOST_WORK_S)
