"""The check before each handler of a broker with ACL 2.0: users and policies of RocketMQ 5.

It asks the same requirements as `Guard` and answers in RocketMQ 5's words. A super user may do
everything. Where RocketMQ 5 has no rule for a request, and so lets every user have it, this asks
for the cluster: ``Get`` to look, ``Update`` to change.
"""

from __future__ import annotations

from typing import Final, Protocol

from trioha.errors import CommandError
from trioha.journal import EventSink
from trioha.remoting.channel import Channel
from trioha.security.actions import CLIENT_ACTIONS, operator_resources, resource_of
from trioha.security.addresses import address_of
from trioha.security.guard import CheckBefore, IsNode, no_node, no_topic
from trioha.security.policies import (
    Action,
    AuthRules,
    AuthUser,
    Decision,
    Resource,
    decision_of,
)
from trioha.security.requirement import AccountPerm, Requirement, Right, TopicAt
from trioha.security.requirements import Port
from trioha.security.signing_key import ACCESS_KEY
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

_PUB: Final = frozenset({Action.PUB})
_SUB: Final = frozenset({Action.SUB})


class AuthSource(Protocol):
    """Holds the rules; a change replaces them."""

    rules: AuthRules


class AuthGuard(CheckBefore):
    """Checks requests against the newest users and policies."""

    def __init__(
        self,
        port: Port,
        source: AuthSource,
        cluster: str,
        topic_at: TopicAt = no_topic,
        is_node: IsNode = no_node,
        events: EventSink | None = None,
        *,
        authorizes: bool = True,
    ) -> None:
        """Without `authorizes` every user may do what operators may; nodes are super users."""
        super().__init__(port, events)
        self._source = source
        self._cluster = cluster
        self._topic_at = topic_at
        self._is_node = is_node
        self._authorizes = authorizes

    def check(self, channel: Channel, request: RemotingCommand, requirement: Requirement) -> None:
        """Accept a request. HOT. Errors: CommandError in RocketMQ's words; RemoteProtocolError."""
        right = requirement.right
        if right is Right.NODE and self._is_node(channel, request):
            return
        account = self._signer(request)
        if account.is_super:
            return
        if right is not Right.NODE and not self._authorizes:
            return
        if right is Right.NODE or right is Right.ADMIN:
            resources, actions = operator_resources(request, self._cluster)
            for resource in resources:
                self._check(account, channel, resource, actions, is_node=right is Right.NODE)
            return
        client_actions = CLIENT_ACTIONS.get(request.code)
        for need in requirement.needs(request, self._topic_at):
            actions = client_actions or (_PUB if need.perm == AccountPerm.PUB else _SUB)
            self._check(account, channel, resource_of(need.resource), actions)

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the user that signed a request; empty without a right signature."""
        try:
            return self._signer(request).user.username
        except CommandError:
            return ""

    def is_super(self, request: RemotingCommand) -> bool:
        """Return whether a super user signed the request. It has been checked before."""
        account = self._source.rules.accounts.get(str(request.ext_fields.get(ACCESS_KEY)))
        return account is not None and account.is_super

    def _signer(self, request: RemotingCommand) -> AuthUser:
        username = request.ext_fields.get(ACCESS_KEY)
        if not isinstance(username, str) or not username:
            raise no_permission("username cannot be null.")
        account = self._source.rules.accounts.get(username)
        if account is None:
            raise no_permission(f"User:{username:.255} is not found.")
        if not account.is_enabled:
            raise no_permission(f"User:{username} is disabled.")
        if not account.key.has_signed(request):
            raise no_permission("check signature failed.")
        return account

    def _check(
        self,
        account: AuthUser,
        channel: Channel,
        resource: Resource,
        actions: frozenset[Action],
        *,
        is_node: bool = False,
    ) -> None:
        address = address_of(channel.peer)
        # No policy makes a user a node of the cluster.
        decision = None if is_node else decision_of(account.policies, resource, actions, address)
        if decision is Decision.ALLOW:
            return
        reason = "no matched policies." if decision is None else "the decision is deny."
        raise no_permission(
            f"User:{account.user.username} has no permission to access {resource}"
            f" from {address}, {reason}"
        )


def no_permission(words: str) -> CommandError:
    """Return the error that RocketMQ 5 answers with."""
    return CommandError(ResponseCode.NO_PERMISSION, words)
