"""Opens the store of a member of a DLEDGER group and makes its node."""

from __future__ import annotations

import attrs

from trioha.broker.raft.metadata import RaftReplicas
from trioha.broker.raft.store import open_raft_log
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.config.dledger import broker_id_of, parse_peers, preferred_ids
from trioha.config.secret_files import raft_keyring
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.settings import RaftSettings
from trioha.journal import EventSink
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.introspection import NodeProcess
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import page_cache, run_blocking
from trioha.services.loop.transport import Connect, connect
from trioha.services.node.broker_node import BrokerNode, NodeParts
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.raft.bootstrap import open_vote_file
from trioha.services.raft.interfaces import MemberSetup
from trioha.services.raft.replication import GroupReplication, identity_of, say_role
from trioha.store.store_config import StoreConfig

_PUSH_DELAY_MS = 10
"""Delay of pushes that no put waits for. Readers at followers wait so much longer, and puts once
when the follower that answered them falls silent."""


async def open_raft_broker(
    config: BrokerConfig,
    addresses: BrokerAddresses,
    clock: Clock,
    events: EventSink,
    process: NodeProcess | None = None,
    *,
    connect_to: Connect = connect,
) -> BrokerNode:
    """Open and recover the store, and read the tables and the vote record.

    Errors: StoreError with file and cure.
    """
    wall_ms = clock.wall_ms()
    config = config_of_member(config)
    setup = setup_of(config, addresses)
    store_config = StoreConfig.of(config)
    memory = page_cache()
    ledger = await run_blocking(
        lambda: open_raft_log(store_config, events, wall_ms=wall_ms, missing_bytes=memory)
    )
    try:
        votes, replicas = open_vote_file(store_config, setup.door), RaftReplicas()
        parts = NodeParts(
            config=config,
            addresses=addresses,
            store=ledger.store,
            clock=clock,
            events=EventCounts(events),
            started_wall_ms=wall_ms,
            process=process or NodeProcess(),
            connect_to=connect_to,
            replicas=replicas,
            identity=identity_of(config, config.broker_id, 0),
            # By then a deposed leader has stepped down and answered, unless it cannot be reached.
            forwarding_patience_s=config.d_leger_election_timeout_min / 1000,
            readable_offset=votes.hard.committed_offset if votes.hard is not None else 0,
        )
        node = BrokerNode(
            parts,
            lambda node: GroupReplication(node, ledger, replicas, setup, votes, connect_to),
        )
        await node.persist.save_all()
    except BaseException:
        ledger.store.close()
        raise
    say_role(node, events)
    return node


def config_of_member(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration of a member: it begins as a slave, and no flush mode applies."""
    return attrs.evolve(
        config,
        broker_role=BrokerRole.SLAVE,
        broker_id=broker_id_of(config.d_leger_self_id),
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
    )


def setup_of(config: BrokerConfig, addresses: BrokerAddresses) -> MemberSetup:
    """Return the part of the configuration that describes this member and its group."""
    peers = parse_peers(config.d_leger_peers)
    founders = {peer.member_id: peer.address for peer in peers}
    self_id = config.d_leger_self_id
    return MemberSetup(
        door=GroupDoor(
            config.broker_cluster_name,
            config.d_leger_group or config.broker_name,
            self_id,
            tuple(founders),
        ),
        founders=founders,
        address=founders.get(self_id, addresses.listen),
        settings=RaftSettings(
            heartbeat_interval_ms=config.d_leger_heartbeat_interval,
            election_timeout_min_ms=config.d_leger_election_timeout_min,
            election_timeout_max_ms=config.d_leger_election_timeout_max,
            early_election=config.d_leger_early_election,
            lease_reads=config.d_leger_lease_reads,
            push_delay_ms=_PUSH_DELAY_MS,
            replicated_in_memory=config.d_leger_replicated_in_memory,
            preferred_leader_ids=preferred_ids(config),
        ),
        secret=raft_keyring(config),
    )
