"""Opens a broker of a master-slave set: store, mastership, tables."""

from __future__ import annotations

from trioha.broker.failover_audit import AuditTrail
from trioha.config import BrokerConfig
from trioha.journal import EventSink
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.introspection import NodeProcess
from trioha.services.ha.client import connect_link
from trioha.services.ha.master import open_replicas
from trioha.services.ha.open_mastership import config_of_role, open_mastership
from trioha.services.ha.replication import SetReplication
from trioha.services.ha.role_journal import tell_role
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import page_cache, run_blocking
from trioha.services.loop.transport import Connect, connect
from trioha.services.node.broker_node import BrokerNode, NodeParts
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.node.namesrv_registration import BrokerIdentity
from trioha.store.message_store import FileMessageStore
from trioha.store.store_config import StoreConfig


async def open_master_slave_node(
    config: BrokerConfig,
    addresses: BrokerAddresses,
    clock: Clock,
    events: EventSink,
    process: NodeProcess | None = None,
    *,
    connect_to: Connect = connect,
    connect_link: Connect = connect_link,
) -> BrokerNode:
    """Open the store, recovering it if need be, and read the tables.

    Errors: StoreError with file and cure.
    """
    wall_ms = clock.wall_ms()
    memory = page_cache()
    store = await run_blocking(
        lambda: FileMessageStore.open(
            StoreConfig.of(config),
            events,
            wall_ms=wall_ms,
            missing_bytes=memory,
        )
    )
    try:
        assert store.recovery is not None, "an open store has been recovered"
        mastership = open_mastership(
            config,
            store.max_phy_offset,
            events,
            wall_ms,
            clean=store.recovery.clean,
            is_whole=store.recovery.is_whole,
        )
        config, counts = config_of_role(config, mastership), EventCounts(events)
        replicas, audit = open_replicas(config, counts), AuditTrail()
        parts = NodeParts(
            config=config,
            addresses=addresses,
            store=store,
            clock=clock,
            events=counts,
            started_wall_ms=wall_ms,
            process=process or NodeProcess(),
            connect_to=connect_to,
            replicas=replicas,
            identity=BrokerIdentity.of(config, mastership),
            tables={"failovers.json": audit},
        )
        node = BrokerNode(
            parts,
            lambda node: SetReplication(
                node,
                mastership,
                replicas,
                audit,
                connect_to=connect_to,
                connect_link=connect_link,
            ),
        )
        node.metadata_files.load()
        node.core.schedule.refresh()
        node.core.deliveries.load()
        await node.persist.save_all()
    except BaseException:
        store.close()
        raise
    if not mastership.unconfirmed:  # else `Confirmation` reports the role once it is known
        tell_role(node, events)
    return node
