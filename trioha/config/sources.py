"""Sources of settings: defaults, then a file, then the environment, then flags.

The later source wins. Every value remembers its origin, so that `trioha config show --origin` can
answer the question that is asked at three in the morning. ``NAMESRV_ADDR`` is RocketMQ's own
variable and, as there, counts less than the file; ``TRIOHA_NAMESRV_ADDR`` counts more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from trioha.config.dledger import DLEDGER_KEYS
from trioha.config.files import FileEntry, Syntax, read_file
from trioha.config.ignored import IGNORED_BY_BROKER, IGNORED_BY_NAMESRV, Ignored
from trioha.config.settings import BrokerConfig, NamesrvConfig, key_of
from trioha.config.values import PATH_KEYS, check_broker, check_namesrv, convert
from trioha.errors import ConfigError

DEFAULT = "default"
ENVIRONMENT_PREFIX = "TRIOHA_"
RESERVED_VARIABLES = frozenset(
    {
        "TRIOHA_ACCESS_KEY",
        "TRIOHA_CLUSTER_SECRET",
        "TRIOHA_COMPILE",
        "TRIOHA_CONFIG",
        "TRIOHA_CONTEXT",
        "TRIOHA_DEBUG",
        "TRIOHA_DEV_FAULTS",
        "TRIOHA_SECRET_KEY",
    }
)
"""Variables that are no settings of a node. TRIOHA_COMPILE is for pip and may still be set."""

_WILDCARDS = ("", "0.0.0.0", "::")
C = TypeVar("C", BrokerConfig, NamesrvConfig)


@attrs.frozen
class Loaded(Generic[C]):
    config: C
    origins: Mapping[str, str]
    """Key -> ``default``, ``file:line``, a variable, or a flag."""
    notes: tuple[str, ...] = ()
    """Warnings about settings that were accepted but may not do what their author expects."""


@attrs.frozen
class _Node(Generic[C]):
    """Differences between a broker and a name server."""

    kind: type[C]
    tables: Mapping[str, bool]
    ignored: Mapping[str, Ignored]
    check: Callable[[C, Mapping[str, str]], None]
    namesrv_variable: bool


_BROKER = _Node(
    BrokerConfig,
    {"broker": True, "store": True, "ha": True, "dledger": True, "namesrv": False},
    IGNORED_BY_BROKER,
    check_broker,
    namesrv_variable=True,
)
_NAMESRV = _Node(
    NamesrvConfig,
    {"namesrv": True, "broker": False, "store": False, "ha": False, "dledger": False},
    IGNORED_BY_NAMESRV,
    check_namesrv,
    namesrv_variable=False,
)


def load_broker(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[FileEntry] = (),
) -> Loaded[BrokerConfig]:
    """A broker's settings. Errors: ConfigError with place, reason and the nearest right key."""
    loaded = _load(_BROKER, file, environment or {}, flags)
    config, origins = loaded.config, dict(loaded.origins)
    if not config.broker_ip1 and config.bind_address not in _WILDCARDS:
        # Listening on one address only, there is no other that clients could be told.
        config = attrs.evolve(config, broker_ip1=config.bind_address)
        origins["brokerIP1"] = f"bindAddress ({origins['bindAddress']})"
    notes = list(loaded.notes)
    period = config.register_name_server_period
    if not 10_000 <= period <= 60_000:
        notes.append(
            f"{origins['registerNameServerPeriod']}: registerNameServerPeriod {period}"
            f" is taken as {min(max(period, 10_000), 60_000)}, as RocketMQ does"
        )
    if config.disk_space_warning_level_ratio < config.disk_max_used_space_ratio:
        notes.append(
            f"{origins['diskMaxUsedSpaceRatio']}: diskMaxUsedSpaceRatio"
            f" {config.disk_max_used_space_ratio}: writes are refused earlier, at"
            f" diskSpaceWarningLevelRatio {config.disk_space_warning_level_ratio}"
        )
    notes += _notes_on_dledger(config, origins)
    notes += [
        f"{origins[key]}: everybody on this machine can read {key} in the list of processes; name a"
        f" file by {key}File"
        for key in ("haSecret", "dLegerSecret")
        if origins[key].startswith("--")
    ]
    return Loaded(config, origins, tuple(notes))


def _notes_on_dledger(config: BrokerConfig, origins: Mapping[str, str]) -> list[str]:
    if config.enable_d_leger_commit_log:
        return []
    return [
        f"{origins[key]}: {key} has no meaning without enableDLegerCommitLog=true"
        for key in DLEDGER_KEYS
        if origins[key] != DEFAULT
    ]


def load_namesrv(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[FileEntry] = (),
) -> Loaded[NamesrvConfig]:
    """A name server's settings; as `load_broker`."""
    return _load(_NAMESRV, file, environment or {}, flags)


def set_entry(text: str) -> FileEntry:
    """``key=value`` of ``--set``. Errors: ConfigError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'--set: "{text}" is not key=value')
    return FileEntry(key.strip(), value, "--set")


def keys_of(kind: type[BrokerConfig] | type[NamesrvConfig]) -> dict[str, attrs.Attribute[Any]]:
    """Every key of a node's settings with its field, in the order of `trioha.config.settings`."""
    # Settings that brokers and name servers share are listed last.
    fields = sorted(attrs.fields(kind), key=lambda field: field.inherited)
    return {key_of(field): field for field in fields}


def _load(
    node: _Node[C], file: Path | None, environment: Mapping[str, str], flags: Iterable[FileEntry]
) -> Loaded[C]:
    fields = keys_of(node.kind)
    notes: list[str] = []
    values: dict[str, Any] = {}
    origins = dict.fromkeys(fields, DEFAULT)
    file_entries: list[FileEntry] = read_file(file, node.tables) if file is not None else []
    _note_duplicates(file_entries, notes)
    sources: list[FileEntry] = [
        *_namesrv_variable(node, environment),
        *file_entries,
        *_environment(environment, node),
        *flags,
    ]
    for entry in [*sources, *_tls_file_entries(sources)]:
        field = fields.get(entry.key)
        if field is None:
            _accept_ignored(entry, node, notes)
            continue
        values[field.name] = convert(field, entry, notes)
        origins[entry.key] = entry.origin
    for key in PATH_KEYS & fields.keys():
        field = fields[key]
        if field.name not in values and field.default:
            values[field.name] = str(Path(field.default).expanduser())
    config = node.kind(**values)
    node.check(config, origins)
    notes += [
        f"{origins[key]}: everybody on this machine can read {key} in the list of processes; write"
        " it into a file (tls.config.file)"
        for key in ("tls.server.keyPassword", "tls.client.keyPassword")
        if origins[key].startswith("--")
    ]
    return Loaded(config, origins, tuple(notes))


def _tls_file_entries(sources: Iterable[FileEntry]) -> list[FileEntry]:
    """Entries of the newest tls.config.file. As in RocketMQ they win over all other sources."""
    named = [entry.value for entry in sources if entry.key == "tls.config.file" and entry.value]
    if not named:
        return []
    return read_file(Path(str(named[-1]).strip()).expanduser(), {})


def _note_duplicates(entries: Iterable[FileEntry], notes: list[str]) -> None:
    """The last of a .properties file wins, as in Java; in TOML two tables may not disagree."""
    seen: dict[str, FileEntry] = {}
    for entry in entries:
        earlier = seen.get(entry.key)
        if earlier is not None:
            if entry.syntax is Syntax.TOML:
                raise ConfigError(f"{entry.origin}: {entry.key} is set at {earlier.origin} already")
            notes.append(f"{entry.origin}: {entry.key} replaces the value at {earlier.origin}")
        seen[entry.key] = entry


def _accept_ignored(entry: FileEntry, node: _Node[C], notes: list[str]) -> None:
    ignored = node.ignored.get(entry.key)
    if ignored is None:
        raise ConfigError(f"{entry.origin}: unknown key {entry.key}{_cure(entry.key, node)}")
    if ignored.only and str(entry.value).strip().lower() not in ignored.only:
        raise ConfigError(f"{entry.origin}: {entry.key}={entry.value}: {ignored.reason}")
    if not ignored.only:
        notes.append(f"{entry.origin}: {entry.key} has no meaning here: {ignored.reason}")


def _cure(key: str, node: _Node[C]) -> str:
    other = NamesrvConfig if node.kind is BrokerConfig else BrokerConfig
    if key in keys_of(other):
        table, owner = (
            ("namesrv", "name server") if other is NamesrvConfig else ("broker", "broker")
        )
        return f"; it belongs to a {owner}: put it under [{table}]"
    near = _nearest(key, keys_of(node.kind))
    if near is not None:
        return f"; did you mean {near}?"
    return "; `trioha config keys` lists them all"


def _nearest(key: str, keys: Iterable[str]) -> str | None:
    """The most similar key, whatever the case and the separators."""
    folded = {_fold(name): name for name in keys}
    near = get_close_matches(_fold(key), folded, 1, cutoff=0.75)
    return folded[near[0]] if near else None


def _fold(key: str) -> str:
    return re.sub(r"[_\-.]", "", key).lower()


def _namesrv_variable(node: _Node[C], environment: Mapping[str, str]) -> list[FileEntry]:
    address = environment.get("NAMESRV_ADDR", "")
    if not node.namesrv_variable or not address:
        return []
    return [FileEntry("namesrvAddr", address, "NAMESRV_ADDR")]


def _environment(environment: Mapping[str, str], node: _Node[C]) -> list[FileEntry]:
    ours = {_fold(key): key for key in keys_of(node.kind)}
    anyone = {_fold(key) for kind in (BrokerConfig, NamesrvConfig) for key in keys_of(kind)}
    entries = []
    for name, value in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in RESERVED_VARIABLES:
            continue
        folded = _fold(name[len(ENVIRONMENT_PREFIX) :])
        if folded in ours:
            entries.append(FileEntry(ours[folded], value, name))
        elif folded not in anyone and not _is_service_link(name, value):
            near = get_close_matches(folded, ours, 1, cutoff=0.75)
            cure = f"; did you mean {ENVIRONMENT_PREFIX}{_upper(ours[near[0]])}?" if near else ""
            raise ConfigError(f"{name}: unknown setting in the environment{cure}")
    return entries


def _upper(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\.", "_", key).upper()


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes sets TRIOHA_PORT=tcp://… and more in every pod beside a service named trioha."""
    return re.search(
        r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP)(_\w+)?$", name
    ) is not None or value.startswith(("tcp://", "udp://"))
