"""Plays scenarios: files with ``async def scenario(cluster)``."""

from __future__ import annotations

import pkgutil
import runpy
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

import attrs
import trio

from trioha.client.recorder import RecordOptions, record
from trioha.errors import TriohaError
from trioha.services.loop.background import open_background_nursery
from trioha.testing import TriohaCluster, open_cluster, run_seeded, scenarios
from trioha.testing.machines import Layout
from trioha.testing.timeline import TimelineEvent
from trioha.words import what_there_is

RECORD_INTERVAL_S = 1.0


@attrs.frozen(kw_only=True)
class Scenario:
    """A script for a cluster, and the cluster that it wants."""

    name: str
    script: Callable[[TriohaCluster], Awaitable[None]]
    title: str = ""
    """First line of the file's docstring."""
    layout: Layout = "pair"
    """The file's LAYOUT."""
    settings: Mapping[str, object] = attrs.field(factory=dict)
    """The file's SETTINGS."""


@attrs.frozen(kw_only=True)
class Played:
    """The result of a scenario."""

    failure: BaseException | None
    """Error that ended the script; None if the scenario held."""
    log: bytes
    """All events as JSON lines."""
    story: str
    virtual_s: float


def shipped() -> list[Scenario]:
    """Return the scenarios that come with trioha, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))
    return [load_scenario(name) for name in names]


def load_scenario(name: str) -> Scenario:
    """Return the scenario of a file, or a shipped one of that name.

    Errors: TriohaError for a file that cannot be read, that fails, or has no scenario.
    """
    folder = Path(scenarios.__path__[0])
    path = Path(name)
    known = sorted(one.stem for one in folder.glob("[a-z]*.py"))
    if name in known:
        path = folder / f"{name}.py"
    if not path.is_file():
        cure = what_there_is(name, known, otherwise=f"; shipped are {', '.join(known)}")
        raise TriohaError(f"no file and no scenario has the name {name}{cure}")
    try:
        module = runpy.run_path(str(path))
    except Exception as error:
        raise TriohaError(f"{path}: {type(error).__name__}: {error}") from error
    script = module.get("scenario")
    if not callable(script):
        raise TriohaError(f"{path}: there is no `async def scenario(cluster)`")
    return Scenario(
        name=path.stem,
        script=cast("Callable[[TriohaCluster], Awaitable[None]]", script),
        title=(module.get("__doc__") or "").strip().partition("\n")[0],
        layout=module.get("LAYOUT", "pair"),
        settings=module.get("SETTINGS", {}),
    )


def play(
    scenario: Scenario,
    *,
    seed: int,
    layout: Layout | None = None,
    recording: Path | None = None,
    on_event: Callable[[TimelineEvent], None] = lambda event: None,
) -> Played:
    """Play a scenario on virtual time; `recording` is the file of a recording to make of it.

    Errors: TriohaError if the cluster cannot be opened.
    """

    async def run() -> Played:
        settings = scenario.settings
        async with (
            open_cluster(layout or scenario.layout, seed=seed, settings=settings) as cluster,
            open_background_nursery() as nursery,
        ):
            cluster.timeline.tell(on_event)
            if recording is not None:
                nursery.start_soon(_record, cluster, recording)
            failure = await _outcome(scenario, cluster)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                story = await cluster.story()
            log = cluster.timeline.log()
            return Played(failure=failure, log=log, story=story, virtual_s=trio.current_time())

    return run_seeded(run, seed)


async def _outcome(scenario: Scenario, cluster: TriohaCluster) -> BaseException | None:
    try:
        await scenario.script(cluster)
    except Exception as error:
        return error
    return None


async def _record(cluster: TriohaCluster, path: Path) -> None:
    options = RecordOptions(
        path=path,
        namesrv=cluster.namesrv,
        interval_s=RECORD_INTERVAL_S,
        overwrite=True,
        facts={"namesrvs": cluster.namesrv, "interval_ms": round(RECORD_INTERVAL_S * 1000)},
    )
    await record(options, trio.Event(), config=cluster.client_config())
