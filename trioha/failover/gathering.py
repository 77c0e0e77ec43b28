"""Gathers the facts of a replica set: from each name server, then from each member.

Theory of operation. A set's members are those that a name server lists, and those that members know
of. A dead master is in no route any more, but its slaves remember its address; and a member that
does not answer may hold more log than those that do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioha.errors import RemoteProtocolError
from trioha.failover.asking import Answer, Failed, Flow, Reply, ask_each
from trioha.failover.facts import HeldTicket, Make, NamesrvFacts, ReplicaFacts, SetFacts
from trioha.ha.mastership import Standing
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.route import NOT_A_NAME_SERVER, ClusterInfo

_LEVEL_BYTES = 1 << 20
"""Largest gap of a slave in sync, the same as a master's (`trioha.ha.replicas`)."""
_ROUNDS_MAX = 3
MEMBERS_MAX = 64

Status = Mapping[str, Any]


def gather_facts(
    broker_name: str,
    namesrvs: Sequence[str],
    *,
    own_ticket: str = "",
    patience_s: float = 3.0,
) -> Flow[SetFacts]:
    """Ask name servers and members for the facts of a set.

    `own_ticket`: id of the caller's own ticket, which the facts leave out.
    """
    namesrv_facts, listed = yield from _ask_namesrvs(broker_name, namesrvs, patience_s)
    statuses: dict[str, Reply] = {}
    home_ids: dict[str, int] = dict(listed)
    told: dict[str, int] = {}
    for _ in range(_ROUNDS_MAX):
        wanted = [address for address in home_ids if address not in statuses][:MEMBERS_MAX]
        if not wanted:
            break
        replies = yield from ask_each(wanted, RequestCode.TRIOHA_NODE_STATUS, patience_s)
        statuses |= replies
        for reply in replies.values():
            for address, home_id in _members_told(_status_of(reply), broker_name).items():
                home_ids.setdefault(address, home_id)
                told.setdefault(address, home_id)
    # A name server lists role ids (0 for the master); members know the configured ids.
    home_ids.update(told)
    java = [address for address, reply in statuses.items() if _knows_not(reply)]
    runtime = yield from ask_each(java, RequestCode.GET_BROKER_RUNTIME_INFO, patience_s)
    java_ends = {address: _java_end(reply) for address, reply in runtime.items()}
    replicas = [
        _replica(address, home_ids[address], reply, java_ends, own_ticket, listed)
        for address, reply in statuses.items()
    ]
    return SetFacts(
        broker_name=broker_name,
        replicas=tuple(sorted(_with_sync(replicas, statuses), key=lambda one: one.home_id)),
        namesrvs=namesrv_facts,
    )


def _ask_namesrvs(
    broker_name: str, namesrvs: Sequence[str], patience_s: float
) -> Flow[tuple[tuple[NamesrvFacts, ...], dict[str, int]]]:
    replies = yield from ask_each(namesrvs, RequestCode.GET_BROKER_CLUSTER_INFO, patience_s)
    listed: dict[str, int] = {}
    facts = []
    for address, reply in replies.items():
        brokers = brokers_listed(broker_name, reply)
        if isinstance(brokers, str):
            facts.append(NamesrvFacts(address=address, error=brokers))
            continue
        facts.append(NamesrvFacts(address=address, master=brokers.get(0, "")))
        for broker_id, broker_address in brokers.items():
            listed.setdefault(broker_address, broker_id)
    return tuple(facts), listed


def brokers_listed(broker_name: str, reply: Reply) -> Mapping[int, str] | str:
    """Return the addresses by registered id that a name server lists, or why it did not."""
    if isinstance(reply, Failed):
        return reply.reason
    if _knows_not(reply):
        return NOT_A_NAME_SERVER
    if not reply.is_success:
        return reply.remark or f"rejected with code {reply.code}"
    try:
        info = ClusterInfo.decode(reply.body)
    except RemoteProtocolError as error:
        return str(error)
    data = info.broker_addr_table.get(broker_name)
    return {} if data is None else data.broker_addrs


def _status_of(reply: Reply) -> Status:
    if isinstance(reply, Answer) and reply.is_success:
        try:
            return reply.fields()
        except RemoteProtocolError:
            pass
    return {}


def _members_told(status: Status, broker_name: str) -> dict[str, int]:
    """Return the home ids of the members that this member knows, by address."""
    if status.get("name") != broker_name:
        return {}
    members = status.get("members")
    known: dict[str, int] = {}
    if isinstance(members, dict):
        for home_id, address in members.items():
            if isinstance(address, str) and address and str(home_id).isdecimal():
                known[address] = int(home_id)
    follows = status.get("follows")
    epochs = status.get("epochs")
    if isinstance(follows, str) and follows and follows not in known:
        newest = epochs[-1] if isinstance(epochs, list) and epochs else {}
        known[follows] = int(newest.get("home_id", 0))
    return known


def _knows_not(reply: Reply) -> bool:
    """Return whether the node does not know the request: a Java node has none of trioha's."""
    return isinstance(reply, Answer) and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _java_end(reply: Reply) -> int | None:
    if not isinstance(reply, Answer) or not reply.is_success:
        return None
    try:
        text = decode_kv_table(reply.body).get("commitLogMaxOffset", "")
    except RemoteProtocolError:
        return None
    return int(text) if text.isdecimal() else None


def _replica(
    address: str,
    home_id: int,
    reply: Reply,
    java_ends: Mapping[str, int | None],
    own_ticket: str,
    listed: Mapping[str, int],
) -> ReplicaFacts:
    if address in java_ends:
        # RocketMQ's broker has the role of its configured id: id 0 is the master.
        is_master = listed.get(address) == 0
        return ReplicaFacts(
            home_id=home_id,
            address=address,
            make=Make.JAVA,
            standing=Standing.MASTER if is_master else Standing.SLAVE,
            max_phy_offset=java_ends[address],
        )
    if isinstance(reply, Failed):
        return ReplicaFacts(home_id=home_id, address=address, error=reply.reason)
    status = _status_of(reply)
    if not status:
        reason = reply.remark or "its answer cannot be read"
        return ReplicaFacts(home_id=home_id, address=address, error=reason)
    slave = status.get("slave") or {}
    announced = slave.get("announced_offset")
    end = _integer(status.get("max_phy_offset"))
    if announced is None and end is not None and _integer(slave.get("gap_bytes")) is not None:
        announced = end + slave["gap_bytes"]
    standing = status.get("standing")
    sync = status.get("sync")
    level = status.get("level_since_start")
    own_home_id = _integer(status.get("home_id"))
    return ReplicaFacts(
        home_id=home_id if own_home_id is None else own_home_id,
        address=address,
        ha_address=str(status.get("ha_address") or ""),
        make=Make.TRIOHA,
        is_raft=isinstance(status.get("raft"), dict),
        standing=Standing(standing) if standing in Standing.__members__ else None,
        epoch=_integer(status.get("epoch")),
        promised_epoch=_integer(status.get("promised_epoch")) or 0,
        log_epoch=_integer(status.get("log_epoch")),
        max_phy_offset=end,
        metadata_position=_integer(slave.get("metadata_position")),
        sync=sync if isinstance(sync, bool) else None,
        announced_offset=_integer(announced),
        level_since_start=level if isinstance(level, bool) else None,
        follows=str(status.get("follows") or ""),
        ticket=_ticket(status.get("ticket"), own_ticket),
    )


def _ticket(fields: object, own_ticket: str) -> HeldTicket | None:
    if not isinstance(fields, dict) or fields.get("ticket_id") == own_ticket:
        return None
    return HeldTicket(
        ticket_id=str(fields.get("ticket_id")),
        operator=str(fields.get("operator")),
        age_s=float(fields.get("age_s", 0)),
        left_s=float(fields.get("left_s", 0)),
    )


def _with_sync(
    replicas: Sequence[ReplicaFacts], statuses: Mapping[str, Reply]
) -> list[ReplicaFacts]:
    """Return the replicas with `in_sync` set for each slave, as its master tells.

    On a classic link the master does not know the slave's id. Then the state of the slave's end of
    the link and the gap between both logs decide.
    """
    masters = [one for one in replicas if one.standing is Standing.MASTER]
    if len(masters) != 1:
        return list(replicas)
    master, end = masters[0], masters[0].max_phy_offset
    links = _status_of(statuses[master.address]).get("connections") or []
    told = {
        link["home_id"]: bool(link.get("in_sync"))
        for link in links
        if isinstance(link, dict) and link.get("home_id") is not None
    }
    found = []
    for one in replicas:
        if one.standing is not Standing.SLAVE or one.max_phy_offset is None:
            found.append(one)
            continue
        slave = _status_of(statuses[one.address]).get("slave") or {}
        near = end is not None and end - one.max_phy_offset < _LEVEL_BYTES
        follows = slave.get("state") == "TRANSFER" and one.follows in ("", master.address)
        found.append(attrs.evolve(one, in_sync=told.get(one.home_id, near and follows)))
    return found


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
