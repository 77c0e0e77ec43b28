"""May a node listen where it wants to? Beyond this machine only with a secret, or by explicit word.

Theory of operation. Without a cluster secret a node obeys every peer that reaches its ports: each
of them can fail a set over or take a route. Without accounts a broker does for each of them what a
client may ask: store, hand out, move offsets. On loopback these are the users of one machine, and
nothing has to be configured. Beyond it the node refuses to start, unless the operator says
`insecure`, or of the second alone `anonymousClients`.
"""

from __future__ import annotations

from ipaddress import ip_address

from trioha.config.settings import BrokerConfig, NamesrvConfig
from trioha.errors import ConfigError
from trioha.wire.keyring import Keyring


def is_loopback(bind_address: str) -> bool:
    """Return whether only this machine reaches a port on this address; False for a wildcard."""
    try:
        return ip_address(bind_address.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return bind_address == "localhost"


def is_exposed(config: BrokerConfig | NamesrvConfig, keyring: Keyring) -> bool:
    """Return whether other machines reach this node, and it obeys them without proof."""
    return not keyring and not is_loopback(config.bind_address)


def check_exposure(config: BrokerConfig | NamesrvConfig, keyring: Keyring) -> None:
    """Errors: ConfigError if the node is exposed and the operator has not said so."""
    if config.insecure or is_loopback(config.bind_address):
        return
    if not keyring:
        raise ConfigError(
            f"bindAddress {config.bind_address or '(every address)'} is reached from other "
            "machines, and this node has no secret to know its cluster by: configure one "
            "(`trioha security init` makes it, clusterSecretFile names it), or accept orders from "
            "anybody with --insecure (insecure=true)"
        )
    if isinstance(config, BrokerConfig) and not (
        config.acl_enable or config.authentication_enabled or config.anonymous_clients
    ):
        raise ConfigError(
            f"bindAddress {config.bind_address or '(every address)'} is reached from other "
            "machines, and this broker asks their clients for no account: configure accounts "
            "(`trioha security init` makes plain_acl.yml, aclEnable=true asks for them), or let "
            "everybody send and receive with anonymousClients=true"
        )
