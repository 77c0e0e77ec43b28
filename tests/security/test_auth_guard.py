"""The check before handlers with users and policies: callers that pass, and rejections."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.handlers.sending import FakeChannel

from trioha.errors import CommandError
from trioha.security.auth_file import AuthBook, auth_rules_of, policies_of
from trioha.security.auth_guard import AuthGuard
from trioha.security.policies import Policies, User, UserStatus, UserType
from trioha.security.requirement import Right
from trioha.security.requirements import REQUIREMENTS, Port, requirement_of
from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode as C
from trioha.wire.remoting_command import RemotingCommand


def policies(resource: str, *actions: str, decision: str = "Allow") -> Policies:
    entry = {"resource": resource, "actions": list(actions), "decision": decision}
    return policies_of({"policies": [{"entries": [entry]}]})


USERS = (
    User("root", "root-secret", UserType.SUPER),
    User("gone", "gone-secret", UserType.SUPER, UserStatus.DISABLE),
    User("shop", "shop-secret"),
    User("boss", "boss-secret"),
)
ACLS = {"shop": policies("Topic:T", "Pub"), "boss": policies("*", "All")}

SEND = {"b": "T", "c": "TBW102", "d": "4", "e": "0"}


class Rules:
    """Implements `trioha.security.auth_guard.AuthSource`."""

    def __init__(self, acls: Mapping[str, Policies] = ACLS) -> None:
        users = {user.username: user for user in USERS}
        self.rules = auth_rules_of([AuthBook("auth.json", users, acls)])


def check(
    code: C, by: str, secret: str = "", topic: str = "", *, guard: AuthGuard | None = None
) -> None:
    """Check a request that `by` signed; a send names a topic. Errors: CommandError."""
    request = RemotingCommand(code, {**SEND, "b": topic} if topic else {}, b"")
    if by:
        Credentials(by, secret or f"{by}-secret").sign(request)
    requirement = requirement_of(Port.BROKER, code)
    (guard or AuthGuard(Port.BROKER, Rules(), "C")).check(FakeChannel(), request, requirement)


def test_a_user_may_what_a_policy_allows() -> None:
    check(C.SEND_MESSAGE_V2, "shop", topic="T")
    check(C.SEND_MESSAGE_V2, "boss", topic="T")
    check(C.SEND_MESSAGE_V2, "root", topic="T")
    with pytest.raises(CommandError, match="User:shop has no permission to access Topic:U"):
        check(C.SEND_MESSAGE_V2, "shop", topic="U")
    with pytest.raises(CommandError, match="no matched policies"):
        check(C.UPDATE_BROKER_CONFIG, "shop")


@pytest.mark.parametrize(
    ("by", "secret", "says"),
    [
        ("", "", "username cannot be null"),
        ("nobody", "", "User:nobody is not found"),
        ("shop", "not-it", "check signature failed"),
        ("root", "not-it", "check signature failed"),
        # A disabled super user is rejected in spite of its signature.
        ("gone", "gone-secret", "User:gone is disabled"),
    ],
)
def test_a_stranger_an_impostor_and_a_disabled_user_are_refused(
    by: str, secret: str, says: str
) -> None:
    for code in (C.SEND_MESSAGE_V2, C.UPDATE_BROKER_CONFIG, C.PROMOTE):
        with pytest.raises(CommandError, match=says):
            check(code, by, secret, "T")


def test_a_denial_outweighs_that_others_may() -> None:
    rules = Rules({"boss": policies("Topic:T", "All", decision="Deny")})
    with pytest.raises(CommandError, match="the decision is deny"):
        check(C.SEND_MESSAGE_V2, "boss", topic="T", guard=AuthGuard(Port.BROKER, rules, "C"))


def test_no_policy_makes_a_user_a_node_of_the_cluster() -> None:
    check(C.UPDATE_BROKER_CONFIG, "boss")
    nodes_only = [
        C(code)
        for code, requirement in REQUIREMENTS[Port.BROKER].items()
        if requirement.right is Right.NODE and not requirement.by_connection
    ]
    assert len(nodes_only) > 3
    for code in nodes_only:
        with pytest.raises(CommandError, match="User:boss has no permission"):
            check(code, "boss")
        check(code, "root")
        proven = AuthGuard(Port.BROKER, Rules(), "C", is_node=lambda channel, request: True)
        check(code, "", guard=proven)


def test_without_authorization_every_user_is_an_operator_and_none_is_a_node() -> None:
    guard = AuthGuard(Port.BROKER, Rules(), "C", authorizes=False)
    check(C.UPDATE_BROKER_CONFIG, "shop", guard=guard)
    check(C.SEND_MESSAGE_V2, "shop", topic="U", guard=guard)
    for by, says in (("gone", "is disabled"), ("", "cannot be null")):
        with pytest.raises(CommandError, match=says):
            check(C.SEND_MESSAGE_V2, by, topic="T", guard=guard)
    with pytest.raises(CommandError, match="User:shop has no permission"):
        check(C.PROMISE, "shop", guard=guard)


def test_who_asks_is_told_by_its_signature() -> None:
    guard = AuthGuard(Port.BROKER, Rules(), "C")
    for by, secret, name in (("shop", "shop-secret", "shop"), ("shop", "x", ""), ("gone", "", "")):
        request = RemotingCommand(C.SEND_MESSAGE_V2, dict(SEND), b"")
        Credentials(by, secret or f"{by}-secret").sign(request)
        assert guard.caller(FakeChannel(), request) == name
