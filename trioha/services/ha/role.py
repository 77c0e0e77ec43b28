"""What a broker is, master or slave, one role after the other, while clients stay connected.

Each role has a nursery of its own, run in a loop: leaving one cancels it (links to slaves, or to
the master), and the next one starts. The role machine decides about a
change (`trioha.ha.role_machine`); `services.ha.role_control` carries it out.
"""

from __future__ import annotations

from functools import partial

import trio

from trioha.config import BrokerRole
from trioha.ha.events import Term
from trioha.services.ha.client import replicate_from_master
from trioha.services.ha.master import serve_ha
from trioha.services.ha.role_control import RoleControl
from trioha.services.ha.slave_synchronize import synchronize_slave
from trioha.services.ha.views import LinkedNode
from trioha.services.loop.transport import Listener


async def serve_role(
    node: LinkedNode,
    roles: RoleControl,
    ha_listener: Listener,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be what the node is, until cancelled; started once the first role is."""
    while True:
        roles.changed = trio.Event()
        async with trio.open_nursery() as nursery:
            roles.scope = nursery.cancel_scope
            if node.role is BrokerRole.SLAVE:
                await _start_slave(node, roles, ha_listener, nursery)
            else:
                await _start_master(node, ha_listener, nursery)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await roles.changed.wait()
            nursery.cancel_scope.cancel()
        node.ha_master = node.ha_client = node.slave_synchronizer = None
        await roles.carry_out_between()


async def _start_slave(
    node: LinkedNode, roles: RoleControl, listener: Listener, nursery: trio.Nursery
) -> None:
    nursery.start_soon(_turn_away, listener, name="ha.turn_away")
    follow = partial(
        replicate_from_master,
        *(node.master_address, node.store, node.config, node.events, node.clock),
        node.on_appended,
        handshake=node.handshake,
        on_metadata=node.on_metadata,
        on_failed=node.registration.ask_for_master,
        connect_to=node.connect_link,
    )
    node.ha_client = await nursery.start(follow, name="ha.client")
    if roles.suspended:
        node.ha_client.suspend(roles.suspended)
    synchronize = partial(
        synchronize_slave,
        *(node.master_remoting_address, node.core.slave_tables, node.config),
        *(node.events, node.clock),
        streams=node.needs_no_polls,
        connect_to=node.connect_to,
    )
    node.slave_synchronizer = await nursery.start(synchronize, name="slave_synchronize")


async def _turn_away(listener: Listener) -> None:
    """Who takes us for its master hears at once that we are not."""
    while True:
        (await listener.accept()).close()


async def _start_master(node: LinkedNode, listener: Listener, nursery: trio.Nursery) -> None:
    mastership = node.mastership
    serve = partial(
        serve_ha,
        *(listener, node.store, node.replicas, node.config, node.events, node.clock),
        *(node.slave_reported, node.on_slave_lost),
        term=Term(mastership.epoch, mastership.nonce),
        metadata_snapshot=node.core.metadata.snapshot,
    )
    node.ha_master = await nursery.start(serve, name="ha.accept")
