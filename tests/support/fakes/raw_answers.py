"""Raw answers of a simulated cluster, as a collector would have them after asking it.

A `RawCluster` starts whole, one name server and the sets that are added; tests then change what a
node says, silence it, or let time pass.
"""

from __future__ import annotations

import copy
from typing import Any

import attrs

WALL_MS = 1_760_000_000_000
NAMESRV = "10.0.0.9:9876"


@attrs.define(eq=False)
class RawCluster:
    """`raw()` is what `ClusterSnapshot.of` takes."""

    wall_ms: int = WALL_MS
    namesrvs: list[str] = attrs.field(factory=lambda: [NAMESRV])
    members: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    statuses: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Address -> current status of the node. Change them at will."""
    answers: dict[str, dict[str, dict[str, Any]]] = attrs.field(factory=dict)
    silent: dict[str, str] = attrs.field(factory=dict)
    """Address -> why it does not answer."""
    codes: dict[str, int] = attrs.field(factory=dict)
    """Address -> code of the error that it answers with, for one of `silent` that does."""

    def add_set(
        self, name: str, slaves: int = 1, *, cluster: str = "DefaultCluster", end: int = 4096
    ) -> tuple[str, ...]:
        """A master and its slaves, all level at `end`; returns their addresses."""
        number = len({member["name"] for member in self.members.values()}) + 1
        addresses = [f"10.0.{number}.{index + 1}:10911" for index in range(slaves + 1)]
        for broker_id, address in enumerate(addresses):
            self.members[address] = {
                "name": name,
                "cluster": cluster,
                "id": broker_id,
                "registered": True,
                "seen_wall_ms": self.wall_ms,
            }
            status = node_status(name, broker_id, address, cluster=cluster, end=end)
            if broker_id == 0:
                status["connections"] = [
                    link_row(f"{_host(slave)}:50001", home_id, end=end)
                    for home_id, slave in enumerate(addresses[1:], 1)
                ]
            else:
                status["slave"] = slave_row(f"{_host(addresses[0])}:10912")
            self.statuses[address] = status
        self.tick(0)
        return tuple(addresses)

    def link(self, master: str, index: int = 0) -> dict[str, Any]:
        """A link as its master tells it."""
        row: dict[str, Any] = self.statuses[master]["connections"][index]
        return row

    def say(self, address: str, key: str, value: object, *, age_ms: int = 0) -> None:
        """Let a node have answered one more question."""
        self.answers.setdefault(address, {})[key] = _answer(value, self.wall_ms - age_ms)

    def tick(self, elapsed_ms: int = 1000) -> None:
        """Let time pass and ask every node again; silent nodes keep their last answer."""
        self.wall_ms += elapsed_ms
        told = self.told_by_namesrv()
        for address in self.namesrvs:
            self._ask(address, "cluster", told)
        for address, status in self.statuses.items():
            self._ask(address, "status", copy.deepcopy(status))

    def told_by_namesrv(self) -> dict[str, Any]:
        """Return a name server's answer: the registered members."""
        told: dict[str, Any] = {}
        for address, member in self.members.items():
            if member["registered"]:
                one = told.setdefault(
                    member["name"], {"cluster": member["cluster"], "addresses": []}
                )
                one["addresses"].append([member["id"], address])
        return told

    def raw(self) -> dict[str, Any]:
        return {
            "version": 1,
            "at_wall_ms": self.wall_ms,
            "namesrvs": list(self.namesrvs),
            "members": copy.deepcopy(self.members),
            "answers": {address: dict(answers) for address, answers in self.answers.items()},
        }

    def _ask(self, address: str, key: str, value: object) -> None:
        answers = self.answers.setdefault(address, {})
        error = self.silent.get(address, "")
        if not error:
            answers[key] = _answer(value, self.wall_ms)
            return
        last = answers.get(key) or _answer(None, None)
        since = last["error_wall_ms"] if last["error"] else self.wall_ms
        code = self.codes.get(address)
        answers[key] = {**last, "error": error, "error_wall_ms": since, "code": code}


def node_status(
    name: str, broker_id: int, address: str, *, cluster: str = "DefaultCluster", end: int = 4096
) -> dict[str, Any]:
    """Return the status of a healthy broker."""
    return {
        "name": name,
        "cluster": cluster,
        "id": broker_id,
        "home_id": broker_id,
        "role": "SLAVE" if broker_id else "SYNC_MASTER",
        "standing": "SLAVE" if broker_id else "MASTER",
        "epoch": 1,
        "log_epoch": 1,
        "address": address,
        "ha_address": f"{_host(address)}:10912",
        "version": "0.1.0",
        "uptime_s": 3600.0,
        "min_phy_offset": 0,
        "max_phy_offset": end,
        "flushed_offset": end,
        "dispatched_offset": end,
        "reserved_s": 72 * 3600,
        "disk_ratio": 0.42,
        "writable": broker_id == 0,
        "put_total": 1000,
        "get_total": 900,
        "client_connections": 3,
        "puts_waiting": 0,
        "connections": [],
        "refusals": [],
        "absent": [],
        "slave": None,
    }


def link_row(peer: str, home_id: int, *, end: int = 4096) -> dict[str, Any]:
    """A link in sync, by its master."""
    return {
        "peer": peer,
        "home_id": home_id,
        "epoch": 1,
        "slave_ack_offset": end,
        "gap_bytes": 0,
        "gap_s": 0.0,
        "in_sync": True,
        "last_ack_age_s": 1.2,
        "heartbeat_interval_s": 5.0,
        "housekeeping_s": 20.0,
        "transferred_bytes_per_s": 2048,
        "connected_s": 600.0,
        "reconnects": 0,
        "last_error": "",
        "last_error_age_s": None,
        "doubt": "",
    }


def slave_row(master: str) -> dict[str, Any]:
    """The same link by its slave."""
    return {
        "master": master,
        "state": "TRANSFER",
        "last_read_age_s": 0.8,
        "gap_bytes": 0,
        "reconnects": 0,
        "last_error": "",
        "last_error_age_s": None,
        "heartbeat_interval_s": 5.0,
        "housekeeping_s": 20.0,
    }


def _answer(value: object, wall_ms: int | None) -> dict[str, Any]:
    return {
        "value": value,
        "wall_ms": wall_ms,
        "took_ms": 2,
        "error": "",
        "error_wall_ms": None,
        "code": None,
        "period_ms": 1000,
    }


def _host(address: str) -> str:
    return address.rpartition(":")[0]
