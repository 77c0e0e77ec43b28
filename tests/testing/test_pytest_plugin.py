"""The fixtures and the marker, as a user's own suite has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from trioha.client import Message
from trioha.pytest_plugin import ClusterFactory
from trioha.testing import TriohaCluster


async def test_a_pair_on_virtual_time_is_what_an_unmarked_test_gets(
    trioha_cluster: TriohaCluster,
) -> None:
    assert [broker.label for broker in trioha_cluster.brokers] == ["broker-a-0", "broker-a-1"]
    assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    await trio.sleep(3600)


@pytest.mark.trioha(layout="three", seed=11, settings={"defaultTopicQueueNums": 2})
async def test_the_marker_describes_the_cluster(trioha_cluster: TriohaCluster) -> None:
    assert len(trioha_cluster.brokers) == 3
    assert trioha_cluster.seed == 11
    async with trioha_cluster.producer() as producer:
        await producer.send(Message("T", b"hello"))
        assert len(await producer.queues("T")) == 2


async def test_the_factory_opens_several(trioha_cluster_factory: ClusterFactory) -> None:
    clusters = [await trioha_cluster_factory("single", seed=seed) for seed in (1, 2)]
    for cluster in clusters:
        async with cluster.producer() as producer:
            await producer.send(Message("T", b"%d" % cluster.seed))
    assert [(await one.messages("T"))[0].body for one in clusters] == [b"1", b"2"]


def run_suite(root: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file of these lines, with the plugin and nothing of this suite."""
    root.joinpath("test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "trioha.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "--strict-markers", *options, "test_it.py"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)


def test_a_failed_test_reports_journals_tasks_and_statuses(tmp_path: Path) -> None:
    code = """
async def test_it(trioha_cluster):
    await trioha_cluster.broker("broker-a", 1).kill()
    assert False, "on purpose"
"""
    done = run_suite(tmp_path, code)
    assert done.returncode == 1, done.stdout
    for words in (
        "trioha cluster",
        "broker-a-1: down",
        "broker-a-0: MASTER in epoch 1",
        "test         kill broker=broker-a-1",
        "broker-a-0   node_ready",
        "Tasks of this process:",
        "commitlog_flush",
    ):
        assert words in done.stdout


def test_a_marker_that_means_nothing_is_refused(tmp_path: Path) -> None:
    code = """
import pytest
@pytest.mark.trioha(lay_out="pair")
async def test_it(trioha_cluster):
    pass
"""
    done = run_suite(tmp_path, code)
    assert done.returncode == 4
    assert "the marker trioha takes layout, processes, seed, settings by name" in done.stderr


def test_a_test_without_trio_is_told_to_take_processes(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "def test_it(trioha_cluster): pass")
    assert done.returncode == 1
    assert "its cluster has to be of processes: @pytest.mark.trioha(processes=True)" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_suite_without_clusters_imports_nothing_of_trioha(tmp_path: Path) -> None:
    code = """
import sys
def test_it():
    loaded = {name for name in sys.modules if name.split(".")[0] == "trioha"}
    assert loaded == {"trioha", "trioha.pytest_plugin"}
"""
    done = run_suite(tmp_path, code, "-p", "no:trio")
    assert done.returncode == 0, done.stdout
