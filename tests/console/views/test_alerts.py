from __future__ import annotations

import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, check_snapshot, open_console


def a_cluster() -> tuple[RawCluster, str, str]:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    return cluster, master, slave


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_what_is_wrong_with_the_worst_first(size: tuple[int, int]) -> None:
    cluster, master, slave = a_cluster()
    async with open_console(cluster, size) as console:
        cluster.statuses[master]["disk_ratio"] = 0.9
        cluster.silent[slave] = "did not answer within 3 s"
        await console.tick(70)
        await console.press("7")
        check_snapshot(f"alerts-{size[0]}x{size[1]}", console.text)


async def test_an_alert_is_said_below_and_rings_the_bell_once() -> None:
    cluster, _, slave = a_cluster()
    async with open_console(cluster) as console:
        bells: list[int] = []
        console.app.bell = lambda: bells.append(1)  # type: ignore[method-assign]
        cluster.silent[slave] = "gone"
        await console.tick(12)
        assert bells == [1]
        (said,) = console.app.notices
        assert said.startswith("broker_silent: ")
        assert "✖ 1 node  ✖ 1 alert" in console.text.splitlines()[0]


async def test_an_alert_that_somebody_knows_is_kept_and_not_counted() -> None:
    cluster, _, slave = a_cluster()
    async with open_console(cluster) as console:
        cluster.silent[slave] = "gone"
        await console.tick(12)
        await console.press("7")
        assert " new " in console.line("broker_silent ")
        await console.press("a")
        assert " seen " in console.line("broker_silent ")
        assert "1 alert seen" in console.text.splitlines()[0]


async def test_an_alert_ends_by_itself() -> None:
    cluster, _, slave = a_cluster()
    async with open_console(cluster) as console:
        cluster.silent[slave] = "gone"
        await console.tick(12)
        cluster.silent.clear()
        await console.press("7")
        await console.tick(12)
        assert "No active alerts" in console.text
