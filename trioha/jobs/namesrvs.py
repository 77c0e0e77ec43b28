"""Name servers: which answer, what they know, their settings and KV configuration."""

from __future__ import annotations

import attrs

from trioha.failover.asking import Answer, Failed, Flow, ask_all
from trioha.jobs.cluster_map import tell_namesrvs
from trioha.jobs.telling import JobScope, NotThere, answered, ask_namesrv, check_unchanged
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.route import NOT_A_NAME_SERVER, ClusterInfo


@attrs.frozen
class ListedNamesrv:
    """One name server."""

    address: str
    brokers: int | None
    """Registered broker names; null if it does not answer."""
    nodes: int | None
    error: str


@attrs.frozen
class NamesrvList:
    """Name servers in the order given."""

    namesrvs: list[ListedNamesrv]
    agree: bool
    """Whether those that answer know the same brokers."""


@attrs.frozen
class NamesrvSettings:
    """Settings of each name server."""

    settings: dict[str, dict[str, str]]


@attrs.frozen
class KvEntries:
    """Entries of one namespace of the KV configuration."""

    namespace: str
    entries: dict[str, str]


@attrs.frozen
class KvChange:
    """A plan for one entry, and once it is carried out what was done."""

    namespace: str
    key: str
    value: str | None
    """Null deletes it."""
    before: str | None
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]


def list_namesrvs(scope: JobScope) -> Flow[NamesrvList]:
    """Ask every name server for its brokers. Errors: none; silent ones have `error`."""
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    replies = yield from ask_all(*[scope.ask(one, code) for one in scope.namesrvs])
    lines, tables = [], []
    for address, reply in zip(scope.namesrvs, replies, strict=True):
        if not (isinstance(reply, Answer) and reply.is_success):
            reason = reply.reason if isinstance(reply, Failed) else reply.remark
            if isinstance(reply, Answer) and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                reason = NOT_A_NAME_SERVER
            lines.append(ListedNamesrv(address, None, None, reason))
            continue
        table = {
            name: dict(data.broker_addrs)
            for name, data in ClusterInfo.decode(reply.body).broker_addr_table.items()
        }
        tables.append(table)
        lines.append(ListedNamesrv(address, len(table), sum(map(len, table.values())), ""))
    return NamesrvList(lines, all(one == tables[0] for one in tables))


def namesrv_settings(scope: JobScope) -> Flow[NamesrvSettings]:
    """Return the settings of each name server. Errors: Unreachable, CommandError."""
    code = RequestCode.GET_NAMESRV_CONFIG
    replies = yield from ask_all(*[scope.ask(one, code) for one in scope.namesrvs])
    found = {}
    for address, reply in zip(scope.namesrvs, replies, strict=True):
        lines = answered(address, reply).body.decode(errors="replace").splitlines()
        pairs = (line.partition("=")[::2] for line in lines)
        found[address] = {key.strip(): value.strip() for key, value in sorted(pairs) if key.strip()}
    return NamesrvSettings(found)


def kv_entries(scope: JobScope, namespace: str) -> Flow[KvEntries]:
    """Return a namespace's entries; none if there is no such namespace. Errors: Unreachable."""
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    answer = yield from ask_namesrv(scope, code, {"namespace": namespace})
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return KvEntries(namespace, {})
    table = decode_kv_table(answered("the name server", answer).body)
    return KvEntries(namespace, dict(sorted(table.items())))


def kv_get(scope: JobScope, namespace: str, key: str) -> Flow[KvEntries]:
    """Return one entry. Errors: NotThere."""
    fields = {"namespace": namespace, "key": key}
    answer = yield from ask_namesrv(scope, RequestCode.GET_KV_CONFIG, fields)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        raise NotThere(f"there is no {key} in {namespace}; `trioha namesrv kv list {namespace}`")
    value = answered("the name server", answer).ext_fields.get("value", "")
    return KvEntries(namespace, {key: value})


def plan_kv(scope: JobScope, namespace: str, key: str, value: str | None) -> Flow[KvChange]:
    """Return the plan to set or delete an entry. Errors: NotThere for one to delete."""
    try:
        before: str | None = (yield from kv_get(scope, namespace, key)).entries[key]
    except NotThere:
        if value is None:
            raise
        before = None
    loses = [f"its value {before}"] if value is None else []
    return KvChange(namespace, key, value, before, loses, [], False, [])


def carry_out_kv(scope: JobScope, plan: KvChange) -> Flow[KvChange]:
    """Tell every name server. Errors: JobRefused."""
    entries = (yield from kv_entries(scope, plan.namespace)).entries
    check_unchanged(f"{plan.namespace} {plan.key}", plan.before, entries.get(plan.key))
    fields = {"namespace": plan.namespace, "key": plan.key}
    if plan.value is None:
        notes = yield from tell_namesrvs(scope, RequestCode.DELETE_KV_CONFIG, fields)
    else:
        fields["value"] = plan.value
        notes = yield from tell_namesrvs(scope, RequestCode.PUT_KV_CONFIG, fields)
    return attrs.evolve(plan, done=True, notes=notes)
