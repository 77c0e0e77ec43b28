"""Layouts: the nodes of each, and their arguments."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from trioha.layouts import LayoutMember, RaftGroup, broker_arguments, free_ports, members_of


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
