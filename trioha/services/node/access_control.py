"""Access control of one node: its accounts, its checks, and how it signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trioha.broker.access_text import AccessText, OnText, ignore_text
from trioha.broker.admin_acl import AclAdminProcessor, AnswerLater
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
    """Accounts, checks and signatures of a node. Without files none of them does anything."""

    def __init__(
        self,
        guard: CheckBefore | None = None,
        sign: Sign = unsigned,
        files: AclFiles | AuthFiles | None = None,
    ) -> None:
        self.guard = guard
        self.sign = sign
        """Signs what this node asks of others."""
        self.text = AccessText() if files is None else files.text
        """The accounts as the brokers of a set or group share them."""
        self._files = files

    @property
    def has_files(self) -> bool:
        """True if there are files of accounts, which `run` has to look at."""
        return self._files is not None

    async def run(self) -> None:
        """Look at the files, and change them, until cancelled."""
        assert self._files is not None, "a node without accounts has no files"
        await self._files.run()

    def admin_handlers(
        self, config: BrokerConfig, answer_later: AnswerLater, is_copied: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        """Return the handlers of a broker's requests about accounts.

        `is_copied` tells whether a change may have come from another broker already.
        """
        return {}

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the access key that a request is signed with; empty if none was checked."""
        return "" if self.guard is None else self.guard.caller(channel, request)


class PlainAccounts(AccessControl):
    """The accounts of RocketMQ 4.9."""

    def __init__(
        self, port: Port, files: AclFiles, topic_at: TopicAt, is_node: IsNode, events: EventSink
    ) -> None:
        guard = Guard(port, files, topic_at, is_node, events)
        super().__init__(guard, NodeSigner(files).sign, files)
        self._accounts = files

    def admin_handlers(
        self, config: BrokerConfig, answer_later: AnswerLater, is_copied: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        return AclAdminProcessor(config, self._accounts, answer_later).handlers()


class UsersAndPolicies(AccessControl):
    """The users and policies of RocketMQ 5."""

    def __init__(
        self, config: BrokerConfig, topic_at: TopicAt, events: EventSink, on_text: OnText
    ) -> None:
        """Blocks. Errors: ConfigError; OSError."""
        folder = config.auth_config_path or Path(config.store_path_root_dir, "config")
        inner = inner_client(config)
        files = AuthFiles(Path(folder, AUTH_FILE), events, first_users(config), on_text)
        guard = AuthGuard(
            Port.BROKER,
            files,
            config.broker_cluster_name,
            topic_at,
            nodes_prove_themselves(config),
            events,
            authorizes=config.authorization_enabled,
        )
        super().__init__(guard, NodeSigner(files).sign if inner is None else inner.sign, files)
        self._users = files
        self._is_super = guard.is_super

    def admin_handlers(
        self, config: BrokerConfig, answer_later: AnswerLater, is_copied: Callable[[], bool]
    ) -> Mapping[int, Handler]:
        return AuthAdminProcessor(self._users, self._is_super, answer_later, is_copied).handlers()


def broker_access(
    config: BrokerConfig, topic_at: TopicAt, events: EventSink, on_text: OnText = ignore_text
) -> AccessControl:
    """Return the access control of a broker. Blocks. Errors: ConfigError with file and line."""
    if config.authentication_enabled:
        return UsersAndPolicies(config, topic_at, events, on_text)
    if not config.acl_enable:
        return AccessControl()
    path = Path(config.acl_file or Path(config.store_path_root_dir, "config", ACL_FILE))
    files = AclFiles(path, events, on_text)
    return PlainAccounts(Port.BROKER, files, topic_at, nodes_prove_themselves(config), events)


def namesrv_access(config: NamesrvConfig, events: EventSink) -> AccessControl:
    """Return the access control of a name server. Blocks. Errors: as `broker_access`."""
    if not config.acl_enable:
        return AccessControl()
    path = Path(config.acl_file or Path(config.kv_config_path).expanduser().parent / ACL_FILE)
    return PlainAccounts(Port.NAMESRV, AclFiles(path, events), no_topic, no_node, events)


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
