"""Access control of one node: its accounts, its checks, and how it signs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from trioha.broker.access_text import AccessText
from trioha.broker.admin_acl import AclAdminProcessor, Answer
from trioha.broker.admin_auth import AuthAdminProcessor
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.ha.auth import AccessPolicy
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler
from trioha.security.auth_guard import AuthGuard
from trioha.security.first_users import first_users, inner_client
from trioha.security.guard import CheckBefore, Guard, IsNode, no_node, no_topic
from trioha.security.node_signer import NodeSigner, Sign, unsigned
from trioha.security.requirement import TopicAt
from trioha.security.requirements import Port
from trioha.services.node.acl_files import AclFiles, AuthFiles
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

ACL_FILE = "plain_acl.yml"
AUTH_FILE = "auth.json"


class AccessControl:
    """Accounts, checks and signatures of a node. Without `aclEnable` none of them does anything."""

    def __init__(
        self,
        port: Port,
        files: AclFiles | None,
        topic_at: TopicAt = no_topic,
        is_node: IsNode = no_node,
        events: EventSink | None = None,
    ) -> None:
        self.guard: CheckBefore | None = None
        self.sign: Sign = unsigned
        """Signs what this node asks of others."""
        self.run: Callable[[], Awaitable[None]] | None = None
        """Looks at the files, and changes them, until cancelled."""
        if files is not None:
            self.guard = Guard(port, files, topic_at, is_node, events)
            self.sign = NodeSigner(files).sign
            self.run = files.run
        self._files = files
        self.text = AccessText() if files is None else files.text
        """The accounts as the brokers of a set or group share them."""

    def admin_handlers(
        self, config: BrokerConfig, answer: Answer, is_copied: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        """Return the handlers of a broker's requests about accounts.

        `answer` sends a response once the changes before it are safe; `is_copied` tells whether a
        change may have come from another broker already.
        """
        if self._files is None:
            return {}
        return AclAdminProcessor(config, self._files, answer).handlers()

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the access key that a request is signed with; empty if none was checked."""
        return "" if self.guard is None else self.guard.caller(channel, request)


class UsersAndPolicies(AccessControl):
    """The same with the users and policies of RocketMQ 5."""

    def __init__(self, config: BrokerConfig, topic_at: TopicAt, events: EventSink) -> None:
        """Blocks. Errors: ConfigError; OSError."""
        super().__init__(Port.BROKER, None)
        folder = config.auth_config_path or Path(config.store_path_root_dir, "config")
        inner = inner_client(config)
        files = AuthFiles(Path(folder, AUTH_FILE), events, first_users(config))
        guard = AuthGuard(
            Port.BROKER,
            files,
            config.broker_cluster_name,
            topic_at,
            nodes_prove_themselves(config),
            events,
            authorizes=config.authorization_enabled,
        )
        self.guard = guard
        self.sign = NodeSigner(files).sign if inner is None else inner.sign
        self.run = files.run
        self.text = files.text
        self._files_of_users = files
        self._is_super = guard.is_super

    def admin_handlers(
        self, config: BrokerConfig, answer: Answer, is_copied: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        users = AuthAdminProcessor(self._files_of_users, self._is_super, answer, is_copied)
        return users.handlers()


def broker_access(config: BrokerConfig, topic_at: TopicAt, events: EventSink) -> AccessControl:
    """Return the access control of a broker. Blocks. Errors: ConfigError with file and line."""
    if config.authentication_enabled:
        return UsersAndPolicies(config, topic_at, events)
    path = Path(config.acl_file or Path(config.store_path_root_dir, "config", ACL_FILE))
    files = AclFiles(path, events) if config.acl_enable else None
    return AccessControl(Port.BROKER, files, topic_at, nodes_prove_themselves(config), events)


def namesrv_access(config: NamesrvConfig, events: EventSink) -> AccessControl:
    """Return the access control of a name server. Blocks. Errors: as `broker_access`."""
    path = Path(config.acl_file or Path(config.kv_config_path).expanduser().parent / ACL_FILE)
    files = AclFiles(path, events) if config.acl_enable else None
    return AccessControl(Port.NAMESRV, files, events=events)


def nodes_prove_themselves(config: BrokerConfig) -> IsNode:
    """Return whose greetings the handlers check themselves, against a secret or addresses.

    Those greetings need no account: the handler rejects every peer that the setting does not admit.
    """
    policy = AccessPolicy.of(config.ha_secret, config.ha_allowed_peers)
    codes: set[int] = set()
    if policy.secret or policy.networks:
        codes.add(RequestCode.HA_HELLO)
    if config.d_leger_secret or config.ha_secret:
        codes.add(RequestCode.TRIOHA_RAFT_HELLO)
    return lambda channel, request: request.code in codes
