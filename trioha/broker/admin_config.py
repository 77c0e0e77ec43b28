"""The configuration over the wire: requests 25 and 26 (AdminBrokerProcessor.java).

Without access control every peer may send these, and a setting that named a path or command was a
way to run code on the machine (CVE-2023-33246). So only the keys of `REMOTE_KEYS` can be set:
numbers and switches that are read anew on each use. A request is judged whole before anything of
it is taken over. What was set so lasts until the node ends: its files belong to the operator.
Secrets are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs

from trioha.config import BrokerConfig, key_of, without_secret
from trioha.config.files import FileEntry, Syntax, parse_properties
from trioha.config.values import convert
from trioha.errors import ConfigError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode
from trioha.wire.refusals import no_permission, system_error
from trioha.wire.remoting_command import RemotingCommand

REMOTE_KEYS = frozenset(
    {
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "offsetCheckInSlave",
        "shortPollingTimeMills",
        "slaveReadEnable",
    }
)
_TOLD = {
    # exportMetrics shows it as the number of processors, which it is by Java's default.
    "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
    "filterServerNums": "0",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "useTLS": "false",
}
"""Settings that only Java has, and that mqadmin's exportConfigs and exportMetrics look for."""
BODY_BYTES_MAX = 65_536

_FIELDS = {key_of(field): field for field in attrs.fields(BrokerConfig)}


class ConfigAdminProcessor:
    """Shows the configuration and changes what may be changed from afar.

    `apply` gets the new configuration and gives it to every part that reads it.
    """

    def __init__(self, config: BrokerConfig, apply: Callable[[BrokerConfig], None]) -> None:
        self.config = config
        self._apply = apply
        self._version = DataVersion()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
        }

    def update_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Take over ``key=value`` lines, all or none."""
        data = request.body_bytes()
        if len(data) > BODY_BYTES_MAX:
            raise system_error(f"{len(data)} bytes of configuration")
        try:
            lines = list(parse_properties(data.decode()))
        except UnicodeDecodeError:
            raise system_error("the body is not UTF-8") from None
        changes: dict[str, Any] = {}
        for number, key, value in lines:
            if key not in REMOTE_KEYS:
                raise no_permission(
                    f"{key!r:.60} can not be set remotely; these can: "
                    + ", ".join(sorted(REMOTE_KEYS))
                )
            entry = FileEntry(key, value, f"line {number}", Syntax.PROPERTIES)
            try:
                changes[_FIELDS[key].name] = convert(_FIELDS[key], entry, [])
            except ConfigError as error:
                raise system_error(str(error)) from None
        if changes:
            self.config = attrs.evolve(self.config, **changes)
            self._version = self._version.next(instant.wall_ms)
            self._apply(self.config)
        return request.response()

    def get_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Every setting as ``key=value`` lines."""
        shown = _TOLD | {
            key: _shown(key, getattr(self.config, field.name)) for key, field in _FIELDS.items()
        }
        lines = [f"{key}={value}\n" for key, value in sorted(shown.items())]
        return request.response(
            ext_fields={"version": self._version.encode().decode()}, body="".join(lines).encode()
        )


def _shown(key: str, value: object) -> str:
    value = without_secret(key, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(getattr(value, "value", value))
    return text.replace("\\", "\\\\").replace("\n", "\\n")
