"""The check before each handler of a node with access control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trioha.errors import CommandError
from trioha.journal import EventSink, NullSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.security.accounts import Account, AclRules
from trioha.security.audit import audited
from trioha.security.denials import Denials
from trioha.security.requirement import Requirement, Right, TopicAt
from trioha.security.requirements import Port, requirement_of
from trioha.security.signing_key import ACCESS_KEY, read_signed_send
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

# Looking a member up in its enum costs more than the comparison it is for.
_NODE: Final = Right.NODE
_ADMIN: Final = Right.ADMIN
_PRODUCE: Final = Right.PRODUCE
_PACKED_TOPIC: Final = "b"
"""Name of the topic in headers with short names (SendMessageRequestHeaderV2.java)."""
_JAVA_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"
"""Java's broker answers SYSTEM_ERROR with the exception as text, and its clients show that."""

IsNode = Callable[[Channel, RemotingCommand], bool]
"""Returns whether the handler of a request makes its sender prove that it is a cluster's node."""


class RulesSource(Protocol):
    """Holds the rules; a reload replaces them."""

    rules: AclRules


def no_topic(phy_offset: int) -> str:
    """A node without messages, as `TopicAt`."""
    return ""


def no_node(channel: Channel, request: RemotingCommand) -> bool:
    """No other proof than an admin account, as `IsNode`."""
    return False


class CheckBefore:
    """Puts a check before handlers; its subclasses know the rules."""

    def __init__(self, port: Port, events: EventSink | None = None) -> None:
        """`events` hears of rejected requests, now and then."""
        self._events = events or NullSink()
        self._denials = Denials(self._events)
        self._port = port

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return the handler behind its check, or the handler itself if every peer may ask."""
        requirement = requirement_of(self._port, code)
        if requirement.right is Right.ANONYMOUS or requirement.by_connection:
            return handler
        if requirement.audited:
            handler = audited(code, handler, self.caller, self._events)
        check, denials = self.check, self._denials

        def check_and_handle(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            if request.progress is not None:
                return handler(channel, request, instant)  # checked before its first turn
            try:
                check(channel, request, requirement)
            except CommandError as error:
                denials.add(channel.peer, request.code, error.remark, instant.now_ms)
                raise
            return handler(channel, request, instant)

        return check_and_handle

    def check(self, channel: Channel, request: RemotingCommand, requirement: Requirement) -> None:
        """Accept a request, or raise CommandError."""
        raise NotImplementedError

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the name of the account that signed a request; empty without a right signature."""
        raise NotImplementedError


class Guard(CheckBefore):
    """Checks requests against the newest accounts of RocketMQ 4.9."""

    def __init__(
        self,
        port: Port,
        source: RulesSource,
        topic_at: TopicAt = no_topic,
        is_node: IsNode = no_node,
        events: EventSink | None = None,
    ) -> None:
        super().__init__(port, events)
        self._source = source
        self._topic_at = topic_at
        self._is_node = is_node

    def check(self, channel: Channel, request: RemotingCommand, requirement: Requirement) -> None:
        """Accept a request. HOT. Errors: CommandError with Java's words; RemoteProtocolError."""
        rules = self._source.rules
        if rules.has_white and rules.admits(channel.peer):
            return
        right = requirement.right
        if right is _NODE and self._is_node(channel, request):
            return
        if right is _PRODUCE and _is_known_send(rules, request, requirement):
            return
        account = _account_of(rules, request)
        if account.has_white and account.admits(channel.peer):
            return
        if not account.key.has_signed(request):
            raise denied(f"Check signature failed for accessKey={account.access_key}")
        if right is _ADMIN or right is _NODE:
            if not account.admin:
                raise denied(
                    f"Need admin permission for request code={request.code}, "
                    f"but accessKey={account.access_key} is not"
                )
            return
        topic: object = None
        if right is _PRODUCE:
            # Nearly all requests are sends to a few topics: one look-up in place of the rules.
            topic = request.ext_fields.get(requirement.topic)
            if topic in account.topics_sent_to:
                return
        missing = account.missing(requirement.needs(request, self._topic_at))
        if missing is not None:
            raise denied(f"No default permission for {missing.words}")
        if isinstance(topic, str):
            account.remember_topic(topic)

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the access key that a request is signed with; empty without a right signature."""
        try:
            account = _account_of(self._source.rules, request)
        except CommandError:
            return ""
        return account.access_key if account.key.has_signed(request) else ""


def _is_known_send(rules: AclRules, request: RemotingCommand, requirement: Requirement) -> bool:
    """Tell whether a send in Java's packed form is signed by an account that has sent there before.

    The quick way for nearly all requests of a busy client. Whatever it does not accept is judged
    by its fields, in `Guard.check`.
    """
    packed = request.packed_fields
    if packed is None or requirement.topic != _PACKED_TOPIC:
        return False
    signed = read_signed_send(packed)
    if signed is None:
        return False
    access_key, topic, values, signature = signed
    account = rules.accounts.get(access_key)
    return (
        account is not None
        and topic in account.topics_sent_to
        and account.key.has_signed_values(values, request.body, signature)
    )


def denied(words: str) -> CommandError:
    """Return the error that Java's broker answers with."""
    return CommandError(ResponseCode.SYSTEM_ERROR, f"{_JAVA_EXCEPTION}: {words}")


def _account_of(rules: AclRules, request: RemotingCommand) -> Account:
    access_key = request.ext_fields.get(ACCESS_KEY)
    if not isinstance(access_key, str) or not access_key:
        raise denied("No accessKey is configured")
    account = rules.accounts.get(access_key)
    if account is None:
        raise denied(f"No acl config for {access_key:.255}")
    return account
