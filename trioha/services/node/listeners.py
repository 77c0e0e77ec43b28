"""The ports of a broker, and the configuration once they are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs

from trioha.config import BrokerConfig
from trioha.errors import TriohaError
from trioha.journal import EventSink
from trioha.services.admin.http import open_admin_listener
from trioha.services.loop.transport import Listener, OnTop, format_address, open_listener
from trioha.services.node.tls import NodeTls
from trioha.services.remoting.own_address import own_address

_VIP_DISTANCE = 2  # every RocketMQ slave, and a client with vipChannelEnabled, asks listenPort - 2


@attrs.frozen
class BrokerAddresses:
    """Addresses of a broker, as ``host:port``."""

    listen: str
    ha_listen: str
    """Empty for a member of a DLEDGER group."""
    vip_listen: str
    """Empty when there is no VIP port."""
    admin_http: str = ""
    """Empty when the port could not be had, or is not wanted."""


@attrs.frozen
class BrokerListeners:
    """Open ports and the configuration that names them and our own addresses."""

    config: BrokerConfig
    remoting: Listener
    vip: Listener | None
    ha: Listener | None
    """Port of slaves; None for a member of a DLEDGER group, which has none."""
    admin: Listener | None
    addresses: BrokerAddresses
    tls: NodeTls | None = None
    """Certificates of these ports."""


@contextmanager
def open_broker_listeners(
    config: BrokerConfig, events: EventSink, tls: NodeTls
) -> Iterator[BrokerListeners]:
    """Listen on all the ports of a broker while the block runs.

    Errors: TriohaError when a port cannot be had. The VIP port and the HTTP port may be missing:
    two brokers whose ports lie as near share a host; that is one journal line.
    """
    with ExitStack() as stack:

        def listen(port: int, on_top: OnTop = tls.accepted) -> Listener:
            listener = open_listener(config.bind_address, port, on_top)
            stack.callback(listener.close)
            return listener

        remoting = listen(config.listen_port)
        ha_port = config.ha_listen_port
        ha_port = remoting.port + 1 if ha_port < 0 and config.listen_port else max(ha_port, 0)
        ha = None if config.enable_d_leger_commit_log else listen(ha_port, tls.accepted_ha)
        vip = None
        if config.vip_channel and remoting.port > _VIP_DISTANCE:
            try:
                vip = listen(remoting.port - _VIP_DISTANCE)
            except TriohaError as error:
                events.event("vip_port_unavailable", reason=str(error))
        admin = open_admin_listener(config, remoting, events, tls.accepted_http)
        if admin is not None:
            stack.callback(admin.close)
        ip1 = config.broker_ip1 or own_address(config.bind_address)
        settled = attrs.evolve(
            config,
            listen_port=remoting.port,
            ha_listen_port=ha_port if ha is None else ha.port,
            broker_ip1=ip1,
            broker_ip2=config.broker_ip2 or ip1,
        )
        addresses = BrokerAddresses(
            listen=format_address(ip1, remoting.port),
            ha_listen="" if ha is None else format_address(settled.broker_ip2, ha.port),
            vip_listen="" if vip is None else format_address(ip1, vip.port),
            admin_http="" if admin is None else format_address(ip1, admin.port),
        )
        yield BrokerListeners(settled, remoting, vip, ha, admin, addresses, tls)
