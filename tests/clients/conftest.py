"""Clusters of real processes for the stock clients; `--peer=java` proves the tests on the original.

The plain scenarios share one broker and take a topic of their own; whatever stops or kills a node
has its own cluster.
"""

from __future__ import annotations

import re
from typing import get_args

import pytest
from support.clusters.pair import SMALL_FILES, Cluster, Make
from support.peers.clients import Clients
from support.processes.admin import create_topic
from support.processes.rig import Processes

# A retry waits for level 3: a second or two of it instead of ten.
QUICK_LEVELS = "1s 2s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 1h 2h"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peer",
        choices=get_args(Make),
        default="trioha",
        help="whose broker and name server the stock clients talk to",
    )


@pytest.fixture(scope="session")
def make(pytestconfig: pytest.Config) -> Make:
    make: Make = pytestconfig.getoption("--peer", default="trioha")
    return make


@pytest.fixture(scope="session")
def shared_cluster(shared_processes: Processes, make: Make) -> Cluster:
    """One name server and one master for every test that leaves them alone."""
    settings = {**SMALL_FILES, "messageDelayLevel": QUICK_LEVELS}
    return Cluster(shared_processes, make, settings=settings).start()


@pytest.fixture
def own_cluster(processes: Processes, make: Make) -> Cluster:
    """A cluster of this test's own, not yet started."""
    return Cluster(processes, make)


@pytest.fixture
def clients(processes: Processes) -> Clients:
    """Starts stock clients that end with the test."""
    return Clients(processes)


@pytest.fixture
def topic(request: pytest.FixtureRequest, shared_cluster: Cluster) -> str:
    """A topic of four queues on the shared broker that only this test uses."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:100].strip("-")
    create_topic(shared_cluster.master.address, shared_cluster.namesrv, name)
    return name
