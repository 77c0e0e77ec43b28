"""Facts and settings of brokers, and cleaning on demand.

RocketMQ's runtime table (28) tells what every broker knows of itself; a trioha node says more
(30001). Settings are read with 26 and changed with 25; a trioha broker keeps what was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trioha.errors import RemoteProtocolError
from trioha.failover.asking import Answer, Failed, Flow, Reply
from trioha.jobs.cluster_map import ClusterMap, find_master, read_map
from trioha.jobs.telling import (
    JobScope,
    NotThere,
    ask_many,
    change_one,
    check_unchanged,
    going_on,
    read_one,
    side_by_side,
)
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode
from trioha.words import what_there_is


@attrs.frozen
class ListedBroker:
    """One registered broker of a list."""

    name: str
    id: int
    address: str
    cluster: str
    role: str
    """Role that a trioha node reports: SYNC_MASTER, SLAVE, …; else MASTER or SLAVE, by its id."""
    version: str
    in_per_s: float | None
    out_per_s: float | None
    disk_ratio: float | None
    error: str
    """Reason that the broker did not answer; empty if it did."""


@attrs.frozen
class BrokerList:
    """Registered brokers by name and id."""

    brokers: list[ListedBroker]


@attrs.frozen
class BrokerDetail:
    """All that one broker tells of itself."""

    name: str
    id: int
    address: str
    cluster: str
    role: str
    version: str
    status: dict[str, Any]
    """Status that a trioha node reports; empty for RocketMQ's broker."""
    runtime: dict[str, str]


@attrs.frozen
class BrokerStats:
    """Traffic and disk use of one broker."""

    name: str
    id: int
    address: str
    put_per_s: list[float]
    """Messages per second over the last 10 s, minute, 10 minutes."""
    get_per_s: list[float]
    put_today: int
    put_yesterday: int
    get_today: int
    get_yesterday: int
    commitlog_bytes: int
    disk_ratio: float | None
    dispatch_behind_bytes: int


@attrs.frozen
class BrokerSettings:
    """Settings of one broker."""

    name: str
    id: int
    address: str
    settings: dict[str, str]


@attrs.frozen
class SettingChange:
    """A plan for one setting, and once it is carried out what was done."""

    key: str
    value: str
    brokers: dict[str, str]
    """Name and id (``broker-a/0``), and address."""
    before: dict[str, str]
    """Value on each broker."""
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]


@attrs.frozen
class CleanResult:
    """Brokers that were asked to clean, and what they cleaned."""

    brokers: list[str]
    cleaned: list[str]


CLEANINGS: Mapping[str, RequestCode] = {
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


@going_on
def list_brokers(scope: JobScope, *, cluster: str = "") -> Flow[BrokerList]:
    """List the registered brokers; one that does not answer has `error`. Errors: Unreachable."""
    known = yield from read_map(scope)
    nodes = [
        (name, broker_id, address)
        for name in (known.names(cluster) if known.brokers else [])
        for broker_id, address in known.brokers[name].items()
    ]
    runtime, statuses = yield from side_by_side(
        ask_many([scope.ask(address, code) for _, _, address in nodes])
        for code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.TRIOHA_NODE_STATUS)
    )
    told = {
        address: _status_of(status) for (_, _, address), status in zip(nodes, statuses, strict=True)
    }
    lines = [
        _line(known, name, own_id(told, address, number), address, table, status)
        for (name, number, address), table, status in zip(nodes, runtime, statuses, strict=True)
    ]
    lines.sort(key=lambda one: (one.name, one.id))
    return BrokerList(lines)


def describe_broker(
    scope: JobScope, broker: str, broker_id: int | None = None
) -> Flow[BrokerDetail]:
    """Describe one broker. Errors: NotThere, Unreachable, CommandError."""
    known = yield from read_map(scope)
    found_id, address = yield from _find_node(scope, known, broker, broker_id)
    answer = yield from read_one(scope, address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = decode_kv_table(answer.body)
    (reply,) = yield from ask_many([scope.ask(address, RequestCode.TRIOHA_NODE_STATUS)])
    status = _status_of(reply)
    return BrokerDetail(
        broker,
        found_id,
        address,
        known.cluster_of(broker),
        _role(found_id, status),
        _version(table, status),
        {str(name): _plain(value) for name, value in status.items()},
        dict(sorted(table.items())),
    )


def broker_stats(scope: JobScope, broker: str, broker_id: int | None = None) -> Flow[BrokerStats]:
    """Return a broker's traffic. Errors: NotThere, Unreachable, CommandError."""
    found = yield from describe_broker(scope, broker, broker_id)
    table = found.runtime

    def whole(key: str) -> int:
        return int(float(table.get(key, "0") or 0))

    return BrokerStats(
        broker,
        found.id,
        found.address,
        _rates(table.get("putTps", "")),
        _rates(table.get("getTransferedTps") or table.get("getTransferredTps") or ""),
        whole("msgPutTotalTodayNow") - whole("msgPutTotalTodayMorning"),
        whole("msgPutTotalTodayMorning") - whole("msgPutTotalYesterdayMorning"),
        whole("msgGetTotalTodayNow") - whole("msgGetTotalTodayMorning"),
        whole("msgGetTotalTodayMorning") - whole("msgGetTotalYesterdayMorning"),
        whole("commitLogMaxOffset") - whole("commitLogMinOffset"),
        _ratio(table),
        whole("dispatchBehindBytes"),
    )


def get_settings(
    scope: JobScope, broker: str, broker_id: int | None = None, key: str = ""
) -> Flow[BrokerSettings]:
    """Return a broker's settings, or one of them. Errors: NotThere, Unreachable, CommandError."""
    known = yield from read_map(scope)
    found_id, address = yield from _find_node(scope, known, broker, broker_id)
    settings = yield from _read_settings(scope, address)
    if key and key not in settings:
        raise NotThere(f"{broker} has no setting {key}{what_there_is(key, settings, otherwise='')}")
    chosen = {key: settings[key]} if key else dict(sorted(settings.items()))
    return BrokerSettings(broker, found_id, address, chosen)


def plan_setting(
    scope: JobScope, broker: str, broker_id: int | None, key: str, value: str
) -> Flow[SettingChange]:
    """Return the plan to set `key` on one node, or on every node of a broker name.

    Errors: NotThere with the nearest key, Unreachable, CommandError.
    """
    known = yield from read_map(scope)
    known.names(broker=broker)
    if broker_id is None:
        nodes = yield from _own_ids(scope, known, broker)
    else:
        nodes = dict([(yield from _find_node(scope, known, broker, broker_id))])
    each = yield from side_by_side(_read_settings(scope, address) for address in nodes.values())
    before = {}
    for number, settings in zip(nodes, each, strict=True):
        if key not in settings:
            cure = what_there_is(key, settings, otherwise="")
            raise NotThere(f"{broker} has no setting {key}{cure}")
        before[f"{broker}/{number}"] = settings[key]
    brokers = {f"{broker}/{number}": address for number, address in nodes.items()}
    return SettingChange(key, value, brokers, before, [], [], False, [])


def carry_out_setting(scope: JobScope, plan: SettingChange) -> Flow[SettingChange]:
    """Set it. Errors: CommandError when a broker refuses, OutcomeUnknown, Unreachable."""
    each = yield from side_by_side(_read_settings(scope, one) for one in plan.brokers.values())
    now = {name: one.get(plan.key) for name, one in zip(plan.brokers, each, strict=True)}
    check_unchanged(plan.key, plan.before, now)
    done: list[str] = []
    body = f"{plan.key}={plan.value}\n".encode()
    for name, address in plan.brokers.items():
        yield from change_one(
            scope, address, RequestCode.UPDATE_BROKER_CONFIG, None, body, done=done
        )
        done.append(name)
    return attrs.evolve(plan, done=True)


def clean(
    scope: JobScope, what: list[str], *, cluster: str = "", broker: str = ""
) -> Flow[CleanResult]:
    """Ask masters to clean now. Errors: NotThere, OutcomeUnknown, Unreachable, CommandError."""
    known = yield from read_map(scope)
    masters = known.masters(cluster, broker)
    done: list[str] = []
    for name, address in masters.items():
        for one in what:
            yield from change_one(scope, address, CLEANINGS[one], done=done)
        done.append(name)
    return CleanResult(done, what)


def _find_node(
    scope: JobScope, known: ClusterMap, broker: str, broker_id: int | None
) -> Flow[tuple[int, str]]:
    """Return the id and address of one node: the master unless `broker_id` says another.

    Errors: NotThere.
    """
    master = find_master(known, broker)
    nodes = yield from _own_ids(scope, known, broker)
    for number, address in nodes.items():
        if number == broker_id or (broker_id is None and address == master):
            return number, address
    ids = ", ".join(map(str, nodes))
    raise NotThere(f"broker {broker} has no node {broker_id}; its nodes are: {ids}")


def _own_ids(scope: JobScope, known: ClusterMap, broker: str) -> Flow[dict[int, str]]:
    """Return the addresses of a broker's nodes by their own ids."""
    addresses = known.brokers[broker]
    replies = yield from ask_many(
        [scope.ask(one, RequestCode.TRIOHA_NODE_STATUS) for one in addresses.values()]
    )
    statuses = dict(zip(addresses.values(), map(_status_of, replies), strict=True))
    return dict(
        sorted(
            (own_id(statuses, address, number), address) for number, address in addresses.items()
        )
    )


def own_id(statuses: Mapping[str, Mapping[Any, Any]], address: str, registered_id: int) -> int:
    """Return the configured id of a node, which no failover changes.

    A node that does not answer is known to the other members of its set; Java's brokers have the
    id that they registered.
    """
    home_id = statuses.get(address, {}).get("home_id")
    if isinstance(home_id, int):
        return home_id
    for status in statuses.values():
        members = status.get("members")
        for number, other in members.items() if isinstance(members, dict) else ():
            if other == address and str(number).isdecimal():
                return int(number)
    return registered_id


def _read_settings(scope: JobScope, address: str) -> Flow[dict[str, str]]:
    answer = yield from read_one(scope, address, RequestCode.GET_BROKER_CONFIG)
    pairs = (line.partition("=")[::2] for line in answer.body.decode(errors="replace").splitlines())
    return {key.strip(): value.strip() for key, value in pairs if key.strip()}


def _line(
    known: ClusterMap, name: str, broker_id: int, address: str, runtime: Reply, told: Reply
) -> ListedBroker:
    cluster = known.cluster_of(name)
    status = _status_of(told)
    role = _role(broker_id, status)
    if not (isinstance(runtime, Answer) and runtime.is_success):
        reason = runtime.reason if isinstance(runtime, Failed) else runtime.remark
        return ListedBroker(name, broker_id, address, cluster, role, "", None, None, None, reason)
    table = decode_kv_table(runtime.body)
    puts = _rates(table.get("putTps", ""))
    gets = _rates(table.get("getTransferedTps") or table.get("getTransferredTps") or "")
    return ListedBroker(
        name,
        broker_id,
        address,
        cluster,
        role,
        _version(table, status),
        puts[0] if puts else None,
        gets[0] if gets else None,
        _ratio(table),
        "",
    )


def _status_of(reply: Reply) -> Mapping[Any, Any]:
    if isinstance(reply, Answer) and reply.is_success:
        try:
            return reply.fields()
        except RemoteProtocolError:
            pass
    return {}


def _role(broker_id: int, status: Mapping[Any, Any]) -> str:
    told = status.get("role")
    return str(told) if told else ("MASTER" if broker_id == 0 else "SLAVE")


def _version(table: Mapping[str, str], status: Mapping[Any, Any]) -> str:
    if status.get("version"):
        return f"trioha {status['version']}"
    return table.get("brokerVersionDesc", "")


def _rates(text: str) -> list[float]:
    try:
        return [round(float(one), 2) for one in text.split()]
    except ValueError:
        return []


def _ratio(table: Mapping[str, str]) -> float | None:
    for key, value in table.items():
        if key.startswith("commitLogDiskRatio"):
            try:
                return round(float(value), 4)
            except ValueError:
                return None
    return None


def _plain(value: object) -> object:
    """Return a value that JSON and YAML can hold: a status has numbers among its keys."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.hex() if isinstance(value, bytes) else value
