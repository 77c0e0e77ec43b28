"""The settings of a member of a DLEDGER group: what ``dLegerPeers`` says, and what must fit.

``dLegerPeers`` is RocketMQ's: ``n0-host:port;n1-host:port;n2-host:port``. The ports are those for
clients here (`listenPort`): peers talk over the remoting port. It names the members that the group
began with, the same on all of them; who joined later (`trioha raft add`) does not stand in it.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from trioha.config.settings import BrokerConfig

MEMBERS_MAX = 15
DLEDGER_KEYS = (
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "preferredLeaderId",
    "dLegerSecret",
    "dLegerHeartbeatInterval",
    "dLegerElectionTimeoutMin",
    "dLegerElectionTimeoutMax",
    "dLegerLeaseReads",
    "dLegerReplicatedInMemory",
)
"""Beside the switch itself, `enableDLegerCommitLog`."""
_SELF_ID = re.compile(r"n(0|[1-9]\d{0,3})", re.ASCII)
_PEER = re.compile(r"(?P<id>[^-\s]+)-(?P<host>[^\s;]+):(?P<port>\d{1,5})", re.ASCII)


@attrs.frozen
class RaftPeer:
    """One entry of ``dLegerPeers``."""

    member_id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def broker_id_of(member_id: str) -> int:
    """Return the broker id that follower ``n<k>`` registers: k + 1, as in RocketMQ."""
    return int(member_id[1:]) + 1


def parse_peers(text: str) -> tuple[RaftPeer, ...]:
    """Return the founders, in the order of the text.

    Errors: ValueError with the entry and what is wrong with it.
    """
    peers: list[RaftPeer] = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        found = _PEER.fullmatch(entry)
        if found is None or not 0 < int(found["port"]) <= 65535:
            raise ValueError(f'"{entry}" is no member; write them like n0-10.0.0.1:10911')
        peer = RaftPeer(found["id"], found["host"], int(found["port"]))
        if not _SELF_ID.fullmatch(peer.member_id):
            raise ValueError(f'"{peer.member_id}" in "{entry}" is no id; they are n0, n1, n2, …')
        for other in peers:
            if peer.member_id == other.member_id:
                raise ValueError(f"{peer.member_id} stands there twice")
            if peer.address == other.address:
                raise ValueError(f"{other.member_id} and {peer.member_id} have one address")
        peers.append(peer)
    if len(peers) > MEMBERS_MAX:
        raise ValueError(f"{len(peers)} members; {MEMBERS_MAX} at most")
    return tuple(peers)


def check_dledger(config: BrokerConfig, refuse: Any) -> None:
    """Rules of DLEDGER mode. `refuse(key, reason)` raises ConfigError."""
    if not config.enable_d_leger_commit_log:
        return
    try:
        peers = parse_peers(config.d_leger_peers)
    except ValueError as error:
        refuse("dLegerPeers", str(error))
        return
    if not peers:
        refuse("dLegerPeers", "a DLEDGER group needs its members, like n0-10.0.0.1:10911;n1-…")
    self_id = config.d_leger_self_id
    if not _SELF_ID.fullmatch(self_id):
        refuse("dLegerSelfId", f'"{self_id}" is no id; they are n0, n1, n2, …')
    if not re.fullmatch(r"[%|a-zA-Z0-9_-]{0,127}", config.d_leger_group):
        refuse("dLegerGroup", "1 to 127 characters of a-z A-Z 0-9 _ - % |")
    if config.broker_id > 0:
        refuse("brokerId", "a member of a DLEDGER group gets its role by election: leave it out")
    _check_own_port(config, peers, refuse)
    _check_timers(config, refuse)
    for preferred in preferred_ids(config):
        if not _SELF_ID.fullmatch(preferred):
            refuse("preferredLeaderId", f'"{preferred}" is no id; they are n0, n1, n2, …')


def preferred_ids(config: BrokerConfig) -> tuple[str, ...]:
    """Return the ids of the members that should lead if they can."""
    return tuple(filter(None, map(str.strip, config.preferred_leader_id.split(";"))))


def _check_own_port(config: BrokerConfig, peers: tuple[RaftPeer, ...], refuse: Any) -> None:
    port, self_id = config.listen_port, config.d_leger_self_id
    if not port:
        refuse("listenPort", "the others must know it beforehand: 0 is no port for a group")
    # A member that is not in the list may have a founder's address: it has replaced the founder.
    own = next((peer for peer in peers if peer.member_id == self_id), None)
    if own is not None and own.port != port:
        refuse(
            "dLegerPeers",
            f"{self_id} has port {own.port} there and listenPort {port} here; peers talk over "
            "the port for clients, so they must be the same",
        )


def _check_timers(config: BrokerConfig, refuse: Any) -> None:
    shortest, longest = config.d_leger_election_timeout_min, config.d_leger_election_timeout_max
    if config.d_leger_heartbeat_interval * 2 > shortest:
        refuse(
            "dLegerHeartbeatInterval",
            f"{config.d_leger_heartbeat_interval} ms is too rare: at least two must fit "
            f"into dLegerElectionTimeoutMin {shortest}",
        )
    if longest <= shortest:
        refuse("dLegerElectionTimeoutMax", f"must be more than dLegerElectionTimeoutMin {shortest}")
