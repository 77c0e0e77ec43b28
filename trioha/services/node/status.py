"""A broker's answer to TRIOHA_NODE_STATUS: what `ha status` and the console read."""

from __future__ import annotations

import attrs

from trioha import __version__
from trioha.config import BrokerRole
from trioha.config.exposure import is_exposed
from trioha.remoting.channel import Instant
from trioha.services.node.views import ToldBroker
from trioha.store.cuts import list_cuts


def broker_status(node: ToldBroker, instant: Instant) -> dict[str, object]:
    """Status of any broker. Plain values only: they travel as msgpack. Offsets in bytes, ages in
    seconds."""
    config = node.config
    store = node.store.statistics()
    return {
        "name": config.broker_name,
        "cluster": config.broker_cluster_name,
        "id": node.broker_id,
        "role": node.role.value,
        "address": node.addresses.listen,
        "ha_address": node.addresses.ha_listen,
        "version": __version__,
        "insecure": is_exposed(config, node.keyring),
        "certificate_left_s": _left_s(node, instant),
        "uptime_s": (instant.wall_ms - node.started_wall_ms) / 1000,
        "min_phy_offset": store.min_phy_offset,
        "max_phy_offset": store.max_phy_offset,
        "flushed_offset": store.flushed_offset,
        "dispatched_offset": store.dispatched_offset,
        "indexed_offset": store.indexed_offset,
        "reserved_s": config.file_reserved_time * 3600,
        "disk_ratio": store.disk_ratio,
        "writable": store.writable and node.role is not BrokerRole.SLAVE,
        "put_total": store.put_total,
        "get_total": store.get_total,
        "client_connections": node.server.connection_count,
        "puts_waiting": node.core.pipeline.waiter_count,
        "metadata_position": node.core.metadata.position,
        "changes_waiting": node.core.metadata_waits.waiter_count,
        "forwarding": attrs.asdict(node.forwarding.statistics(instant.now_ms)),
        "cuts": [
            {"path": str(cut.path), "begin": cut.begin, "end": cut.end, "wall_ms": cut.wall_ms}
            for cut in list_cuts(node.store.config.root)
        ],
    }


def _left_s(node: ToldBroker, instant: Instant) -> float | None:
    """Return the seconds until the node's certificate expires; None without TLS."""
    end_s = node.process.certificate_end_s()
    return None if end_s is None else end_s - instant.wall_ms / 1000
