"""Users and policies of RocketMQ 5 (ACL 2.0): what is in them, and which entry decides.

A user has policies of two types. For one request the entries of ``Custom`` are asked, and those of
``Default`` if none of them matches. Of the entries that match, the one that names the resource most
closely decides: its name, then the longest prefix, then every resource of its kind, then every
resource. Without a match the request is denied (AclAuthorizationHandler.java of 5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeVar

import attrs

from trioha.security.addresses import Address
from trioha.security.signature import Credentials
from trioha.security.signing_key import SigningKey

Word = TypeVar("Word", bound=StrEnum)


class ResourceKind(StrEnum):
    """The kinds of resources."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    """Actions on a resource; `ALL` stands for each of them."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class PolicyType(StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class UserType(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


def word_of(words: type[Word], text: str) -> Word | None:
    """Return the word of an enumeration; RocketMQ takes it in any case."""
    return next((word for word in words if word.value.lower() == text.lower()), None)


@attrs.frozen
class Resource:
    """A resource that a request names, or, with a `*`, those that a policy names."""

    kind: ResourceKind
    name: str = "*"

    @classmethod
    def parse(cls, text: str) -> Resource | None:
        """Read ``Topic:orders``, ``Group:shop*``, ``Topic:*`` or ``*``; None if it is none."""
        if text == "*":
            return cls(ResourceKind.ANY)
        kind_text, colon, name = text.partition(":")
        kind = word_of(ResourceKind, kind_text)
        if kind is None or not colon or not name:
            return None
        # RocketMQ cuts a prefix at its first asterisk.
        return cls(kind, name if not name.endswith("*") else name.partition("*")[0] + "*")

    def __str__(self) -> str:
        return "*" if self.kind is ResourceKind.ANY else f"{self.kind}:{self.name}"

    def closeness(self, other: Resource) -> int:
        """Return how closely this names a request's resource; 0 if it does not. HOT."""
        if self.kind is ResourceKind.ANY:
            return 1
        if self.kind is not other.kind:
            return 0
        if self.name == "*":
            return 2
        if self.name.endswith("*"):
            return len(self.name) + 2 if other.name.startswith(self.name[:-1]) else 0
        return 1 << 30 if self.name == other.name else 0


@attrs.frozen
class PolicyEntry:
    """One rule of a policy."""

    resource: Resource
    actions: frozenset[Action]
    decision: Decision
    source_ips: tuple[str, ...] = ()
    networks: tuple[IPv4Network | IPv6Network, ...] = attrs.field(init=False, eq=False)

    @networks.default
    def _networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(text, strict=False) for text in self.source_ips)

    def matches(self, actions: frozenset[Action], address: Address | None) -> bool:
        """Return whether the entry is about one of the actions from this address."""
        if Action.ALL not in self.actions and not self.actions & actions:
            return False
        if not self.networks:
            return True
        return address is not None and any(address in network for network in self.networks)


Policies = Mapping[PolicyType, Sequence[PolicyEntry]]


def decision_of(
    policies: Policies, resource: Resource, actions: frozenset[Action], address: Address | None
) -> Decision | None:
    """Return the decision of the entry that counts; None if none matches."""
    for kind in PolicyType:
        closest, found = 0, None
        for entry in policies.get(kind, ()):
            closeness = entry.resource.closeness(resource)
            if closeness > closest and entry.matches(actions, address):
                closest, found = closeness, entry
        if found is not None:
            return found.decision
    return None


@attrs.frozen
class User:
    """One user as the file words it."""

    username: str
    password: str = attrs.field(repr=False)
    user_type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE


class AuthUser:
    """One user with policies, ready to be checked."""

    def __init__(self, user: User, policies: Policies) -> None:
        self.user: Final = user
        self.policies: Final = policies
        self.key: Final = SigningKey(user.password)
        self.is_super: Final = user.user_type is UserType.SUPER
        self.is_enabled: Final = user.status is UserStatus.ENABLE


class AuthRules:
    """All users. Never changes: a reload or a request makes another."""

    def __init__(self, users: Iterable[User], acls: Mapping[str, Policies]) -> None:
        """`acls`: username -> policies."""
        self.accounts: Final[Mapping[str, AuthUser]] = {
            user.username: AuthUser(user, acls.get(user.username, {})) for user in users
        }

    def first_admin(self) -> Credentials | None:
        """Return the credentials of the first super user: this node signs with them."""
        for account in self.accounts.values():
            if account.is_super and account.is_enabled:
                return Credentials(account.user.username, account.user.password)
        return None
