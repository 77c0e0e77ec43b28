"""The configuration over the wire: requests 25 and 26 (AdminBrokerProcessor.java).

Without access control every peer may send these, and a setting that named a path or command was a
way to run code on the machine (CVE-2023-33246). So only the keys of `REMOTE_KEYS` can be set:
numbers and switches that are read anew on each use. The broker checks the whole request before it
changes anything. The store keeps such settings (`RuntimeSettings`), and at the next start they
override the configuration files. Each change is an event of the journal. Secrets
are never shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from trioha.config import BrokerConfig, key_of, without_secret
from trioha.config.files import FileEntry, Syntax, parse_properties
from trioha.config.values import convert
from trioha.errors import ConfigError, RemoteProtocolError
from trioha.journal import EventSink, NullSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.security.signing_key import ACCESS_KEY
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import object_of, text
from trioha.wire.refusals import no_permission, system_error
from trioha.wire.remoting_command import RemotingCommand

REMOTE_KEYS = frozenset(
    {
        "brokerFastFailureEnable",
        "cgColdReadThreshold",
        "coldDataFlowControlEnable",
        "globalColdReadThreshold",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "offsetCheckInSlave",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "waitTimeMillsInHeartbeatQueue",
        "waitTimeMillsInPullQueue",
        "waitTimeMillsInSendQueue",
        "waitTimeMillsInTransactionQueue",
        "waitTimeMillsInAckQueue",
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


class RuntimeSettings:
    """Settings that were changed over the wire, as config/runtimeSettings.json keeps them."""

    def __init__(self, take_over: Callable[[Mapping[str, str]], None]) -> None:
        self.values: dict[str, str] = {}
        """RocketMQ's key → value as text."""
        self.dirty = False
        """A change is not on disk yet; `ConfigPersist` resets it."""
        self._take_over = take_over

    def put(self, values: Mapping[str, str]) -> None:
        self.values.update(values)
        self.dirty = True

    def encode(self) -> bytes:
        return fastjson.dumps({"settings": self.values})

    def load(self, data: bytes) -> None:
        """Take over the file. Errors: RemoteProtocolError for what is no such table."""
        table = object_of(object_of(fastjson.loads(data), "file").get("settings"), "settings")
        # A later version may allow fewer.
        self.values = {key: text(table, key) for key in table if key in REMOTE_KEYS}
        self._take_over(self.values)


class ConfigAdminProcessor:
    """Shows the configuration, and changes the settings of `REMOTE_KEYS`.

    `apply` gets the new configuration and gives it to every part that reads it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        apply: Callable[[BrokerConfig], None],
        events: EventSink | None = None,
    ) -> None:
        self.config = config
        self.runtime_settings = RuntimeSettings(self._take_over)
        self._apply = apply
        self._events = NullSink() if events is None else events
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
            try:
                changes[_FIELDS[key].name] = _converted(key, value, f"line {number}")
            except ConfigError as error:
                raise system_error(str(error)) from None
        if changes:
            before = self.config
            self.config = attrs.evolve(before, **changes)
            self._version = self._version.next(instant.wall_ms)
            self.runtime_settings.put({key: value for _, key, value in lines})
            self._apply(self.config)
            account = request.ext_str(ACCESS_KEY, "")
            self._note(before, [key for _, key, _ in lines], channel.peer, account)
        return request.response()

    def _take_over(self, values: Mapping[str, str]) -> None:
        """Apply settings that were changed in an earlier run. Errors: RemoteProtocolError."""
        changes: dict[str, Any] = {}
        for key, value in values.items():
            try:
                changes[_FIELDS[key].name] = _converted(key, value, "runtimeSettings.json")
            except ConfigError as error:
                raise RemoteProtocolError(str(error)) from None
        before = self.config
        self.config = attrs.evolve(before, **changes)
        self._apply(self.config)
        # An operator may have changed the file since: the journal says which value counts.
        self._note(before, values, "runtimeSettings.json", "")

    def _note(self, before: BrokerConfig, keys: Iterable[str], peer: str, account: str) -> None:
        for key in dict.fromkeys(keys):
            name = _FIELDS[key].name
            values = [_shown(key, getattr(one, name)) for one in (before, self.config)]
            self._events.event(
                "setting_changed",
                key=key,
                before=values[0],
                after=values[1],
                peer=peer,
                account=account,
            )

    def get_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer every setting as ``key=value`` lines."""
        shown = _TOLD | {
            key: _shown(key, getattr(self.config, field.name)) for key, field in _FIELDS.items()
        }
        lines = [f"{key}={value}\n" for key, value in sorted(shown.items())]
        return request.response(
            ext_fields={"version": self._version.encode().decode()}, body="".join(lines).encode()
        )


def _converted(key: str, value: str, where: str) -> Any:
    return convert(_FIELDS[key], FileEntry(key, value, where, Syntax.PROPERTIES), [])


def _shown(key: str, value: object) -> str:
    value = without_secret(key, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(getattr(value, "value", value))
    return text.replace("\\", "\\\\").replace("\n", "\\n")
