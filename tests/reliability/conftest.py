"""Real clusters that are hurt on purpose; no node of theirs ever shows a traceback."""

from __future__ import annotations

import pytest
from support.clusters.pair import Cluster
from support.processes.faults import TINY_FILES
from support.processes.rig import Processes


@pytest.fixture
def clean_logs() -> str:
    return "*.log"


@pytest.fixture
def cluster(processes: Processes) -> Cluster:
    """A cluster of tiny files, not yet started."""
    return Cluster(processes, settings=TINY_FILES)
