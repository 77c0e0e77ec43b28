"""The one way to skip a test, and what the gate makes of it.

On a laptop a test that lacks a program or a right is skipped, and pytest lists it with its reason.
Where CI is set, a skip is a failure: a gate that skips in silence proves nothing. The only
exceptions are named by `--allow-skip NODEID`; the gate's list of them is in `.ci/gate/plan.py`. A
skip by any other way (`pytest.skip`, `skipif`, `importorskip`, `xfail`) is always a failure there.

`tests/conftest.py` takes the hooks below.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Generator
from typing import NoReturn

import pytest
from _pytest.outcomes import Skipped

NOT_BY_SKIP_UNLESS = "skipped by another way than support.suite.skips.skip_unless"
NOT_ALLOWED = "the gate allows no skip here (see support.suite.skips)"


class Unavailable(Skipped):
    """Raised by `skip_unless`: the test needs something that is not here."""


def skip_unless(holds: object, needs: str) -> None:
    """Skip the test unless `holds`; `needs` says what is missing. Fails instead in the gate.

    At the top of a module it skips the module.
    """
    if not holds:
        unavailable(needs)


def unavailable(needs: str) -> NoReturn:
    """Skip the test that needs what is not here. Fails instead in the gate."""
    raise Unavailable(needs, allow_module_level=True, _use_item_location=True)


def importable(*modules: str) -> bool:
    """Whether all of these packages are installed."""
    return all(importlib.util.find_spec(name) is not None for name in modules)


def why_not(
    nodeid: str, reason: str, allowed: Collection[str], *, is_ours: bool, is_ci: bool
) -> str | None:
    """Return why a skipped test has to fail, or None where it may be skipped."""
    if not is_ci:
        return None
    if not is_ours:
        return f"{NOT_BY_SKIP_UNLESS}: {reason}"
    # pytest-xdist adds the name of a group.
    if nodeid.partition("@")[0] in allowed:
        return None
    return f"{NOT_ALLOWED}: {reason}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allow-skip",
        action="append",
        default=[],
        metavar="NODEID",
        help="this test may be skipped even where CI is set",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped:
        error = call.excinfo.value if call.excinfo is not None else None
        allowed = item.config.getoption("allow_skip")
        is_ours = isinstance(error, Unavailable) and not hasattr(report, "wasxfail")
        _judge(report, str(error), allowed, is_ours=is_ours)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself has no test that could be allowed to."""
    report = yield
    if report.skipped:
        _judge(report, str(report.longrepr), (), is_ours=True)
    return report


def _judge(
    report: pytest.TestReport | pytest.CollectReport,
    reason: str,
    allowed: Collection[str],
    *,
    is_ours: bool,
) -> None:
    is_ci = bool(os.environ.get("CI"))
    why = why_not(report.nodeid, reason, allowed, is_ours=is_ours, is_ci=is_ci)
    if why is not None:
        report.outcome = "failed"
        report.longrepr = why
        if hasattr(report, "wasxfail"):
            del report.wasxfail
