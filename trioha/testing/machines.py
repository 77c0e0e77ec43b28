"""The machines of a cluster, by the name of a layout or from a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from trioha.config import BrokerConfig
from trioha.config.sources import load_broker, set_entry
from trioha.errors import TriohaError
from trioha.layouts import RAFT_LAYOUT, members_of

Row = tuple[str, int, str]
"""Broker name, number, and SYNC_MASTER, ASYNC_MASTER, SLAVE or DLEDGER."""
Layout = str | Sequence[Row]

RAFT_ROLE = "DLEDGER"
_A = "broker-a"
_RAFT = [(_A, number, RAFT_ROLE) for number in range(3)]
_OWN: Mapping[str, Sequence[Row]] = {
    "single": [(_A, 0, "ASYNC_MASTER")],
    "pair": [(_A, 0, "SYNC_MASTER"), (_A, 1, "SLAVE")],
    "three": [(_A, 0, "SYNC_MASTER"), (_A, 1, "SLAVE"), (_A, 2, "SLAVE")],
    "raft": _RAFT,
    RAFT_LAYOUT: _RAFT,
}
_STOCK = ("2m-2s-sync", "2m-2s-async", "2m-noslave")
LAYOUTS = (*_OWN, *_STOCK)


@attrs.frozen
class MachineSpec:
    """One broker of a cluster."""

    name: str
    number: int
    """Broker id of a master or slave; `k` of member `n<k>` of a DLEDGER group."""
    role: str

    @property
    def is_raft(self) -> bool:
        return self.role == RAFT_ROLE

    @property
    def label(self) -> str:
        """Name in events and stories."""
        return f"{self.name}-{'n' if self.is_raft else ''}{self.number}"


def machines_of(layout: Layout) -> tuple[MachineSpec, ...]:
    """Return the machines of a layout, masters before their slaves.

    Errors: TriohaError for a name that is no layout and for a table that makes no cluster.
    """
    rows: Iterable[Row]
    if not isinstance(layout, str):
        rows = layout
    elif layout in _OWN:
        rows = _OWN[layout]
    elif layout in _STOCK:
        rows = [(member.name, member.broker_id, member.role) for member in members_of(layout)]
    else:
        raise TriohaError(f"no layout has the name {layout}; take one of {', '.join(LAYOUTS)}")
    machines = tuple(MachineSpec(*row) for row in rows)
    if not machines or len({(one.name, one.number) for one in machines}) < len(machines):
        raise TriohaError("a table needs at least one broker, and each (name, number) only once")
    return tuple(sorted(machines, key=lambda one: (one.role == "SLAVE", one.name, one.number)))


def settings_of(machine: MachineSpec, peers: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that make a broker this machine; `peers` are addresses by label."""
    settings = {"brokerName": machine.name}
    if not machine.is_raft:
        return settings | {"brokerId": str(machine.number), "brokerRole": machine.role}
    members = [
        f"{label.rpartition('-')[2]}-{address}"
        for label, address in peers.items()
        if label.startswith(f"{machine.name}-n")
    ]
    return settings | {
        "enableDLegerCommitLog": "true",
        "dLegerPeers": ";".join(members),
        "dLegerSelfId": f"n{machine.number}",
    }


def config_of(settings: Mapping[str, object]) -> BrokerConfig:
    """Return the configuration of a broker with these settings, by RocketMQ's keys.

    Errors: ConfigError that names the setting.
    """
    entries = [set_entry(f"{key}={java_text(value)}") for key, value in settings.items()]
    return load_broker(flags=entries).config


def java_text(value: object) -> str:
    """Return a value as RocketMQ's property files write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
