"""Several clusters in one view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, Console, FakeSource, check_snapshot, open_console

from trioha.contexts import Context, Contexts
from trioha.errors import ConfigError
from trioha.watch.rules import RULES


def context_of(name: str, address: str) -> Context:
    return Context(name, address, None, RULES, "here:1")


CONTEXTS = [
    context_of("prod-eu", "10.0.0.9:9876"),
    context_of("prod-us", "10.1.0.9:9876"),
    context_of("lab", "10.2.0.9:9876"),
    context_of("locked", "10.3.0.9:9876"),
]


class Fleet:
    """Sources of the contexts but the one that is shown."""

    def __init__(self) -> None:
        self.clusters = {one.name: RawCluster(namesrvs=[one.namesrv]) for one in CONTEXTS}
        for sets, name in enumerate(("prod-eu", "prod-us", "lab"), 1):
            for number in range(sets):
                self.clusters[name].add_set(f"{name}-{number}")
        self.sources: dict[str, list[FakeSource]] = {}

    def open(self, context: Context) -> FakeSource:
        if context.name == "locked":
            raise ConfigError("the secret of anna is missing; set TRIOHA_SECRET_KEY")
        source = FakeSource(self.clusters[context.name])
        source.title, source.namesrvs = context.name, (context.namesrv,)
        source.push()
        self.sources.setdefault(context.name, []).append(source)
        return source

    @asynccontextmanager
    async def console(self, size: tuple[int, int]) -> AsyncIterator[Console]:
        contexts = Contexts(Path("config.toml"), None, {one.name: one for one in CONTEXTS}, RULES)
        async with open_console(
            self.clusters["prod-eu"],
            size,
            contexts=contexts,
            open_context=self.open,
            open_other=self.open,
        ) as console:
            yield console


async def shown(console: Console) -> None:
    """Every cluster that can be asked has been asked and is drawn."""
    await console.press("0")
    while any(row.snapshot is None and not row.why for row in console.app.view.grid.rows):
        await console.frame()


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_screen_of_clusters(size: tuple[int, int]) -> None:
    fleet = Fleet()
    lab = fleet.clusters["lab"]
    lab.silent[next(iter(lab.statuses))] = "Connection refused"
    lab.tick()
    async with fleet.console(size) as console:
        await shown(console)
        check_snapshot(f"clusters-{size[0]}x{size[1]}", console.text)
        lines = {line.split()[0]: line for line in console.text.splitlines() if line}
        assert "● all well" in lines["prod-us"]
        assert "✖ 1 node" in lines["lab"]
        assert "✖ the secret of anna" in lines["locked"]


async def test_what_needs_a_look_comes_first_and_enter_goes_there() -> None:
    fleet = Fleet()
    async with fleet.console(LARGE) as console:
        await shown(console)
        assert next(row.name for row in console.app.view.grid.rows) == "locked"
        await console.press("down", "down")
        name = console.app.view.grid.rows[console.app.view.grid.cursor].name
        assert name in ("prod-us", "lab")
        await console.press("enter")
        assert console.app.source.title == name
        assert all(one.closed for one in fleet.sources["prod-us"][:1])
        await console.shows(f"{name}-0")
        assert "Replication" in console.text


async def test_no_cluster_is_asked_while_another_screen_is_in_front() -> None:
    fleet = Fleet()
    async with fleet.console(SMALL) as console:
        assert not fleet.sources
        await shown(console)
        assert set(fleet.sources) == {"prod-us", "lab"}
        await console.press("1")
        assert all(one.closed for sources in fleet.sources.values() for one in sources)


async def test_a_cluster_is_judged_by_its_own_thresholds() -> None:
    """Thresholds of a context hold for it on the screen of clusters, and after going into it."""
    fleet = Fleet()
    strict = {"gap_bytes": attrs.evolve(RULES["gap_bytes"], warn=1, for_s=0)}
    context = attrs.evolve(CONTEXTS[1], rules=strict)
    contexts = Contexts(Path("config.toml"), None, {"prod-us": context}, RULES)
    us = fleet.clusters["prod-us"]
    master = next(iter(us.statuses))
    us.link(master)["gap_bytes"] = 100
    us.tick()
    async with open_console(
        fleet.clusters["prod-eu"],
        LARGE,
        contexts=contexts,
        open_context=fleet.open,
        open_other=fleet.open,
    ) as console:
        await shown(console)
        assert "1 alert" in console.line("prod-us")
        await console.press("g", "enter")
        assert console.app.alerts.rules == strict


async def test_without_contexts_the_one_cluster_stands_alone() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster, LARGE) as console:
        assert "0 Clusters" not in console.text
        await console.press("0")
        assert "10.0.0.9:9876  here" in console.text
