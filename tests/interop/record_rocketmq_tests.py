"""Run RocketMQ's own integration tests, keep what they say, and write docs/compatibility.md anew.

    PYTHONPATH=tests python tests/interop/record_rocketmq_tests.py [--layout java] [CLASS ...]

A layout that is not named keeps its recorded results, and so does a class.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import get_args

from support.clusters.rocketmq_results import (
    PAGE,
    RECORDED,
    page_with,
    read_recorded,
    results_table,
    write_recorded,
)
from support.clusters.rocketmq_tests import CLASSES, Layout, run_classes, start_layout
from support.processes.rig import running_processes

CLASS_S = 1800.0
TEST_S = 240.0


def record(layout: Layout, classes: tuple[str, ...]) -> None:
    """Errors: AssertionError when a class says nothing."""
    RECORDED.touch()
    with (
        tempfile.TemporaryDirectory() as home,
        running_processes(Path(home)) as processes,
    ):
        cluster = start_layout(processes, layout)
        for name in classes:
            found = run_classes(cluster, [name], test_s=TEST_S, all_s=CLASS_S)
            for result in found:
                print(layout, result.name, result.result, result.seconds, result.why, flush=True)
            recorded = {key: dict(value) for key, value in read_recorded().items()}
            recorded[layout].update({result.name: result for result in found})
            write_recorded(recorded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", action="append", choices=get_args(Layout))
    parser.add_argument("classes", nargs="*", default=list(CLASSES))
    options = parser.parse_args()
    for layout in options.layout or get_args(Layout):
        record(layout, tuple(options.classes))
    PAGE.write_text(page_with(results_table(read_recorded())))


if __name__ == "__main__":
    main()
