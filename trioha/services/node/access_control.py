"""Access control of one node: its accounts, its checks, and how it signs."""

from __future__ import annotations

from pathlib import Path

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.ha.auth import AccessPolicy
from trioha.journal import EventSink
from trioha.remoting.channel import Channel
from trioha.security.guard import Guard, IsNode, no_node, no_topic
from trioha.security.node_signer import NodeSigner, Sign, unsigned
from trioha.security.requirement import TopicAt
from trioha.security.requirements import Port
from trioha.services.node.acl_files import AclFiles
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

ACL_FILE = "plain_acl.yml"


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
        self.files = files
        self.guard: Guard | None = None
        self.sign: Sign = unsigned
        """Signs what this node asks of others."""
        if files is not None:
            self.guard = Guard(port, files, topic_at, is_node, events)
            self.sign = NodeSigner(files).sign

    def caller(self, channel: Channel, request: RemotingCommand) -> str:
        """Return the access key that a request is signed with; empty if none was checked."""
        return "" if self.guard is None else self.guard.caller(channel, request)


def broker_access(config: BrokerConfig, topic_at: TopicAt, events: EventSink) -> AccessControl:
    """Return the access control of a broker. Blocks. Errors: ConfigError with file and line."""
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
