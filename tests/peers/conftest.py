"""Brokers of ours that meet peers made up for the purpose; no log of theirs shows a traceback."""

from __future__ import annotations

import pytest


@pytest.fixture
def clean_logs() -> str:
    return "*.log"
