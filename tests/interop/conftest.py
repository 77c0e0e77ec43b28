"""Mixed clusters: processes of both makes, ended with their test; one meeting that tests share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH, Meeting, start_meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, StockProducer
from support.peers.java_tools import JavaReader, MqAdmin, java_reader, mq_admin
from support.processes.rig import Processes

# Tests that share the meeting stay in one process when pytest-xdist runs several.
MEETING_GROUP = "meeting"


# First: pytest-xdist reads the groups in its own hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if isinstance(item, pytest.Function) and "meeting" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(MEETING_GROUP))


@pytest.fixture
def clients(processes: Processes) -> Clients:
    return Clients(processes)


@pytest.fixture(scope="session")
def shared_clients(shared_processes: Processes) -> Clients:
    return Clients(shared_processes)


@pytest.fixture(scope="session")
def meeting(shared_processes: Processes) -> Meeting:
    return start_meeting(shared_processes)


@pytest.fixture(scope="session")
def producers(meeting: Meeting, shared_clients: Clients) -> dict[Make, StockProducer]:
    """A Java producer at each name server."""
    started: dict[Make, StockProducer] = {
        make: shared_clients.producer("java", meeting.namesrvs[make].address, wait=False)
        for make in BOTH
    }
    for producer in started.values():
        producer.wait_until_ready()
    return started


@pytest.fixture(scope="session")
def readers(meeting: Meeting, shared_clients: Clients) -> dict[Make, JavaReader]:
    """A Java pull consumer at each name server."""
    return {
        make: java_reader(shared_clients, meeting.namesrvs[make].address, "shared-readers")
        for make in BOTH
    }


@pytest.fixture(scope="session")
def admin(meeting: Meeting, shared_clients: Clients) -> MqAdmin:
    return mq_admin(shared_clients)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that only this test uses."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[-60:].strip("-")
