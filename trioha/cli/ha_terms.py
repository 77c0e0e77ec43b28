"""Part of `trioha ha status` on terms of mastership, and on nodes that disagree about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from trioha.cli.output import size_in_words, table_of
from trioha.log_lines import rfc3339

Status = Mapping[str, Any]

_TERMS_SHOWN = 6
_STANDING_MASTER = "MASTER"


def terms_in_words(brokers: Sequence[Status]) -> list[str]:
    """Return tables of each node's role and epoch and each set's terms; none for Java brokers."""
    ours = [broker for broker in brokers if broker.get("standing")]
    if not ours:
        return []
    parts = [
        table_of(
            [
                {
                    "BROKER": broker["name"],
                    "NODE": broker.get("home_id"),
                    "ROLE": broker["standing"],
                    "EPOCH": broker.get("epoch"),
                    "LOG EPOCH": broker.get("log_epoch"),
                    "KNOWN MASTER": believed_master(broker),
                    "TRUNCATED LOGS": len(broker.get("cuts") or []) or None,
                }
                for broker in ours
            ]
        )
    ]
    rows = [row for _, members in groupby(ours, lambda one: one["name"]) for row in _terms(members)]
    if rows:
        parts.append(table_of(rows))
    return parts


def registered_id(broker: Status) -> int:
    """Return the id at the name servers: 0 for a master; `id` is the node's own."""
    number: int = broker.get("registered_id", broker["id"])
    return number


def _terms(members: Iterator[Status]) -> Iterator[Mapping[str, object]]:
    """The newest terms of a set that was failed over."""
    knowing = max(members, key=lambda one: _number_of_newest(one))
    terms = knowing.get("epochs") or []
    if len(terms) > 1:
        for term in terms[-_TERMS_SHOWN:]:
            yield {
                "BROKER": knowing["name"],
                "EPOCH": term["epoch"],
                "BEGAN": rfc3339(term["began_wall_ms"]),
                "MASTER": term["home_id"],
                "AT OFFSET": term["start_offset"],
                "PUTS WAIT": "for a slave" if term["sync"] else "no",
            }


def believed_master(broker: Status) -> str:
    """Return the address that a node takes for its set's master; "" if it knows of none."""
    if broker.get("standing") == _STANDING_MASTER:
        return str(broker["address"])
    return str(broker.get("follows") or "")


def problems_of_terms(broker: Status, who: str) -> Iterator[str]:
    """Yield the problems that a node reports of its own standing."""
    if reason := broker.get("fenced_by"):
        yield f"{who}: takes no writes: {reason}"
    elif broker.get("standing") == "FENCED":
        yield f"{who}: takes no writes, and knows no master to follow"
    if not broker.get("registered", True):
        yield f"{who}: is of this set and not registered with the name server"
    for cut in broker.get("cuts") or []:
        yield (
            f"{who}: {size_in_words(cut['end'] - cut['begin'])} that it gave up are in"
            f" {cut['path']}; `trioha ha recover` there sends them again; delete it then"
        )


def disagreements(brokers: Sequence[Status]) -> list[str]:
    """Return the contradictions between nodes about the master and its epoch."""
    found: list[str] = []
    for name, group in groupby(brokers, lambda one: one["name"]):
        members = [one for one in group if one.get("standing")]
        found += _about_masters(name, members)
        found += _about_epochs(name, members)
        found += _about_beliefs(name, members)
    return found


def _about_masters(name: str, members: Sequence[Status]) -> Iterator[str]:
    masters = [one for one in members if one["standing"] == _STANDING_MASTER]
    if len(masters) > 1:
        claims = ", ".join(f"{one['address']} (epoch {one['epoch']})" for one in masters)
        yield f"{name}: {len(masters)} nodes take themselves for master: {claims}"


def _about_epochs(name: str, members: Sequence[Status]) -> Iterator[str]:
    newest = max((one["epoch"] or 0 for one in members), default=0)
    for one in members:
        if one["standing"] == _STANDING_MASTER and one["epoch"] < newest:
            yield (
                f"{name}: {one['address']} is master of epoch {one['epoch']}, and epoch {newest} is"
                " known to another node: it has been deposed and has not heard of it"
            )
    nonces: dict[int, set[str]] = {}
    for one in members:
        for term in one.get("epochs") or []:
            nonces.setdefault(term["epoch"], set()).add(term["nonce"])
    for epoch, made in sorted(nonces.items()):
        if len(made) > 1:
            yield f"{name}: epoch {epoch} was begun {len(made)} times, by as many operators"


def _about_beliefs(name: str, members: Sequence[Status]) -> Iterator[str]:
    masters = {one["address"] for one in members if one["standing"] == _STANDING_MASTER}
    believed: dict[str, list[str]] = {}
    for one in members:
        if master := believed_master(one):
            believed.setdefault(master, []).append(f"node {one.get('home_id')}")
        for namesrv, address in (one.get("namesrvs") or {}).items():
            who = f"name server {namesrv}"
            if address and who not in believed.setdefault(address, []):
                believed[address].append(who)
    believed = {address: by for address, by in believed.items() if by}
    if len(believed) > 1:
        said = "; ".join(f"{address}: {', '.join(by)}" for address, by in sorted(believed.items()))
        yield f"{name}: not everybody believes in the same master: {said}"
    elif masters and believed and not masters & set(believed):
        yield f"{name}: {next(iter(believed))} is believed in, and {next(iter(masters))} is master"


def _number_of_newest(broker: Status) -> int:
    terms = broker.get("epochs") or []
    return int(terms[-1]["epoch"]) if terms else 0
