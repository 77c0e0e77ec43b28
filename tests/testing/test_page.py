"""The code of docs/testing-with-trioha.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trioha.testing import TriohaCluster
from trioha.testing.playing import load_scenario, play

PAGE = Path(__file__).parents[2] / "docs" / "testing-with-trioha.md"
LINES_MAX = 12


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_first_example_runs_and_is_short() -> None:
    first = code_of(PAGE.read_text())[0]
    body = first[first.index("async def") : first.index("run_seeded(test")].strip().splitlines()
    assert len(body) <= LINES_MAX
    exec(compile(first, str(PAGE), "exec"), {"__name__": "page"})


async def test_the_example_of_the_fixture_runs(trioha_cluster: TriohaCluster) -> None:
    names: dict[str, Any] = {}
    exec(compile(code_of(PAGE.read_text())[1], str(PAGE), "exec"), names)
    await names["test_a_message_arrives"](trioha_cluster)


def test_the_example_of_a_scenario_holds(tmp_path: Path) -> None:
    (text,) = [one for one in code_of(PAGE.read_text()) if "async def scenario" in one]
    tmp_path.joinpath("page.py").write_text(text)
    assert play(load_scenario(str(tmp_path / "page.py")), seed=0).failure is None
