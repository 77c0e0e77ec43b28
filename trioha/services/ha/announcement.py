"""Tells the members of a set who is master as soon as a node begins a term, or goes on with one.

Members would learn it from a name server as well, but only with their next registration: up to half
a minute in which a SYNC_MASTER has no slave. An announcement is a hello (`trioha.ha.hello`), so it
is proven where there is a secret, and a master of an older term is deposed by it. It carries the
addresses of all members: how many promises a term needs depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from trioha.ha.mastership import Standing

if TYPE_CHECKING:
    from trioha.services.ha.master_slave_node import MasterSlaveNode

PATIENCE_S = 2.0
ATTEMPTS = 3
AGAIN_S = 0.5


async def announce_mastership(node: MasterSlaveNode) -> None:
    """Announce this node to every member whenever it becomes master or meets a new member.

    Runs as long as the node.
    """
    while True:
        await node.roles.began.wait()
        node.roles.began = trio.Event()
        async with trio.open_nursery() as nursery:
            for address in node.mastership.members.values():
                nursery.start_soon(_announce_to, node, address, name=f"announcement[{address}]")


async def _announce_to(node: MasterSlaveNode, address: str) -> None:
    """A member that cannot be reached finds out when it registers."""
    for _ in range(ATTEMPTS):
        if node.mastership.standing is not Standing.MASTER:
            return
        with trio.move_on_after(PATIENCE_S):
            if await node.handshake.ask_member(
                address, ha_address=node.registration.identity.ha_address
            ):
                return
        await trio.sleep(AGAIN_S)
