"""Asks the target of a hand-over whether it became master, if the operator did not say.

If the operator of a planned switch vanishes after the hand-over, the old master takes no writes and
knows no master to follow. It asks the target by itself. The question ends the target's ticket, so a
target that has not begun its term by then never does.
"""

from __future__ import annotations

import msgpack
import trio

from trioha.errors import RemoteProtocolError, Unreachable
from trioha.ha.promotion import HandOver
from trioha.security.node_signer import Sign
from trioha.services.ha.role_control import RoleControl
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Connect
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand

INTERVAL_S = 1.0
PATIENCE_S = 3.0


async def settle_hand_overs(
    roles: RoleControl,
    clock: Clock,
    connect_to: Connect,
    sign: Sign,
    keyring: Keyring | None = None,
) -> None:
    """Ask the target of each open hand-over until it says whether it began its term.

    Runs as long as the node does.
    """
    while True:
        await roles.unsettled.wait()
        while (handed_over := roles.handed_over) is not None:
            used = await _ask_whether_used(handed_over, clock, connect_to, sign, keyring)
            if roles.handed_over is handed_over and used is not None:
                roles.target_said(used=used)
            if roles.handed_over is not None:
                await trio.sleep(INTERVAL_S)


async def _ask_whether_used(
    handed_over: HandOver,
    clock: Clock,
    connect_to: Connect,
    sign: Sign,
    keyring: Keyring | None,
) -> bool | None:
    """Return whether the target became master under this ticket; None if it does not say."""
    host, port = parse_address(handed_over.target.address)
    body = msgpack.packb({"ticket_id": handed_over.ticket_id})
    with trio.move_on_after(PATIENCE_S):
        try:
            async with open_remoting_client(
                host, port, clock, connect_to=connect_to, sign=sign, keyring=keyring
            ) as client:
                response = await client.request(RemotingCommand(RequestCode.RELEASE, body=body))
            if response.code == ResponseCode.SUCCESS:
                used = decode_map(response.body_bytes()).get("used")
                return used if isinstance(used, bool) else None
        except (Unreachable, RemoteProtocolError):
            return None
    return None
