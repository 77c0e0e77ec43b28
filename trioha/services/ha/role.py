"""Runs a broker's roles, master or slave, one after the other; clients stay connected.

Each role has a nursery of its own, run in a loop: leaving one cancels it (links to slaves, or to
the master), and the next one starts. The role machine decides about a
change (`trioha.ha.role_machine`); `services.ha.role_control` carries it out.
"""

from __future__ import annotations

import trio

from trioha.config import BrokerRole
from trioha.ha.events import Term
from trioha.services.ha.client import HaClient
from trioha.services.ha.client_link import SlaveContext
from trioha.services.ha.master import HaMaster
from trioha.services.ha.role_control import RoleControl
from trioha.services.ha.role_links import RoleLinks
from trioha.services.ha.slave_synchronize import SlaveSynchronizer
from trioha.services.ha.views import LinkedNode
from trioha.services.loop.transport import Listener


async def serve_role(
    node: LinkedNode,
    links: RoleLinks,
    roles: RoleControl,
    ha_listener: Listener,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the node's present role until cancelled; started once the first role is."""
    while True:
        async with trio.open_nursery() as nursery:
            if node.role is BrokerRole.SLAVE:
                _start_slave(node, links, roles.suspended, ha_listener, nursery)
            else:
                _start_master(node, links, ha_listener, nursery)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            # The role's tasks run until the links are changed.
        links.ended()
        await roles.carry_out_between()


def _start_slave(
    node: LinkedNode,
    links: RoleLinks,
    suspended: str,
    listener: Listener,
    nursery: trio.Nursery,
) -> None:
    nursery.start_soon(_turn_away, listener, name="ha.turn_away")
    context = SlaveContext(
        store=node.store,
        config=node.config,
        events=node.events,
        clock=node.clock,
        on_appended=node.on_appended,
        on_metadata=node.on_metadata,
    )
    client = HaClient(
        context,
        node.master_address,
        handshake=node.handshake,
        on_failed=node.registration.ask_for_master,
        connect_to=node.connect_link,
    )
    if suspended:
        client.suspend(suspended)
    nursery.start_soon(client.run, name="ha.client")
    synchronizer = SlaveSynchronizer(
        node.core.slave_tables,
        node.config.slave_sync_interval,
        node.events,
        node.clock,
        streams=node.needs_no_polls,
        connect_to=node.connect_to,
        sign=node.access.sign,
    )
    nursery.start_soon(synchronizer.run, node.master_remoting_address, name="slave_synchronize")
    links.follow(nursery.cancel_scope, client, synchronizer)


async def _turn_away(listener: Listener) -> None:
    """Close every slave's connection at once: this node is not master."""
    while True:
        (await listener.accept()).close()


def _start_master(
    node: LinkedNode, links: RoleLinks, listener: Listener, nursery: trio.Nursery
) -> None:
    master = HaMaster(
        store=node.store,
        replicas=node.replicas,
        config=node.config,
        events=node.events,
        clock=node.clock,
        on_report=node.slave_reported,
        on_slave_lost=node.on_slave_lost,
        term=Term(node.mastership.epoch, node.mastership.nonce),
        metadata_snapshot=node.core.metadata.snapshot,
    )
    links.lead(nursery.cancel_scope, master)
    nursery.start_soon(master.serve, listener, name="ha.accept")
