"""The catalogue of rows, and how globs and blocks pick from it."""

from __future__ import annotations

from bench.peer.rows import Topology, all_rows, blocks_of, select_rows
from bench.peer.runner import estimate_min
from bench.peer.scale import QUICK, Scale


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
        assert len({(row.topology, row.java_release) for row in rows}) == 1, name


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
        *(f"start/{state}" for state in ("empty", "killed", "stopped")),
        *(f"java/send/alone/128/{threads}" for threads in (1, 8, 64)),
    ]


def test_no_glob_picks_everything_and_a_wrong_one_nothing() -> None:
    assert select_rows(all_rows(), []) == all_rows()
    assert select_rows(all_rows(), ["typo/*"]) == []


def test_the_brokers_are_started_once_for_the_rows_of_both_clients() -> None:
    blocks = blocks_of(all_rows())
    assert list(blocks) == [
        "slave",
        "sync",
        "producer",
        "ha/catch-up",
        "ha/slave-loss",
        "life",
        "alone",
        "timers",
        "acl",
        "tls",
    ]
    for topology in Topology:
        clients = [row.client for row in blocks[topology.value]]
        assert {"java", "cpp"} <= set(clients)


def test_an_end_to_end_p99_stands_on_a_thousand_messages() -> None:
    assert 100 * Scale().e2e_seconds > 1000


def test_the_whole_comparison_fits_into_eighty_minutes_and_quick_is_quicker() -> None:
    whole = estimate_min(all_rows(), 3, Scale())
    assert 0 < 1.5 * estimate_min(all_rows(), 3, QUICK) < whole < 80
