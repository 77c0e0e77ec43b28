"""The file of users and policies, ``auth.json``: text to rules, and changed text.

Users and policies lie in it as RocketMQ's requests carry them, so that ``mqadmin listUser`` and
``listAcl`` show what the file says::

    {
      "users": [
        {"username": "shop", "password": "…", "userType": "Normal", "userStatus": "enable"}
      ],
      "acls": [
        {"subject": "User:shop", "policies": [{"policyType": "Custom", "entries": [
          {"resource": "Topic:orders", "actions": ["Pub"], "sourceIps": ["10.0.0.0/8"],
           "decision": "Allow"}
        ]}]}
      ]
    }

RocketMQ keeps the same in RocksDB, which nothing here reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final

import attrs

from trioha.errors import ConfigError
from trioha.security.policies import (
    Action,
    AuthRules,
    Decision,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    word_of,
)

SUBJECT_PREFIX: Final = "User:"
BYTES_MAX: Final = 16_777_216


@attrs.frozen
class AuthBook:
    """Users and policies of one file."""

    name: str
    """Whole path of the file."""
    users: Mapping[str, User] = attrs.field(factory=dict)
    acls: Mapping[str, Policies] = attrs.field(factory=dict)
    """Username -> policies."""

    def put_user(self, user: User) -> AuthBook:
        return attrs.evolve(self, users={**self.users, user.username: user})

    def without_user(self, username: str) -> AuthBook:
        """Remove a user and its policies."""
        return AuthBook(self.name, _without(self.users, username), _without(self.acls, username))

    def put_policies(self, username: str, changed: Policies) -> AuthBook:
        """Add entries; one of the same resource and type is replaced where it stands."""
        policies = {kind: list(entries) for kind, entries in self.acls.get(username, {}).items()}
        for kind, entries in changed.items():
            known = policies.setdefault(kind, [])
            for entry in entries:
                places = [i for i, one in enumerate(known) if one.resource == entry.resource]
                if places:
                    known[places[0]] = entry
                else:
                    known.append(entry)
        return attrs.evolve(self, acls={**self.acls, username: policies})

    def without_policies(
        self, username: str, kind: PolicyType, resource: Resource | None
    ) -> AuthBook:
        """Remove the entry of one resource, or all policies of a user."""
        policies = dict(self.acls.get(username, {}))
        if resource is not None:
            policies[kind] = [one for one in policies.get(kind, ()) if one.resource != resource]
        kept = (
            {} if resource is None else {k: entries for k, entries in policies.items() if entries}
        )
        if not kept:
            return attrs.evolve(self, acls=_without(self.acls, username))
        return attrs.evolve(self, acls={**self.acls, username: kept})


def parse_auth_file(name: str, text: str) -> AuthBook:
    """Read a file; an empty one has nobody. Errors: ConfigError with file, place and cure."""
    if len(text) > BYTES_MAX:
        raise ConfigError(f"{name}: {len(text)} characters, at most {BYTES_MAX} are read")
    if not text.strip():
        return AuthBook(name)
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not readable as JSON: {error}; correct it") from None
    try:
        users = [_user(value) for value in _list(top, "users")]
        acls = dict(_acl(value) for value in _list(top, "acls"))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    book = AuthBook(name, {user.username: user for user in users}, acls)
    for username in acls:
        if username not in book.users:
            raise ConfigError(
                f"{name}: policies of {username!r}, but no such user; add or remove it"
            )
    return book


def auth_rules_of(files: Iterable[AuthBook]) -> AuthRules:
    """Return the rules of the one file."""
    for book in files:
        return AuthRules(book.users.values(), book.acls)
    return AuthRules((), {})


def changed_text(
    change: Callable[[AuthBook], AuthBook],
) -> Callable[[str, str], str]:
    """Return an edit of a file's text, as `trioha.broker.admin_acl.AclStore` takes it."""

    def edit(name: str, text: str) -> str:
        return text_of(change(parse_auth_file(name, text)))

    return edit


def text_of(book: AuthBook) -> str:
    """Return the text of a file."""
    users = [user_info(user, user.password) for user in book.users.values()]
    acls = [acl_info(username, policies) for username, policies in book.acls.items()]
    return json.dumps({"users": users, "acls": acls}, indent=1, ensure_ascii=False) + "\n"


def user_info(user: User, password: str) -> dict[str, object]:
    """Return a user as RocketMQ's UserInfo, its fields in fastjson's order."""
    return {
        "password": password,
        "userStatus": str(user.status),
        "userType": str(user.user_type),
        "username": user.username,
    }


def acl_info(username: str, policies: Policies) -> dict[str, object]:
    """Return the policies of a user as RocketMQ's AclInfo."""
    return {
        "policies": [
            {
                "entries": [_entry_info(entry) for entry in policies[kind]],
                "policyType": str(kind),
            }
            for kind in policies
        ],
        "subject": f"{SUBJECT_PREFIX}{username}",
    }


def policies_of(info: Mapping[str, Any]) -> Policies:
    """Read the policies of an AclInfo. Errors: ValueError in RocketMQ's words."""
    values = info.get("policies")
    if not isinstance(values, list) or not values:
        raise ValueError("The policies is empty.")
    found: dict[PolicyType, list[PolicyEntry]] = {}
    for value in values:
        policy = value if isinstance(value, dict) else {}
        # Another word counts as Custom, as in RocketMQ.
        kind = word_of(PolicyType, str(policy.get("policyType"))) or PolicyType.CUSTOM
        entries = policy.get("entries")
        if not isinstance(entries, list) or not entries:
            raise ValueError("The policy entries is empty.")
        found.setdefault(kind, []).extend(_entry(one) for one in entries)
    return found


def _entry(value: object) -> PolicyEntry:
    fields = value if isinstance(value, dict) else {}
    resource = Resource.parse(str(fields.get("resource") or ""))
    if resource is None:
        raise ValueError("The resource is null.")
    words = _texts(fields.get("actions"))
    if "any" in {word.lower() for word in words}:
        raise ValueError("The actions can not be Any.")
    actions = frozenset(action for word in words if (action := word_of(Action, word)) is not None)
    if not actions:
        raise ValueError("The actions is empty.")
    source_ips = _texts(fields.get("sourceIps"))
    for text in source_ips:
        if not text.strip():
            raise ValueError("The source ip is empty.")
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise ValueError("The source ip is invalid.") from None
    decision = word_of(Decision, str(fields.get("decision")))
    if decision is None:
        raise ValueError("The decision is null or illegal.")
    return PolicyEntry(resource, actions, decision, source_ips)


def _entry_info(entry: PolicyEntry) -> dict[str, object]:
    info: dict[str, object] = {
        "actions": [str(action) for action in Action if action in entry.actions],
        "decision": str(entry.decision),
        "resource": str(entry.resource),
    }
    if entry.source_ips:
        info["sourceIps"] = list(entry.source_ips)
    return info


def _user(value: object) -> User:
    fields = value if isinstance(value, dict) else {}
    username, password = fields.get("username"), fields.get("password")
    if not isinstance(username, str) or not username.strip():
        raise ValueError("a user without username; name it")
    if not isinstance(password, str) or not password.strip():
        raise ValueError(f"user {username!r} has no password; give it one")
    kind = word_of(UserType, str(fields.get("userType", UserType.NORMAL)))
    status = word_of(UserStatus, str(fields.get("userStatus", UserStatus.ENABLE)))
    if kind is None:
        raise ValueError(f"user {username!r}: userType is Super or Normal")
    if status is None:
        raise ValueError(f"user {username!r}: userStatus is enable or disable")
    return User(username, password, kind, status)


def _acl(value: object) -> tuple[str, Policies]:
    fields = value if isinstance(value, dict) else {}
    subject = fields.get("subject")
    if not isinstance(subject, str) or not subject.startswith(SUBJECT_PREFIX):
        raise ValueError(f"a subject is {SUBJECT_PREFIX}NAME, not {subject!r}")
    try:
        return subject.removeprefix(SUBJECT_PREFIX), policies_of(fields)
    except ValueError as error:
        raise ValueError(f"{subject}: {error}") from None


def _list(top: object, key: str) -> list[object]:
    found = top.get(key, []) if isinstance(top, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"{key} must be a list, within an object")
    return found


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, Sequence | list) else ()


def _without(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}
