"""The first screen imports few modules; the others are all imported later."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from trioha_console.later import TITLES, make_view
from trioha_console.source import Source, context_source

from trioha.watch.alerts import Alerts

BEGIN = """
import json, sys
from trioha.cli.console import command
from trioha_console.app import ConsoleApp
before = set(sys.modules)
from trioha_console.later import import_later
import_later()
print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
"""


def test_the_program_begins_without_the_engine_the_jobs_and_the_screens_over_it() -> None:
    out = subprocess.run(
        [sys.executable, "-c", BEGIN], capture_output=True, check=True, text=True, timeout=60
    ).stdout
    before, later = json.loads(out)
    for name in ("trioha.failover.engine", "trioha.jobs.drain", "trioha.jobs.offsets"):
        assert name not in before
        assert name in later
    views = {one.removeprefix("trioha_console.views.") for one in before}
    assert views & TITLES.keys() == {"replication"}
    screens = {one for one in before if one.startswith("trioha_console.screens.")}
    assert screens == {"trioha_console.screens.detail", "trioha_console.screens.over"}


def no_source() -> Source:
    raise AssertionError("nobody asks yet")


@pytest.mark.parametrize("name", list(TITLES))
def test_each_view_can_be_made_by_its_name(name: str) -> None:
    view = make_view(name, no_source, Alerts(), context_source)
    assert name == view.NAME


def test_there_is_no_other_view() -> None:
    with pytest.raises(KeyError):
        make_view("nosuch", no_source, Alerts(), context_source)
