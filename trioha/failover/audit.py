"""Audit records: the members of a set keep a record of each failover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trioha.failover.asking import Answer, Flow, ask_each
from trioha.failover.facts import Make
from trioha.failover.gathering import gather_facts
from trioha.wire.codes import RequestCode

Record = Mapping[str, Any]


def audit_records(
    broker_name: str, namesrvs: Sequence[str], *, patience_s: float = 3.0
) -> Flow[tuple[list[Record], list[str]]]:
    """Return past failovers, oldest first, each once, and the nodes that did not answer."""
    facts = yield from gather_facts(broker_name, namesrvs, patience_s=patience_s)
    silent = [f"name server {one.address}: {one.error}" for one in facts.namesrvs if one.error]
    silent += [f"{one.name}: {one.error}" for one in facts.replicas if one.error]
    members = [one.address for one in facts.replicas if one.make is Make.TRIOHA]
    replies = yield from ask_each(members, RequestCode.FAILOVER_AUDIT, patience_s)
    found: dict[str, Record] = {}
    for reply in replies.values():
        if isinstance(reply, Answer) and reply.is_success:
            for record in reply.fields().get("records") or []:
                known = found.setdefault(str(record.get("ticket_id")), record)
                if int(record.get("ended_wall_ms", 0)) > int(known.get("ended_wall_ms", 0)):
                    found[str(record.get("ticket_id"))] = record
    return sorted(found.values(), key=lambda one: int(one.get("started_wall_ms", 0))), silent
