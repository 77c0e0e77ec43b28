"""Moments at which other nodes noticed that a broker was gone, read from their journals.

A slave notices the end of its link, a name server the end of a connection, and a member of a
DLEDGER group the end of its connection to another member. A name server knows a broker of a pair by
its id. Of a member of a group it knows an id that changes with its role (the leader has 0), so
members are recognized by their addresses.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from trioha.analysis.journal_rows import JournalRow

OWN_END = "this node stops following"
"""A slave's reason when the end of a link says nothing of its master."""
_SLACK_MS = 2_000
"""A link that ended so shortly before a node's last word may be the node's death all the same:
clocks differ, and a journal is written in steps."""


class Witnessed(Protocol):
    """The life of a node, as far as other nodes can tell of it."""

    journal: str
    node: str
    begin_ms: int
    heard_ms: int
    listen: str
    ha_listen: str

    @property
    def ending(self) -> str: ...


@attrs.frozen
class _Witness:
    """One node noticed that another one was gone. What it does not know of that one is empty."""

    at_ms: int
    journal: str
    broker: str
    broker_id: str = ""
    address: str = ""
    ha_address: str = ""
    member: str = ""


@attrs.define(eq=False)
class Witnesses:
    """Observations of nodes by other nodes."""

    _seen: list[_Witness] = attrs.field(factory=list)
    _links: dict[tuple[str, str, str], str] = attrs.field(factory=dict)
    """(journal, broker, member) -> address, while the member is connected."""
    _addresses: dict[tuple[str, str], str] = attrs.field(factory=dict)
    """(broker, member) -> address, as other members know it."""
    _met_ms: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """(broker, member) -> when another member last connected to it."""

    def add(self, journal: str, broker: str, row: JournalRow) -> None:
        """Take the next event; each journal's in the order written."""
        fields, peer = row.fields, row.fields.get("peer", "")
        link = (journal, broker, peer)
        if row.name == "ha_disconnected" and fields.get("reason") != OWN_END:
            self._seen.append(_Witness(row.wall_ms, journal, broker, ha_address=peer))
        elif row.name == "broker_unregistered" and fields.get("reason") == "connection closed":
            self._seen.append(
                _Witness(
                    *(row.wall_ms, journal, fields.get("broker", "")),
                    broker_id=fields.get("id", ""),
                    address=fields.get("address", ""),
                )
            )
        elif row.name == "raft_connected":
            self._links[link] = self._addresses[broker, peer] = fields.get("address", "")
            met_ms = self._met_ms.get((broker, peer), row.wall_ms)
            self._met_ms[broker, peer] = max(met_ms, row.wall_ms)
        elif row.name == "raft_disconnected" and self._links.pop(link, None) is not None:
            # Later ones tell of connections that cannot be made.
            self._seen.append(_Witness(row.wall_ms, journal, broker, member=peer))

    def seen_dead_at(self, life: Witnessed, before_ms: int | None) -> int | None:
        """Return when a node first noticed the death, before `before_ms`; None if none did."""
        broker, _, id_ = life.node.rpartition(":")
        # A living master writes down the end of a link as well: its last word is no earlier.
        since_ms = life.heard_ms - (_SLACK_MS if life.ending == "killed" else 0)
        if life.ending == "open" and not id_.isdecimal():
            since_ms = max(since_ms, self._met_ms.get((broker, id_), 0))
        moments = [
            witness.at_ms
            for witness in self._seen
            if witness.journal != life.journal
            and witness.broker == broker
            and witness.at_ms >= max(since_ms, life.begin_ms)
            and (before_ms is None or witness.at_ms < before_ms)
            and self._is_of(witness, life, broker, id_)
        ]
        return max(life.heard_ms, min(moments)) if moments else None

    def _is_of(self, witness: _Witness, life: Witnessed, broker: str, id_: str) -> bool:
        if witness.ha_address:
            return is_same_address(life.ha_listen, witness.ha_address)
        if witness.member:
            return witness.member == id_
        if id_.isdecimal():
            return witness.broker_id == id_
        known = self._addresses.get((broker, id_))
        return is_same_address(known or life.listen, witness.address)


def is_same_address(listen: str, address: str) -> bool:
    """Does an address that was connected to belong to a listener?"""
    host, _, port = listen.rpartition(":")
    other_host, _, other_port = address.rpartition(":")
    if not port or port != other_port:
        return False
    return host == other_host or host in ("", "0.0.0.0", "[::]", "::", "localhost", "*")
