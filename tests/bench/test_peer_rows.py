"""The catalogue of rows, and how globs and blocks pick from it."""

from __future__ import annotations

from bench.peer.loads import QUICK, Scale
from bench.peer.rows import Topology, all_rows, blocks_of, select_rows
from bench.peer.runner import estimate_min


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for row in all_rows()]
    assert len(set(names)) == len(names)


def test_goals_speak_of_metrics_the_row_has() -> None:
    for row in all_rows():
        assert row.goals.keys() <= {metric.key for metric in row.metrics}, row.name


def test_rows_of_a_group_have_one_table_head() -> None:
    heads: dict[str, set[object]] = {}
    for row in all_rows():
        heads.setdefault(row.group, set()).add(row.metrics)
    assert {group: len(found) for group, found in heads.items() if len(found) > 1} == {}


def test_rows_of_a_block_need_the_same_nodes() -> None:
    for name, rows in blocks_of(all_rows()).items():
        assert len({row.topology for row in rows}) == 1, name


def test_synchronous_sends_come_in_every_width_size_and_topology() -> None:
    names = {row.name for row in all_rows()}
    wanted = {
        f"java/send/{topology.value}/{size}/{threads}"
        for topology in Topology
        for size in (128, 1024)
        for threads in (1, 8, 64)
    }
    assert wanted <= names


def test_a_glob_picks_rows_in_their_order() -> None:
    picked = select_rows(all_rows(), ["start/*", "java/send/alone/128/*"])
    assert [row.name for row in picked] == [
        *(f"java/send/alone/128/{threads}" for threads in (1, 8, 64)),
        *(f"start/{state}" for state in ("empty", "stopped", "killed")),
    ]


def test_no_glob_picks_everything_and_a_wrong_one_nothing() -> None:
    assert select_rows(all_rows(), []) == all_rows()
    assert select_rows(all_rows(), ["typo/*"]) == []


def test_every_row_has_an_estimate_and_quick_is_quicker() -> None:
    assert 0 < estimate_min(all_rows(), 1, QUICK) < estimate_min(all_rows(), 1, Scale())
