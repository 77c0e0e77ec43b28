"""RocketMQ's own integration tests against brokers of ours: what passes on Java passes here.

Java's own results are recorded in testdata/rocketmq_tests.jsonl. A test that passed has to have
sent what it sends to Java: some of these tests pass when every send is refused. A gate
takes a few quick classes on pairs, a release all of them on every layout.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clusters.rocketmq_results import read_recorded, worse_than_java
from support.clusters.rocketmq_tests import CLASSES, Layout, TestCluster, run_classes, start_layout
from support.histories.commitlog import wait_for_equal_logs
from support.processes.rig import running_processes
from support.suite.sizes import sized, some_of

QUICK = (
    "client.producer.batch.BatchSendIT",
    "client.producer.querymsg.QueryMsgByKeyIT",
    "client.producer.transaction.TransactionalMsgIT",
    "tls.TLS_Mix2_IT",
)
LAYOUTS: tuple[Layout, ...] = sized(gate=("pair",), release=("single", "pair", "three", "dledger"))
REPLICATED_S = 40.0
TEST_S = sized(gate=100.0, release=240.0)
CLASS_S = sized(gate=250.0, release=2400.0)


@pytest.fixture(
    scope="module",
    params=[
        # They share brokers: one process of pytest-xdist takes all classes of a layout.
        pytest.param(layout, marks=pytest.mark.xdist_group(f"rocketmq-tests-{layout}"))
        for layout in LAYOUTS
    ],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestCluster]:
    root = tmp_path_factory.mktemp(f"rocketmq-tests-{request.param}")
    with running_processes(root) as processes:
        cluster = start_layout(processes, request.param)
        yield cluster
        # The slaves have all messages of the tests.
        for master, *slaves in cluster.sets:
            for slave in slaves:
                wait_for_equal_logs(master.commitlog, slave.commitlog, REPLICATED_S)
    for log in sorted((root / "logs").glob("broker*.log")):
        assert "Traceback" not in log.read_text(errors="replace"), log


@pytest.mark.parametrize("class_name", sized(gate=QUICK, release=some_of(CLASSES)))
def test_what_passes_on_java_passes_here(cluster: TestCluster, class_name: str) -> None:
    found = run_classes(cluster, [class_name], test_s=TEST_S, all_s=CLASS_S)
    worse = worse_than_java(read_recorded()["java"], class_name, found)
    assert not worse, "\n".join(worse)
    assert found
