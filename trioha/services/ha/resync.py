"""HA_RESYNC (30011): a slave is told to give up its log and to copy its master's anew.

The request is a msgpack map ``broker_name``, ``dry_run``, ``force``. The answer describes the log
to give up: ``min_phy_offset``, ``max_phy_offset``, the slave's own ``reason`` if it has one, and
whether the log ``holds_more`` than the master's. Such a log is set aside by force only. The work
begins when the link to the master has ended; the status tells how far it is.
"""

from __future__ import annotations

import msgpack

from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Instant
from trioha.services.ha.views import SetNode
from trioha.wire.codes import ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand


class HaResync:
    """Handler of HA_RESYNC."""

    def __init__(self, node: SetNode) -> None:
        self._node = node

    def resync(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        node = self._node
        fields = decode_map(request.body_bytes(), "the body")
        if fields.get("broker_name") != node.config.broker_name:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"this node belongs to {node.config.broker_name}, not {fields.get('broker_name')}",
            )
        client = node.ha_client
        if node.role is not BrokerRole.SLAVE or client is None:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                "this node is master: its log is the one that others copy",
            )
        if node.mastership.unconfirmed:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"this node may yet be master again: {node.mastership.fenced_by}",
            )
        answer = {
            "min_phy_offset": node.store.min_phy_offset,
            "max_phy_offset": node.store.max_phy_offset,
            "reason": node.handshake.needs_resync,
            "follows": node.master_remoting_address.value,
            "holds_more": client.holds_more(),
            "home_id": node.mastership.home_id,
        }
        is_forced = fields.get("force") is True
        if answer["holds_more"] and not is_forced and fields.get("dry_run") is not True:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"this log goes further than the master's at {answer['follows']} and may be the "
                "only copy of what was acknowledged",
            )
        if fields.get("dry_run") is not True:
            client.resync()
        return request.response(body=msgpack.packb(answer))
