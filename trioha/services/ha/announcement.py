"""Tells the members of a set that this node is master, as soon as it is.

Members would learn it from a name server as well, but only with their next registration: up to half
a minute in which a SYNC_MASTER has no slave. An announcement is a hello (`trioha.ha.hello`), so it
is proven where there is a secret, and a master of an older term is deposed by it. It carries the
addresses of all members: how many promises a term needs depends on them.
"""

from __future__ import annotations

import trio

from trioha.ha.mastership import Standing
from trioha.services.ha.handshake import Handshake
from trioha.services.ha.role_control import RoleControl
from trioha.services.node.namesrv_registration import NamesrvRegistration

PATIENCE_S = 2.0
ATTEMPTS = 3
AGAIN_S = 0.5


async def announce_mastership(
    roles: RoleControl, handshake: Handshake, registration: NamesrvRegistration
) -> None:
    """Announce this node to every member whenever it becomes master or meets a new member.

    Runs as long as the node.
    """

    async def announce_to(address: str) -> None:
        # A member that cannot be reached learns of the master when it registers.
        for _ in range(ATTEMPTS):
            if roles.mastership.standing is not Standing.MASTER:
                return
            with trio.move_on_after(PATIENCE_S):
                ha_address = registration.identity.ha_address
                if await handshake.ask_member(address, ha_address=ha_address):
                    return
            await trio.sleep(AGAIN_S)

    while True:
        await roles.began.wait()
        async with trio.open_nursery() as nursery:
            for address in roles.mastership.members.values():
                nursery.start_soon(announce_to, address, name=f"announcement[{address}]")
