"""Problems that `trioha ha status` reports, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trioha.cli.ha_terms import problems_of_terms, registered_id
from trioha.cli.output import age_in_words, size_in_words

Status = dict[str, Any]

NOT_TRIOHA = "not a trioha node (role and offsets from runtime info)"
_CERTIFICATE_WARNING_S = 14 * 86_400
_QUIET_INTERVALS = 3
"""Heartbeats missed before a link is told of; it is closed at its housekeeping limit."""


def problems_of(brokers: Sequence[Status]) -> Iterator[str]:
    masters = {broker["name"]: broker for broker in brokers if registered_id(broker) == 0}
    told: set[str] = set()
    for broker in brokers:
        name = broker["name"]
        who = f"{name} {broker['id']} at {broker['address']}"
        if broker.get("error") not in (None, NOT_TRIOHA):
            yield f"{who}: {broker['error']}"
            continue
        if name not in masters and name not in told:
            told.add(name)
            yield f"{name}: no master is registered; nothing can be sent to it"
        if broker.get("insecure"):
            yield (
                f"{who}: insecure: other machines reach it and nobody has to prove anything; give "
                "it a clusterSecretFile (`trioha security init`)"
            )
        left_s = broker.get("certificate_left_s")
        if left_s is not None and left_s < _CERTIFICATE_WARNING_S:
            state = f"expires in {age_in_words(left_s)}" if left_s > 0 else "has expired"
            yield f"{who}: its TLS certificate {state}; replace its file, no restart is needed"
        yield from problems_of_terms(broker, who)
        yield from _problems_of_master(broker, who)
        yield from _problems_of_slave(broker, who, masters.get(name))


def _problems_of_master(broker: Status, who: str) -> Iterator[str]:
    links = broker["connections"]
    if broker["role"] == "SYNC_MASTER" and not any(link.get("in_sync") for link in links):
        held_back = broker.get("held_back_bytes")
        yield (
            f"{who}: SYNC_MASTER without a slave in sync; sends get SLAVE_NOT_AVAILABLE"
            + (f", consumers do not see the last {size_in_words(held_back)}" if held_back else "")
        )
    for link in links:
        age, interval = link.get("last_ack_age_s"), link.get("heartbeat_interval_s")
        if age is not None and interval and age > _QUIET_INTERVALS * interval:
            yield (
                f"{who}: slave {link.get('peer')} sent no heartbeat for {age_in_words(age)};"
                f" the link closes at {age_in_words(link.get('housekeeping_s'))}"
            )
        elif link.get("in_sync") is False:
            seconds = link.get("gap_s")
            yield (
                f"{who}: slave {link.get('peer')} is {size_in_words(link.get('gap_bytes'))}"
                f"{f', {age_in_words(seconds)},' if seconds else ''} behind"
            )
        if doubt := link.get("doubt"):
            yield f"{who}: slave {link.get('peer')}: {doubt}"
    for absent in broker.get("absent") or []:
        yield (
            f"{who}: the slave at {absent.get('host')} is gone since"
            f" {age_in_words(absent.get('last_error_age_s'))}: {absent.get('last_error')}"
        )
    for refusal in broker.get("refusals") or []:
        yield (
            f"{who}: refused slave {refusal.get('peer')} {age_in_words(refusal.get('age_s'))}"
            f" ago: {refusal.get('reason')}"
        )


def _problems_of_slave(broker: Status, who: str, master: Status | None) -> Iterator[str]:
    slave = broker["slave"]
    if slave and slave.get("needs_resync"):
        if slave.get("holds_more") or (master is not None and _goes_further(broker, master)):
            yield (
                f"{who}: its log goes further than its master's and may be the only copy of what "
                "was acknowledged; compare them with `trioha log diff`, and make it master with "
                f"`trioha failover {broker['name']} --to {broker['id']}`"
            )
        else:
            yield f"{who}: needs `trioha ha resync {broker['name']} --id {broker['id']}`"
    if slave and slave.get("state") not in (None, "TRANSFER"):
        state, error = slave["state"], slave.get("last_error")
        age = slave.get("last_error_age_s")
        since = f", {age_in_words(age)} ago" if error and age is not None else ""
        yield f"{who}: follows nobody now (state {state}{since}{f': {error}' if error else ''})"
    if not registered_id(broker) or master is None:
        return
    begins, ends = master["min_phy_offset"], broker["max_phy_offset"]
    if begins and ends and ends < begins and not _goes_further(broker, master):
        yield (
            f"{who}: its log ends at {ends}, its master's begins at {begins}: what lies between is "
            "gone from the master, and a Java master sends nothing and says nothing; let "
            f"`trioha ha resync {broker['name']} --id {broker['id']}` copy anew"
        )


def _goes_further(broker: Status, master: Status) -> bool:
    """Compare the epochs in which both logs end, then the ends; of Java brokers the ends alone."""
    epoch, masters_epoch = broker.get("log_epoch"), master.get("log_epoch")
    ends = broker["max_phy_offset"] or 0, master["max_phy_offset"] or 0
    if epoch is None or masters_epoch is None:
        return ends[0] > ends[1]
    return bool((epoch, ends[0]) > (masters_epoch, ends[1]))
