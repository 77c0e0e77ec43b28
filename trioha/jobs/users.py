"""Users and policies of brokers, as RocketMQ 5 has them: requests 3001 to 3010.

Each broker keeps its own, so a change goes to every registered broker, as mqadmin sends it.
"""

from __future__ import annotations

from typing import Any

import attrs

from trioha.errors import CommandError
from trioha.failover.asking import Flow
from trioha.jobs.cluster_map import read_map
from trioha.jobs.telling import Fields, JobRefused, JobScope, change_each, no_such, read_one
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import list_of, object_of, text, texts

SUBJECT_PREFIX = "User:"


@attrs.frozen
class ListedUser:
    """One user."""

    username: str
    kind: str
    """Super or Normal."""
    status: str
    """enable or disable."""
    brokers: list[str]
    """Brokers that have this user so, as ``broker-a/0``."""


@attrs.frozen
class UserList:
    """Users of all brokers."""

    users: list[ListedUser]


@attrs.frozen
class UserPolicy:
    """Actions that a user may, or may not, do on a resource."""

    resource: str
    actions: list[str]
    source_ips: list[str]
    decision: str


@attrs.frozen
class UserDetail:
    """One user and its policies, as the first broker that has it tells."""

    username: str
    kind: str
    status: str
    brokers: list[str]
    policies: list[UserPolicy]


@attrs.frozen
class UserChange:
    """A plan for one user, and once it is carried out what was done."""

    username: str
    action: str
    """create, alter, delete, grant or revoke."""
    brokers: dict[str, str]
    kind: str
    status: str
    policy: UserPolicy | None
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]


def list_users(scope: JobScope, *, broker: str = "") -> Flow[UserList]:
    """List the users. Errors: JobRefused where no broker has users, Unreachable, CommandError."""
    nodes = yield from _nodes(scope, broker)
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, address in nodes.items():
        answer = yield from _read(scope, address, RequestCode.AUTH_LIST_USER, {"filter": ""})
        for value in list_of(fastjson.loads(answer or b"[]"), "users"):
            user = object_of(value, "user")
            key = text(user, "username"), text(user, "userType"), text(user, "userStatus")
            found.setdefault(key, []).append(name)
    return UserList([ListedUser(*key, found[key]) for key in sorted(found)])


def user_names(scope: JobScope) -> Flow[list[str]]:
    """Return the names of all users."""
    return sorted({one.username for one in (yield from list_users(scope)).users})


def describe_user(scope: JobScope, username: str) -> Flow[UserDetail]:
    """Describe one user. Errors: NotThere, JobRefused, Unreachable, CommandError."""
    users = (yield from list_users(scope)).users
    mine = [one for one in users if one.username == username]
    if not mine:
        raise no_such("user", username, sorted({one.username for one in users}))
    nodes = yield from _nodes(scope, "")
    address = nodes[mine[0].brokers[0]]
    fields: Fields = {"subject": SUBJECT_PREFIX + username}
    body = yield from _read(scope, address, RequestCode.AUTH_GET_ACL, fields)
    policies = [
        UserPolicy(
            text(entry, "resource"),
            list(texts(entry, "actions")),
            list(texts(entry, "sourceIps")),
            text(entry, "decision"),
        )
        for policy in list_of(
            object_of(fastjson.loads(body or b"{}"), "acl").get("policies"), "policies"
        )
        for entry in (
            object_of(one, "entry")
            for one in list_of(object_of(policy, "policy").get("entries"), "entries")
        )
    ]
    brokers = [name for one in mine for name in one.brokers]
    return UserDetail(username, mine[0].kind, mine[0].status, brokers, policies)


def plan_user(
    scope: JobScope,
    username: str,
    action: str,
    *,
    kind: str = "",
    status: str = "",
    policy: UserPolicy | None = None,
    broker: str = "",
) -> Flow[UserChange]:
    """Return the plan for a change of a user. Errors: NotThere, JobRefused."""
    nodes = yield from _nodes(scope, broker)
    users = (yield from list_users(scope, broker=broker)).users
    there = [one for one in users if one.username == username]
    if action == "create" and there:
        raise JobRefused(f"user {username} exists already; `trioha user alter {username}`")
    if action != "create" and not there:
        raise no_such("user", username, sorted({one.username for one in users}))
    loses = []
    if action == "delete":
        loses.append(f"user {username} and its policies")
    elif action == "revoke":
        assert policy is not None, "a policy is revoked"
        held = (yield from describe_user(scope, username)).policies
        if policy.resource not in [one.resource for one in held]:
            raise no_such("policy", policy.resource, [one.resource for one in held])
        loses.append(f"the policy of {username} for {policy.resource}")
    return UserChange(username, action, nodes, kind, status, policy, loses, [], False, [])


def carry_out_user(scope: JobScope, plan: UserChange, password: str = "") -> Flow[UserChange]:
    """Carry it out on every broker. Errors: OutcomeUnknown, Unreachable, CommandError."""
    code, fields, body = _request(plan, password)
    yield from change_each(scope, plan.brokers.items(), code, fields, body)
    return attrs.evolve(plan, done=True)


def _request(plan: UserChange, password: str) -> tuple[RequestCode, Fields, bytes | None]:
    username = plan.username
    subject: Fields = {"subject": SUBJECT_PREFIX + username}
    if plan.action in ("create", "alter"):
        info = {
            "username": username,
            "password": password,
            "userType": plan.kind,
            "userStatus": plan.status,
        }
        body = fastjson.dumps({key: value for key, value in info.items() if value})
        creates = plan.action == "create"
        code = RequestCode.AUTH_CREATE_USER if creates else RequestCode.AUTH_UPDATE_USER
        return code, {"username": username}, body
    if plan.action == "delete":
        return RequestCode.AUTH_DELETE_USER, {"username": username}, None
    policy = plan.policy
    assert policy is not None, "a grant and a revocation name a policy"
    if plan.action == "revoke":
        return RequestCode.AUTH_DELETE_ACL, {**subject, "resource": policy.resource}, None
    entry: dict[str, Any] = {
        "resource": policy.resource,
        "actions": policy.actions,
        "decision": policy.decision,
    }
    if policy.source_ips:
        entry["sourceIps"] = policy.source_ips
    acl = {**subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
    return RequestCode.AUTH_UPDATE_ACL, subject, fastjson.dumps(acl)


def _nodes(scope: JobScope, broker: str) -> Flow[dict[str, str]]:
    known = yield from read_map(scope)
    return {
        f"{name}/{broker_id}": address
        for name in known.names(broker=broker)
        for broker_id, address in known.brokers[name].items()
    }


def _read(scope: JobScope, address: str, code: RequestCode, fields: Fields) -> Flow[bytes]:
    try:
        return (yield from read_one(scope, address, code, fields)).body
    except CommandError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise JobRefused(
                f"{address} has no users: it runs without authenticationEnabled=true, or is of"
                " RocketMQ 4, whose accounts `trioha acl` shows"
            ) from None
        raise
