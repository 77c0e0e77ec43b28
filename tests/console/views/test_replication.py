from __future__ import annotations

import pytest
from support.fakes.raw_answers import NAMESRV, RawCluster
from support.screens.screens import LARGE, SMALL, check_snapshot, open_console


def a_cluster() -> tuple[RawCluster, dict[str, str]]:
    """One set that is well, one with a slave that lags and one that has gone."""
    cluster = RawCluster()
    master, level = cluster.add_set("broker-a")
    other, behind, gone = cluster.add_set("broker-b", 2)
    cluster.link(other, 0).update(
        slave_ack_offset=1024, gap_bytes=300 << 20, gap_s=42.0, in_sync=False, last_ack_age_s=3.5
    )
    cluster.statuses[other]["max_phy_offset"] = (300 << 20) + 1024
    cluster.statuses[behind]["max_phy_offset"] = 1024
    del cluster.statuses[other]["connections"][1]
    cluster.statuses[other]["absent"] = [
        {"host": "10.0.2.3", "links": 1, "last_error": "silent for 20 s", "last_error_age_s": 9.0}
    ]
    cluster.members[gone]["registered"] = False
    cluster.silent[gone] = "connection refused"
    cluster.tick()
    return cluster, {"master": master, "level": level, "behind": behind, "gone": gone}


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_screen_that_opens_first(size: tuple[int, int]) -> None:
    cluster, _ = a_cluster()
    async with open_console(cluster, size) as console:
        await console.tick(3)
        check_snapshot(f"replication-{size[0]}x{size[1]}", console.text)


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_link_from_both_ends(size: tuple[int, int]) -> None:
    cluster, _ = a_cluster()
    async with open_console(cluster, size) as console:
        await console.press(*["down"] * 5)
        await console.tick(3)
        check_snapshot(f"replication-link-{size[0]}x{size[1]}", console.text)


async def test_a_node_that_does_not_answer_is_shown_as_such_while_the_rest_stays_live() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await console.tick()
        cluster.silent[slave] = "did not answer within 3 s"
        await console.tick(2)
        assert "unreachable" in console.line(f"1 {slave}")
        assert "writable" in console.line(f"0 {master}")
        cluster.silent.clear()
        await console.tick()
        assert "in sync" in console.line(f"1 {slave}")


async def test_the_age_of_the_last_heartbeat_climbs_and_the_word_changes_with_it() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        for age_s, word, number in (
            (1.0, "in sync", "1.0/20s"),
            (11.0, "no heartbeat", "11.0/20s"),
            (19.9, "no heartbeat", "19.9/20s"),
        ):
            cluster.link(master)["last_ack_age_s"] = age_s
            await console.tick()
            line = console.line(f"1 {slave}")
            assert word in line
            assert number in line


async def test_what_is_not_known_is_a_dash_and_never_a_zero() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    for address in (master, slave):
        cluster.statuses[address] = {"role": cluster.statuses[address]["role"]}
    cluster.tick()
    async with open_console(cluster, LARGE) as console:
        await console.tick()
        line = console.line(f"1 {slave}")
        assert " 0 B" not in line
        assert " 0 " not in line.split(slave)[1]


async def test_a_name_server_that_does_not_answer_is_said_at_the_top() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster, LARGE) as console:
        cluster.silent[NAMESRV] = "connection refused"
        await console.tick()
        assert "✖ no name server" in console.text.splitlines()[0]
        assert "all well" not in console.text


async def test_the_cursor_stays_with_its_replica_when_others_come() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-m")
    async with open_console(cluster) as console:
        await console.press("down", "down")
        cluster.add_set("broker-a")
        await console.tick()
        row = console.app.view.grid.row
        assert row is not None
        assert row.replica.address == slave


async def test_pause_keeps_the_picture_while_the_history_goes_on() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    async with open_console(cluster) as console:
        await console.press("p")
        assert "paused" in console.text.splitlines()[0]
        before = console.text
        cluster.tick()
        console.source.push()
        await console.settled()
        assert console.text == before
        await console.press("p")
        await console.tick()
        assert console.text != before


async def test_three_sets_of_three_their_state_and_the_reason_need_no_scrolling() -> None:
    cluster = RawCluster()
    masters = [cluster.add_set(f"broker-{letter}", 2)[0] for letter in "abc"]
    gone = cluster.link(masters[2], 0)["peer"].rpartition(":")[0] + ":10911"
    cluster.silent[gone] = (
        "its certificate is not signed by an authority of this cluster: it expired on Monday"
    )
    async with open_console(cluster, SMALL) as console:
        await console.tick(2)
        await console.press("end", "up", "up", "up")
        shown = console.text
        table = shown.splitlines()[3:15]
        assert [line[:2] for line in table if " broker-" in line] == ["● ", "● ", "✖ "]
        assert sum(":10911 " in line[:24] for line in table) == 9
        assert "expired on Monday" in " ".join(shown.split())
        check_snapshot("replication-three-sets-80x24", shown)


async def test_the_panel_follows_the_terminal_between_two_frames() -> None:
    cluster = RawCluster()
    for letter in "abcd":
        cluster.add_set(f"broker-{letter}", 2)
    async with open_console(cluster, (80, 26)) as console:
        await console.pilot.resize_terminal(80, 30)
        resized = console.text
        await console.frame()
        assert resized == console.text
