"""pytest's plugin: a cluster as a fixture, and its story in the report of a failed test.

pytest imports this module at every start, so it imports nothing of trioha before a fixture is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trioha.testing import ThreadCluster, TriohaCluster

_FIXTURES = {"trioha_cluster", "trioha_cluster_factory"}
_OPTIONS = {"layout", "processes", "seed", "settings"}
_REPORT_PATIENCE_S = 10.0

_clusters = pytest.StashKey[list["TriohaCluster"]]()
_threads = pytest.StashKey[list["ThreadCluster"]]()
_reports = pytest.StashKey[list[str]]()

ClusterFactory = Callable[..., Awaitable["TriohaCluster"]]
"""Opens a cluster; takes the arguments of `trioha.testing.open_cluster`."""


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        'trioha(layout="pair", processes=False, seed=0, settings=None): the cluster of the fixture'
        " trioha_cluster",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let pytest-trio run tests of clusters in this process on virtual time."""
    for item in items:
        if not _uses_cluster(item) or not _is_coroutine(item):
            continue
        if not config.pluginmanager.has_plugin("trio"):
            continue
        options = _options_of(item)
        if any(item.get_closest_marker(other) for other in ("asyncio", "anyio")):
            continue
        if any("run" in marker.kwargs for marker in item.iter_markers("trio")):
            continue
        if options.get("processes"):
            item.add_marker(pytest.mark.trio, append=False)
        else:
            run = functools.partial(_run, seed=int(options.get("seed", 0)))
            item.add_marker(pytest.mark.trio(run=run), append=False)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Ask the clusters of a test for their story if it fails."""
    if _uses_cluster(item) and _is_coroutine(item):
        item.obj = _telling(item, item.obj)  # type: ignore[attr-defined]
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Attach the stories to the report of a failed test."""
    result: Any = yield
    report: pytest.TestReport = result.get_result()
    if report.when == "call" and report.failed:
        for cluster in item.stash.get(_threads, []):
            item.stash[_reports] = [cluster.call(lambda one: one.report())]
        for text in item.stash.get(_reports, []):
            report.sections.append(("trioha cluster", text))


@pytest.fixture
async def trioha_cluster_factory(request: pytest.FixtureRequest) -> AsyncIterator[ClusterFactory]:
    """Open any number of clusters; all end with the test.

    ``await trioha_cluster_factory("three", seed=1)`` takes the arguments of `open_cluster`; what is
    left out is as the marker `trioha` says.
    """
    import trio

    from trioha.testing import open_cluster

    defaults = _options_of(request.node)
    clusters = request.node.stash.setdefault(_clusters, [])
    over = trio.Event()

    # A nursery ends in the task that opened it, and any task may call `make`.
    async def serve(
        options: dict[str, Any], *, task_status: trio.TaskStatus[TriohaCluster]
    ) -> None:
        async with open_cluster(**options) as cluster:
            task_status.started(cluster)
            await over.wait()

    async def make(layout: Any = None, **options: Any) -> TriohaCluster:
        wanted = {**defaults, **options}
        wanted["layout"] = layout or wanted.get("layout", "pair")
        cluster: TriohaCluster = await nursery.start(serve, wanted, name="trioha_cluster")
        clusters.append(cluster)
        return cluster

    async with trio.open_nursery() as nursery:
        yield make
        over.set()


@pytest.fixture
def trioha_cluster(request: pytest.FixtureRequest) -> TriohaCluster | ThreadCluster:
    """Open the cluster that the marker `trioha` describes: a pair without one.

    A test that does not run on Trio gets a `ThreadCluster`, of processes.
    """
    is_trio = request.node.get_closest_marker("trio") is not None
    name = "_trioha_trio_cluster" if is_trio else "_trioha_thread_cluster"
    cluster: TriohaCluster | ThreadCluster = request.getfixturevalue(name)
    return cluster


@pytest.fixture
async def _trioha_trio_cluster(trioha_cluster_factory: ClusterFactory) -> TriohaCluster:
    return await trioha_cluster_factory()


@pytest.fixture
def _trioha_thread_cluster(request: pytest.FixtureRequest) -> Iterator[ThreadCluster]:
    from trioha.testing import start_cluster

    options = _options_of(request.node)
    if not options.pop("processes", False):
        pytest.fail(
            f"{request.node.nodeid} does not run on Trio, so its cluster has to be of processes:"
            " @pytest.mark.trioha(processes=True). Tests on Trio need pytest-trio",
            pytrace=False,
        )
    with start_cluster(**options) as cluster:
        request.node.stash[_threads] = [cluster]
        yield cluster


def _run(
    function: Callable[[], Awaitable[object]], *, seed: int, clock: Any = None, instruments: Any
) -> object:
    from trioha.testing.virtual_time import run_on_virtual_time, seeded_scheduler

    with seeded_scheduler(seed):
        return run_on_virtual_time(function, clock=clock, instruments=instruments)


def _telling(
    item: pytest.Item, function: Callable[..., Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    async def tell(*arguments: Any, **named: Any) -> None:
        __tracebackhide__ = True
        try:
            await function(*arguments, **named)
        except Exception:
            item.stash[_reports] = [await _report(one) for one in item.stash.get(_clusters, [])]
            raise

    return tell


async def _report(cluster: TriohaCluster) -> str:
    import trio

    with trio.move_on_after(_REPORT_PATIENCE_S):
        return await cluster.report()
    return cluster.story_soon()


def _options_of(item: Any) -> dict[str, Any]:
    marker = item.get_closest_marker("trioha")
    options = dict(marker.kwargs) if marker is not None else {}
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"{item.nodeid}: the marker trioha takes {', '.join(sorted(_OPTIONS))} by name, not"
            f" {', '.join(unknown) or 'values alone'}"
        )
    return options


def _uses_cluster(item: pytest.Item) -> bool:
    return not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _is_coroutine(item: pytest.Item) -> bool:
    return inspect.iscoroutinefunction(getattr(item, "obj", None))
