"""Conversion of written values to settings: types, units, ranges, and rules between settings.

The unit of a number is the word its help text uses: "bytes" or "ms", as `trioha.config` promises.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from trioha.config.dledger import check_dledger
from trioha.config.files import FileEntry, Syntax
from trioha.config.settings import BrokerConfig, BrokerRole, NamesrvConfig, key_of, without_secret
from trioha.config.tls import TLS_PATH_KEYS, check_tls
from trioha.errors import ConfigError
from trioha.wire.address import split_address

RECORD_OVERHEAD_MAX = 91 + 127 + 32_767 + 8
"""Bytes of a record besides its body: fixed fields, topic, properties, the segment's blank."""
BODY_BYTES_MAX = 16_777_216 - 65_536
"""The frame limit of every RocketMQ peer, less room for the header and the properties."""
_INT_MAX = 2**63 - 1

RANGES: Mapping[str, tuple[int, int]] = {
    "brokerId": (0, 2**31 - 1),
    "listenPort": (0, 65535),
    "haListenPort": (-1, 65535),
    "adminHttpPort": (-1, 65535),
    "brokerPermission": (0, 6),
    "diskMaxUsedSpaceRatio": (1, 99),
    "diskSpaceWarningLevelRatio": (1, 99),
    "accessMessageInMemoryMaxRatio": (0, 100),
    "defaultTopicQueueNums": (1, 1024),
    "cgColdReadThreshold": (0, _INT_MAX),
    "globalColdReadThreshold": (0, _INT_MAX),
    "shutdownGrace": (0, 600_000),
    "haReconnectInterval": (0, 600_000),
    "maxMessageSize": (1, BODY_BYTES_MAX),
    "waitTimeMillsInSendQueue": (0, _INT_MAX),
    "waitTimeMillsInPullQueue": (0, _INT_MAX),
    "waitTimeMillsInHeartbeatQueue": (0, _INT_MAX),
    "waitTimeMillsInTransactionQueue": (0, _INT_MAX),
    "waitTimeMillsInAckQueue": (0, _INT_MAX),
}

PATH_KEYS = frozenset(
    {
        "storePathRootDir",
        "storePathCommitLog",
        "kvConfigPath",
        "journalPath",
        "aclFile",
        "authConfigPath",
        "clusterSecretFile",
        "haSecretFile",
        "dLegerSecretFile",
        *TLS_PATH_KEYS,
    }
)

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_TIMES = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(r"([+-]?\d+)\s*([A-Za-z]*)", re.ASCII)

Origins = Mapping[str, str]


def unit_of(field: attrs.Attribute[Any]) -> str:
    """``bytes``, ``ms`` or nothing: what a plain number of this setting counts."""
    if type(field.default) is not int:
        return ""
    found = re.search(r"\b(bytes|ms)\b", field.metadata["doc"])
    return found[1] if found else ""


def allowed(field: attrs.Attribute[Any]) -> str:
    """Return the values that a setting may have, in words."""
    kind: type[Any] = type(field.default)
    if kind is bool:
        return "true or false"
    if issubclass(kind, Enum):
        names = [member.name for member in kind]
        return ", ".join(names[:-1]) + f" or {names[-1]}"
    if kind is str:
        return "text"
    low, high = range_of(field)
    unit = unit_of(field)
    number = f"a whole number of {unit}" if unit else "a whole number"
    return f"{number} of at least {low}" if high >= 2**31 - 1 else f"{number} from {low} to {high}"


def range_of(field: attrs.Attribute[Any]) -> tuple[int, int]:
    """Smallest and largest number allowed."""
    return RANGES.get(key_of(field), (1, _INT_MAX))


def convert(field: attrs.Attribute[Any], entry: FileEntry, notes: list[str]) -> object:
    """The entry's value as the setting's type; what was forgiven is added to `notes`.

    Errors: ConfigError that names the place and what is allowed.
    """
    value = entry.value
    if isinstance(value, str) and entry.syntax is not Syntax.TOML:
        stripped = value.rstrip()
        if stripped != value and entry.syntax is Syntax.PROPERTIES:
            notes.append(
                f"{entry.origin}: {entry.key}: blanks behind the value are dropped"
                " (RocketMQ would keep them)"
            )
        value = stripped
    result = _typed(field, value, entry.syntax)
    if result is None:
        raise ConfigError(
            f"{entry.origin}: {entry.key} must be {allowed(field)},"
            f" not {_shown(without_secret(entry.key, entry.value))}"
        )
    if entry.key in PATH_KEYS and isinstance(result, str) and result:
        return str(Path(result).expanduser())
    return result


def _typed(field: attrs.Attribute[Any], value: object, syntax: Syntax) -> object | None:
    """The value in the setting's type, or None if it cannot be."""
    kind: type[Any] = type(field.default)
    if kind is bool:
        if isinstance(value, bool):
            return value
        text = value.lower() if isinstance(value, str) and syntax is not Syntax.TOML else ""
        return {"true": True, "false": False}.get(text)
    if issubclass(kind, Enum):
        return kind.__members__.get(value) if isinstance(value, str) else None
    if kind is str:
        return value if isinstance(value, str) and "\0" not in value else None
    if isinstance(value, str):
        value = _number(value, unit_of(field), bare=syntax is Syntax.PROPERTIES)
    if type(value) is not int:
        return None
    low, high = range_of(field)
    return value if low <= value <= high else None


def _number(text: str, unit: str, *, bare: bool) -> int | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    scales = _SIZES if unit == "bytes" else _TIMES if unit == "ms" else {"": 1}
    scale = scales.get(found[2])
    if scale is None or (bare and found[2]):
        return None
    return int(found[1]) * scale


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_broker(config: BrokerConfig, origins: Origins) -> None:
    """Rules between settings, and texts with a form of their own. Errors: ConfigError."""

    refuse = _refusal(origins)
    is_slave = config.broker_role is BrokerRole.SLAVE
    if is_slave != (config.broker_id > 0):
        key = "brokerId" if origins["brokerId"] != "default" else "brokerRole"
        refuse(
            key,
            f"a {config.broker_role.name} needs brokerId "
            + ("above 0" if is_slave else "0")
            + f", not {config.broker_id}",
        )
    for key, name in (
        ("brokerName", config.broker_name),
        ("brokerClusterName", config.broker_cluster_name),
    ):
        if not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", name):
            refuse(key, "1 to 127 characters of a-z A-Z 0-9 _ - % |")
    if config.broker_permission not in (2, 4, 6):
        refuse("brokerPermission", "2 (write), 4 (read) or 6 (both)")
    if config.authentication_enabled and config.acl_enable:
        refuse("authenticationEnabled", "either this or aclEnable; they are two kinds of accounts")
    if config.authorization_enabled and not config.authentication_enabled:
        refuse("authorizationEnabled", "needs authenticationEnabled=true: unsigned names are lies")
    _check_ports(config, refuse)
    check_dledger(config, refuse)
    check_tls(config, refuse)
    record_max = config.max_message_size + RECORD_OVERHEAD_MAX
    if config.mapped_file_size_commit_log < record_max:
        refuse(
            "mappedFileSizeCommitLog",
            f"{config.mapped_file_size_commit_log} bytes do not hold one record of maxMessageSize"
            f" {config.max_message_size}: at least {record_max}, or a smaller maxMessageSize",
        )
    if config.mapped_file_size_consume_queue < 20:
        refuse("mappedFileSizeConsumeQueue", "at least 20 bytes, one entry")
    if config.ha_housekeeping_interval <= config.ha_send_heartbeat_interval:
        refuse("haHousekeepingInterval", "must be longer than haSendHeartbeatInterval")
    if config.timer_precision_ms not in (100, 200, 500, 1000):
        refuse("timerPrecisionMs", "100, 200, 500 or 1000")
    for level in config.message_delay_level.split():
        if not re.fullmatch(r"\d+[smhd]", level, re.ASCII):
            refuse("messageDelayLevel", f'"{level}" is no delay; write them like 1s 5m 2h 1d')
    if not config.message_delay_level.split():
        refuse("messageDelayLevel", "at least one level")
    for hour in config.delete_when.split(";"):
        if not re.fullmatch(r"[01]?\d|2[0-3]", hour.strip(), re.ASCII):
            refuse("deleteWhen", f'"{hour}" is no hour of the day; write them like 04;16')
    if config.ha_empty_slave_from not in ("first", "last"):
        refuse("haEmptySlaveFrom", 'must be "first" or "last"')
    for network in filter(None, map(str.strip, config.ha_allowed_peers.split(";"))):
        try:
            ipaddress.ip_network(network)
        except ValueError:
            refuse("haAllowedPeers", f'"{network}" is no network; write them like 10.0.0.0/8')
    if "," in config.store_path_commit_log:
        refuse("storePathCommitLog", "one directory only")
    for key, text in (
        ("namesrvAddr", config.namesrv_addr),
        ("haMasterAddress", config.ha_master_address),
    ):
        for address in filter(None, map(str.strip, text.split(";"))):
            try:
                split_address(address)
            except ValueError as error:
                refuse(key, str(error))


def _check_ports(config: BrokerConfig, refuse: Any) -> None:
    listen, ha = config.listen_port, config.ha_listen_port
    vip = listen - 2 if config.vip_channel and listen else 0
    if vip < 0 or (listen == 2 and config.vip_channel):
        refuse("listenPort", "listenPort - 2 must be a port too; or set vipChannel=false")
    if ha == -1 and listen == 65535:
        refuse("listenPort", "leaves no port for haListenPort (listenPort + 1)")
    if ha > 0 and ha in (listen, vip):
        refuse("haListenPort", f"{ha} is taken by listenPort or its VIP channel (listenPort - 2)")


def check_namesrv(config: NamesrvConfig, origins: Origins) -> None:
    """Do the same as `check_broker`, for a name server."""
    if not config.kv_config_path:
        raise ConfigError(f"{origins['kvConfigPath']}: kvConfigPath: must name a file")
    check_tls(config, _refusal(origins))


def _refusal(origins: Origins) -> Callable[[str, str], None]:
    def refuse(key: str, reason: str) -> None:
        raise ConfigError(f"{origins[key]}: {key}: {reason}")

    return refuse
