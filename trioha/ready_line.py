"""The one line a node prints on stdout when it serves: addresses that are real, also for port 0.

    trioha broker broker-a id=0 role=SYNC_MASTER ready listen=127.0.0.1:10911 ha=… store=… pid=…
    trioha broker broker-a id=n0 role=DLEDGER ready listen=127.0.0.1:10911 store=… pid=…
    trioha namesrv ready listen=127.0.0.1:9876 http=127.0.0.1:9879 pid=…

With ``--ready-json`` the same as one JSON object. docs/cli.md documents both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from trioha.config import BrokerConfig
from trioha.errors import RemoteProtocolError
from trioha.log_lines import logfmt_value


def broker_facts(
    config: BrokerConfig, *, listen: str, ha_listen: str, vip_listen: str, admin_http: str = ""
) -> dict[str, object]:
    """Return the fields of a broker's ready line."""
    is_member = config.enable_d_leger_commit_log
    facts: dict[str, object] = {
        "node": "broker",
        "name": config.broker_name,
        "id": config.d_leger_self_id if is_member else config.broker_id,
        "role": "DLEDGER" if is_member else config.broker_role.name,
        "listen": listen,
        "ha": ha_listen,
        "vip": vip_listen,
        "http": admin_http,
        "store": config.store_path_root_dir,
        "pid": os.getpid(),
    }
    return {key: value for key, value in facts.items() if value != ""}


def namesrv_facts(listen: str, admin_http: str = "") -> dict[str, object]:
    """Return the fields of a name server's ready line."""
    facts: dict[str, object] = {"node": "namesrv", "listen": listen, "http": admin_http}
    return {key: value for key, value in facts.items() if value != ""} | {"pid": os.getpid()}


def ready_line(facts: Mapping[str, object], *, as_json: bool) -> str:
    """The line, without its end."""
    if as_json:
        return json.dumps({"event": "ready", **facts})
    rest = dict(facts)
    words = ["trioha", str(rest.pop("node"))]
    if "name" in rest:
        words.append(str(rest.pop("name")))
        words += [f"{key}={rest.pop(key)}" for key in ("id", "role")]
    words.append("ready")
    words += [f"{key}={logfmt_value(value)}" for key, value in rest.items()]
    return " ".join(words)


def parse_ready_json(line: str) -> dict[str, object]:
    """The facts of a ``--ready-json`` line. Errors: RemoteProtocolError."""
    try:
        facts = json.loads(line)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or facts.get("event") != "ready":
        raise RemoteProtocolError(f"not a ready line: {line.strip()[:200]!r}")
    return facts
