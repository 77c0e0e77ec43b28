"""A broker of either make with users and policies (ACL 2.0); RocketMQ's is of 5.3."""

from __future__ import annotations

import json
from collections.abc import Mapping

from support.clusters.pair import SMALL_FILES, Make
from support.peers.java import java_broker
from support.processes.rig import Node, Processes, trioha_broker
from trioha.security.signature import Credentials

SUPER = Credentials("admin", "admin-secret")
NORMAL = Credentials("shop", "shop-secret")
"""Not there at first."""
_PROVIDERS = {
    f"{kind}{name}": f"org.apache.rocketmq.auth.{kind}.provider.{first}{kind.title()}{name}"
    for kind in ("authentication", "authorization")
    for first, name in (("Default", "Provider"), ("Local", "MetadataProvider"))
}


def start_with_users(
    processes: Processes,
    make: Make,
    namesrv: str,
    name: str = "broker-a",
    settings: Mapping[str, object] | None = None,
) -> Node:
    """A master with `SUPER` and the user that it signs with."""
    inner = {"accessKey": "inner", "secretKey": "inner-secret"}
    wanted: dict[str, object] = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authConfigPath": processes.root / f"auth-{make}-{name}",
        "initAuthenticationUser": json.dumps(
            {"username": SUPER.access_key, "password": SUPER.secret_key}
        ),
        "innerClientAuthenticationCredentials": json.dumps(inner),
        **_PROVIDERS,
        **(settings or {}),
    }
    if make == "java":
        node = java_broker(processes, namesrv, name=name, release="5.3", settings=wanted)
    else:
        node = trioha_broker(processes, namesrv, name=name, settings={**SMALL_FILES, **wanted})
    return node.start()
