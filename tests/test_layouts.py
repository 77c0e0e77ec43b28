"""Layouts: the nodes of each, and their arguments."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from trioha.layouts import (
    RAFT_LAYOUT,
    LayoutMember,
    RaftGroup,
    broker_arguments,
    free_ports,
    members_of,
    waves,
)


@pytest.mark.parametrize(
    ("layout", "roles"),
    [
        ("2m-2s-async", ["ASYNC_MASTER", "ASYNC_MASTER", "SLAVE", "SLAVE"]),
        ("2m-2s-sync", ["SYNC_MASTER", "SYNC_MASTER", "SLAVE", "SLAVE"]),
        ("2m-noslave", ["ASYNC_MASTER", "ASYNC_MASTER"]),
    ],
)
def test_layouts_are_rocketmqs(layout: str, roles: list[str]) -> None:
    members = members_of(layout)
    assert [member.role for member in members] == roles
    assert [member.name for member in members] == (["broker-a", "broker-b"] * 2)[: len(roles)]
    assert [member.broker_id for member in members] == [0, 0, 1, 1][: len(roles)]


def test_a_machine_has_as_many_sets_as_it_is_told() -> None:
    masters, slaves = waves(
        "2m-2s-sync",
        host="127.0.0.1",
        broker_port=10911,
        namesrv="n:1",
        directory=Path("/d"),
        settings=["a=b"],
        sets=4,
    )
    assert list(masters) == [f"broker-{letter}-0" for letter in "abcd"]
    assert list(slaves) == [f"broker-{letter}-1" for letter in "abcd"]
    nodes = [*masters.values(), *slaves.values()]
    listens = [node.arguments[node.arguments.index("--listen") + 1] for node in nodes]
    assert listens == [f"127.0.0.1:{10911 + 10 * number}" for number in range(8)]
    # Each master has a core of its own; no slave is on its master's.
    assert [node.core([0, 1, 2, 3]) for node in masters.values()] == [0, 1, 2, 3]
    assert [node.core([0, 1, 2, 3]) for node in slaves.values()] == [1, 2, 3, 0]
    assert [node.core([7]) for node in nodes] == [7] * 8


def test_a_machine_has_as_many_groups_as_it_is_told() -> None:
    (members,) = waves(
        RAFT_LAYOUT,
        host="127.0.0.1",
        broker_port=10911,
        namesrv="n:1",
        directory=Path("/d"),
        settings=[],
        sets=2,
    )
    assert list(members) == [f"broker-{letter}-n{place}" for letter in "ab" for place in range(3)]
    peers = "dLegerPeers=n0-127.0.0.1:10941;n1-127.0.0.1:10951;n2-127.0.0.1:10961"
    assert peers in members["broker-b-n1"].arguments
    assert [node.core([0, 1, 2]) for node in members.values()] == [0, 1, 2, 1, 2, 0]


def test_ha_ports_follow_the_listen_port() -> None:
    arguments = broker_arguments(
        LayoutMember("b", 0, "ASYNC_MASTER"), "127.0.0.1:10911", "n:1", Path("/d"), ["a=b"]
    )
    assert arguments[arguments.index("--ha-listen") + 1] == "127.0.0.1:10912"
    assert arguments[-2:] == ["--set", "a=b"]
    free = broker_arguments(LayoutMember("b", 0, "ASYNC_MASTER"), "[::1]:0", "n:1", Path("/d"), [])
    assert free[free.index("--ha-listen") + 1] == "[::1]:0"


def test_members_of_a_group_are_told_of_each_other() -> None:
    group = RaftGroup("broker-a", {"n0": "127.0.0.1:10911", "n1": "127.0.0.1:10921"})
    arguments = group.arguments("n1", "n:1", Path("/d"), ["a=b"])
    assert arguments[:5] == ["broker", "--name", "broker-a", "--listen", "127.0.0.1:10921"]
    settings = [arguments[at + 1] for at, one in enumerate(arguments) if one == "--set"]
    assert settings == [
        "enableDLegerCommitLog=true",
        "dLegerGroup=broker-a",
        "dLegerPeers=n0-127.0.0.1:10911;n1-127.0.0.1:10921",
        "dLegerSelfId=n1",
        "a=b",
    ]
    assert str(Path("/d/broker-a-n1")) in arguments


def test_free_ports_leave_room_for_what_a_broker_has_beside_them() -> None:
    ports = sorted(free_ports("127.0.0.1", 3))
    assert len(ports) == 3
    assert all(20_000 <= port < 32_768 for port in ports)
    assert all(after - before >= 10 for before, after in itertools.pairwise(ports))


def test_two_processes_that_choose_at_once_get_different_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No node listens yet at the ports of either."""
    monkeypatch.setattr("trioha.layouts._FREE_PORTS", (26_000, 26_200))
    code = "from trioha import layouts; layouts._FREE_PORTS = (26_000, 26_200); " + (
        "print(*layouts.free_ports('127.0.0.1', 5), flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        ours = set(free_ports("127.0.0.1", 100))
        other.communicate("\n")
    assert theirs
    assert ours
    assert not theirs & ours
