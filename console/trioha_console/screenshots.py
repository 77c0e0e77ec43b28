"""The console's screens as pictures, without a terminal: for incident bundles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import attrs

from trioha.errors import TriohaError
from trioha.watch.collector import Interest, Raw
from trioha.watch.rules import RULES, Rule
from trioha.wire.remoting_command import RemotingCommand
from trioha_console.app import ConsoleApp
from trioha_console.idle_loop import IdleLoop, settled
from trioha_console.later import VIEWS

SIZE = (160, 48)


class StillSource:
    """Source of one snapshot, which never changes."""

    live = False
    thrifty = False

    def __init__(self, raw: Raw, title: str) -> None:
        self.title = title
        self.namesrvs: tuple[str, ...] = ()
        self._raw = raw

    async def snapshots(self) -> AsyncIterator[Raw]:
        yield self._raw
        await asyncio.Event().wait()

    def want(self, interest: Interest) -> None:
        pass

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        raise TriohaError("this is a picture of a moment; nobody can be asked")

    async def close(self) -> None:
        pass


def screenshots(
    raw: Raw, directory: Path, *, title: str = "", rules: Mapping[str, Rule] = RULES
) -> list[Path]:
    """Write every screen of this moment as an SVG file into `directory`.

    Alerts are shown without patience: there is no time for something to have been so in.
    """
    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        return runner.run(_take(raw, directory, title, rules))


async def _take(raw: Raw, directory: Path, title: str, rules: Mapping[str, Rule]) -> list[Path]:
    at_once = {name: attrs.evolve(rule, for_s=0) for name, rule in rules.items()}
    app = ConsoleApp(StillSource(raw, title), rules=at_once)
    paths = []
    async with app.run_test(size=SIZE):
        await settled(app)
        for number, name in enumerate(VIEWS, 1):
            if name == "messages":
                continue  # has nothing to show that was not asked for
            await app.action_view(name)
            await settled(app)
            path = directory / f"{number}-{name}.svg"
            path.write_text(app.export_screenshot(title=title or "trioha console"))
            paths.append(path)
    return paths
