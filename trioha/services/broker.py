"""A broker as a nursery tree; leaving its blocks from the inside out is the shutdown sequence.

::

    broker
    └─ store                     outermost, so last: final flush, then close
       ├─ commitlog_flush        fsync in a thread of its own; answers sends that wait for it
       ├─ reput                  log → consume queues and index
       ├─ config_persist[…]      tables → config/*.json
       ├─ metadata_flush         fsync of their changes since
       ├─ journal_samples        consumers' lag, puts' waits, signs of life → journal
       ├─ acl_files              reads accounts again when their files change
       ├─ tls_files              reads certificates again when their files change
       ├─ watch_disk             deletes old segments, stops and resumes writes
       └─ replication
          ├─ group_transfer, forwarding   deadlines of puts; clients with an old route
          ├─ failover, failover.settle    deadlines of planned and forced switches
          ├─ role               one nursery after the other, as the role changes:
          │  ├─ SLAVE   ha.client, slave_synchronize
          │  └─ others  ha.accept → ha.conn[slave] → ha.read, ha.write;  ha.push
          └─ connections         after shutdown: until slaves are level, at most a grace period;
             │               then sends that still wait for one are answered, and clients have
             │               a second to read their answers and close
             ├─ remoting.conn[client] → remoting.write;  pull_hold, client_expiry
             ├─ journal_stream       answers followers of the journal
             ├─ admin_http → admin.conn[peer]   /metrics, /livez, /readyz
             └─ services         cancelled first
                ├─ accept, accept.vip, schedule_message, route_questions
                └─ namesrv_registration

In a DLEDGER group there is ``raft`` in place of the role (`services.raft.replication`).
"""

from __future__ import annotations

import attrs
import trio

from trioha.config import BrokerConfig
from trioha.config.exposure import check_exposure, is_exposed
from trioha.config.secret_files import cluster_keyring
from trioha.journal import EventSink
from trioha.services.admin.http import serve_http
from trioha.services.admin.introspection import NodeProcess
from trioha.services.ha.client_link import LINK_READ_BYTES_MAX
from trioha.services.ha.opening import open_master_slave_node
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.loop.ringing import ring
from trioha.services.loop.scheduling import SchedulingWatch
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.listeners import (
    BrokerAddresses,
    BrokerListeners,
    open_broker_listeners,
)
from trioha.services.node.tls import NodeTls
from trioha.services.raft.opening import open_raft_broker
from trioha.store.store_config import StoreConfig
from trioha.store.store_owner import claim_store

_FINAL_FLUSH_S = 30.0


async def serve_broker(
    config: BrokerConfig,
    shutdown: trio.Event,
    events: EventSink,
    *,
    clock: Clock | None = None,
    process: NodeProcess | None = None,
    task_status: trio.TaskStatus[BrokerAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `shutdown`, then stop in order.

    It has started once its ports accept and it has tried every name server once.
    Errors: TriohaError for a port, a setting or a store that cannot be used; StoreError when the
    disk fails under way.
    """
    clock = clock or Clock()
    keyring = cluster_keyring(config)
    check_exposure(config, keyring)
    if is_exposed(config, keyring):
        events.event("node_insecure", address=config.bind_address)
    tls = await run_blocking(lambda: NodeTls(config, events, clock))
    with open_broker_listeners(config, events, tls) as listeners:
        claim_store(StoreConfig.of(config).root, config.broker_name, adopt=config.adopt_store)
        config = listeners.config
        process = attrs.evolve(process or NodeProcess(), certificate_end_s=tls.end_s)
        shared = (config, listeners.addresses, clock, events, process)
        if config.enable_d_leger_commit_log:
            node = await open_raft_broker(*shared, connect_to=tls.connect_to())
        else:
            node = await open_master_slave_node(
                *shared,
                connect_to=tls.connect_to(),
                connect_link=tls.connect_to(ha=True, read_bytes_max=LINK_READ_BYTES_MAX),
            )
        try:
            await serve_node(node, listeners, shutdown, task_status)
        finally:
            with trio.move_on_after(_FINAL_FLUSH_S, shield=True):
                await node.close()


async def serve_node(
    node: BrokerNode,
    listeners: BrokerListeners,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[BrokerAddresses],
) -> None:
    """Run the tasks of an open node until `shutdown`; the caller closes the node.

    Errors: StoreError when the disk fails under way.
    """
    async with trio.open_nursery() as store:
        store.start_soon(node.flush.run, name="commitlog_flush")
        store.start_soon(node.reput.run, name="reput")
        store.start_soon(node.persist.run, name="config_persist")
        store.start_soon(node.watch_disk, name="watch_disk")
        store.start_soon(node.samples.run, name="journal_samples")
        store.start_soon(SchedulingWatch(node.clock, node.events).run, name="scheduling")
        node.replication.start_storing(store)
        if listeners.tls is not None:
            store.start_soon(listeners.tls.run, name="tls_files")
        if node.access.has_files:
            store.start_soon(node.access.run, name="acl_files")
        async with trio.open_nursery() as replication:
            replication.start_soon(ring, node.group_transfer, name="group_transfer")
            replication.start_soon(node.forwarding.run, name="forwarding")
            await node.replication.start(replication, listeners)
            async with trio.open_nursery() as connections:
                connections.start_soon(ring, node.pull_hold, name="pull_hold")
                node.cold_reads.begin(connections)
                connections.start_soon(ring, node.client_expiry, name="client_expiry")
                connections.start_soon(node.introspection.run, name="journal_stream")
                if listeners.admin is not None:
                    connections.start_soon(
                        serve_http, listeners.admin, node.pages, name="admin_http"
                    )
                async with trio.open_nursery() as services:
                    await _start_services(node, listeners, services, connections)
                    await node.replication.settle(replication)
                    node.events.event(
                        "node_ready",
                        **attrs.asdict(listeners.addresses),
                        elapsed_ms=node.clock.wall_ms() - node.started_wall_ms,
                    )
                    task_status.started(listeners.addresses)
                    await shutdown.wait()
                    node.events.event("node_stopping", reason="asked to")
                    await node.stop()
                    services.cancel_scope.cancel()
                with trio.move_on_after(node.config.shutdown_grace / 1000):
                    await node.replication.wait_level()
                node.give_up_waiting()
                await node.server.part()
                connections.cancel_scope.cancel()
            replication.cancel_scope.cancel()
        store.cancel_scope.cancel()


async def _start_services(
    node: BrokerNode,
    listeners: BrokerListeners,
    services: trio.Nursery,
    connections: trio.Nursery,
) -> None:
    accept = node.server.accept
    services.start_soon(accept, listeners.remoting, connections, name="accept")
    if listeners.vip is not None:
        services.start_soon(accept, listeners.vip, connections, name="accept.vip")
    services.start_soon(ring, node.schedule_message, name="schedule_message")
    services.start_soon(node.routes.run, name="route_questions")
    await services.start(node.registration.run, name="namesrv_registration")
