"""Named contexts: the clusters an operator knows by name, and when to raise an alert about them.

One TOML file for the command line and the console: ``TRIOHA_CONFIG``, else
``$XDG_CONFIG_HOME/trioha/config.toml``, else ``~/.config/trioha/config.toml``. ::

    current = "prod"

    [contexts.prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    timeout = "3s"
    secret_file = "~/.config/trioha/prod.secret"   # of the cluster's secret
    access_key = "operator-anna"        # signs what the tools ask of this cluster
    secret_key = "…"                    # without it the tools ask for it
    tls = true                          # connections over TLS
    tls_ca = "prod/ca.pem"              # its CA; without it those of the system
    tls_cert = "prod/operator.pem"      # a certificate, where nodes ask for one
    tls_key = "prod/operator.key"

    [contexts.prod.alerts.disk_ratio]   # for this cluster
    warn = "70%"

    [alerts.gap_bytes]                  # for every cluster
    warn = "16MiB"
    crit = "1GiB"
    for = "1m"

A threshold that is `false` is never reached. A file with a `secret_key` must be its owner's alone.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioha.config.files import TomlLines, parse_toml, read_toml
from trioha.config.tls_files import TLS_VARIABLES, ClientTls
from trioha.errors import ConfigError
from trioha.watch.rules import RULES, Rule, Unit
from trioha.wire.address import split_address
from trioha.words import what_there_is

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z%]*)", re.ASCII)
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_TIMES = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_UNITS: Mapping[Unit, Mapping[str, float]] = {
    Unit.BYTES: _SIZES,
    Unit.SECONDS: _TIMES,
    Unit.RATIO: {"": 1, "%": 0.01},
    Unit.COUNT: {"": 1},
    Unit.FLAG: {"": 1},
}
_KEYS = ("access_key", "secret_key")
_EXAMPLES = {
    Unit.BYTES: 'bytes, like 1048576 or "64MiB"',
    Unit.SECONDS: 'seconds, like 30 or "2m"',
    Unit.RATIO: 'a share, like 0.75 or "75%"',
    Unit.COUNT: "a number",
    Unit.FLAG: "true",
}


@attrs.frozen
class Context:
    """One cluster by name."""

    name: str
    namesrv: str
    timeout_s: float | None
    rules: Mapping[str, Rule]
    origin: str
    """``file:line``."""
    secret_file: str = ""
    """File of the cluster's secret, absolute; "" for none."""
    access_key: str = ""
    """Account of the operator; empty: requests are not signed."""
    secret_key: str = attrs.field(default="", repr=False)
    """Secret of that account; empty: the tools ask for it."""
    tls: ClientTls | None = None
    """TLS settings; None: plain connections."""


@attrs.frozen
class Contexts:
    """Contents of the file; empty if there is no file."""

    path: Path
    current: str | None = None
    contexts: Mapping[str, Context] = attrs.field(factory=dict)
    rules: Mapping[str, Rule] = RULES
    """Alert rules for clusters without a name."""

    def of(self, name: str) -> Context:
        """Errors: ConfigError with the nearest name there is."""
        found = self.contexts.get(name)
        if found is None:
            if not self.contexts:
                raise ConfigError(
                    f"no context {name}: {self.path} has none;"
                    f" `trioha context add {name} -n HOST:PORT` makes one"
                )
            raise ConfigError(f"{self.path}: no context {name}{what_there_is(name, self.contexts)}")
        return found


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file, which may not exist."""
    if named := environment.get("TRIOHA_CONFIG"):
        return Path(named).expanduser()
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "trioha" / "config.toml"


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    """Errors: ConfigError with file, line, what is wrong and the nearest right key.

    A file that is not there is empty, unless TRIOHA_CONFIG names it.
    """
    path = contexts_path(environment)
    if not path.exists() and not environment.get("TRIOHA_CONFIG"):
        return Contexts(path)
    contexts = _Reader(path, *read_toml(path)).contexts()
    _check_private(contexts)
    return contexts


def use_context(path: Path, name: str) -> None:
    """Make `name` the current one: change that one line of the file.

    Errors: ConfigError; OSError.
    """
    text = path.read_text() if path.exists() else ""
    _Reader(path, *parse_toml(path, text.encode())).contexts().of(name)
    line = f'current = "{name}"'
    head, table, rest = _split_at_first_table(text)
    changed, count = re.subn(r"(?m)^\s*current\s*=.*$", line, head, count=1)
    if not count:
        changed = f"{line}\n{head}" if head.strip() else f"{line}\n\n"
    _replace(path, changed + table + rest)


def add_context(
    path: Path,
    name: str,
    namesrv: str,
    access_key: str = "",
    secret_key: str = "",
    tls: Mapping[str, str] | None = None,
) -> None:
    """Append a context; the first one becomes the current one. `tls`: files by their keys.

    Errors: ConfigError when the name or the addresses cannot be, or the name is taken; OSError.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f'"{name}" is no name of a context: letters, digits, - and _')
    _check_addresses(namesrv, "-n")
    text = path.read_text() if path.exists() else ""
    before = _Reader(path, *parse_toml(path, text.encode())).contexts()
    if name in before.contexts:
        raise ConfigError(f"{before.contexts[name].origin}: there is a context {name} already")
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    text += f'{gap}[contexts.{name}]\nnamesrv = "{namesrv}"\n'
    for key, value in {"access_key": access_key, "secret_key": secret_key, **(tls or {})}.items():
        if value:
            text += f"{key} = {_quoted(value)}\n"
    # The text has to be readable before it is written.
    _Reader(path, *parse_toml(path, text.encode())).contexts()
    _replace(path, text, private=bool(secret_key))
    if not before.contexts and before.current is None:
        use_context(path, name)


@attrs.frozen
class _Reader:
    path: Path
    document: Mapping[str, Any]
    lines: TomlLines

    def contexts(self) -> Contexts:
        self._only(self.document, (), ("current", "contexts", "alerts"))
        rules = self._rules(("alerts",), self.document.get("alerts", {}), RULES)
        tables = self._table(self.document.get("contexts", {}), ("contexts",))
        contexts = {name: self._context(name, table, rules) for name, table in tables.items()}
        current = self.document.get("current")
        if current is not None and current not in contexts:
            place = self._place("current")
            cure = what_there_is(str(current), contexts)
            raise ConfigError(f"{place}: no context {current!r:.60}{cure}")
        return Contexts(self.path, current, contexts, rules)

    def _context(self, name: str, table: object, rules: Mapping[str, Rule]) -> Context:
        where = ("contexts", name)
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{self._place(*where)}: {name!r:.60}: letters, digits, - and _ only")
        fields = self._table(table, where)
        known = ("namesrv", "timeout", "secret_file", "access_key", "secret_key", "alerts")
        self._only(fields, where, (*known, *TLS_VARIABLES))
        namesrv = fields.get("namesrv")
        if isinstance(namesrv, list) and all(isinstance(one, str) for one in namesrv):
            namesrv = ";".join(namesrv)
        if not isinstance(namesrv, str) or not namesrv.strip():
            raise ConfigError(
                f"{self._place(*where, 'namesrv')}: context {name} needs"
                ' namesrv = "HOST:PORT;HOST:PORT"'
            )
        _check_addresses(namesrv, self._place(*where, "namesrv"))
        timeout_s: float | None = None
        if "timeout" in fields:
            timeout_s = self._number(fields["timeout"], Unit.SECONDS, (*where, "timeout"))
        own = self._rules((*where, "alerts"), fields.get("alerts", {}), rules)
        secret_file = fields.get("secret_file", "")
        if not isinstance(secret_file, str):
            raise ConfigError(f"{self._place(*where, 'secret_file')}: secret_file must be a path")
        if secret_file:
            secret_file = str(self.path.parent / Path(secret_file).expanduser())
        access_key, secret_key = (self._key(fields, where, key) for key in _KEYS)
        if secret_key and not access_key:
            raise ConfigError(
                f"{self._place(*where, 'secret_key')}: access_key is missing beside it"
            )
        return Context(
            name,
            namesrv,
            timeout_s,
            own,
            self._place(*where),
            secret_file=secret_file,
            access_key=access_key,
            secret_key=secret_key,
            tls=self._tls(fields, where),
        )

    def _tls(self, fields: Mapping[str, Any], where: tuple[str, ...]) -> ClientTls | None:
        given = [key for key in TLS_VARIABLES if key in fields]
        wanted = fields.get("tls", bool(given))
        if not isinstance(wanted, bool):
            raise ConfigError(f"{self._place(*where, 'tls')}: tls must be true or false")
        ca, cert, key = (
            str(self.path.parent / Path(text).expanduser()) if text else ""
            for text in (self._key(fields, where, one) for one in ("tls_ca", "tls_cert", "tls_key"))
        )
        if bool(cert) != bool(key):
            raise ConfigError(
                f"{self._place(*where)}: tls_cert and tls_key belong together, one is missing"
            )
        return ClientTls(trust=ca, cert=cert, key=key) if wanted else None

    def _key(self, fields: Mapping[str, Any], where: tuple[str, ...], key: str) -> str:
        value = fields.get(key, "")
        if not isinstance(value, str):
            raise ConfigError(f"{self._place(*where, key)}: {key} must be text in quotes")
        return value

    def _rules(
        self, where: tuple[str, ...], value: object, rules: Mapping[str, Rule]
    ) -> Mapping[str, Rule]:
        changed = dict(rules)
        table = self._table(value, where)
        self._only(table, where, rules)
        for name, thresholds in table.items():
            place = (*where, name)
            fields = self._table(thresholds, place)
            self._only(fields, place, ("warn", "crit", "for"))
            rule = changed[name]
            if "warn" in fields:
                found = self._threshold(fields["warn"], rule, (*place, "warn"))
                rule = attrs.evolve(rule, warn=found)
            if "crit" in fields:
                found = self._threshold(fields["crit"], rule, (*place, "crit"))
                rule = attrs.evolve(rule, crit=found)
            if "for" in fields:
                for_s = self._number(fields["for"], Unit.SECONDS, (*place, "for"))
                rule = attrs.evolve(rule, for_s=for_s)
            if rule.warn is not None and rule.crit is not None and rule.warn > rule.crit:
                raise ConfigError(
                    f"{self._place(*place)}: {name}: warn {rule.warn:g} is above crit {rule.crit:g}"
                )
            changed[name] = rule
        return changed

    def _threshold(self, value: object, rule: Rule, where: tuple[str, ...]) -> float | None:
        if value is False:
            return None
        if value is True and rule.unit in (Unit.FLAG, Unit.COUNT):
            return 1.0
        return self._number(value, rule.unit, where)

    def _number(self, value: object, unit: Unit, where: tuple[str, ...]) -> float:
        found = number_of(value, unit)
        if found is None:
            shown = f'"{value}"' if isinstance(value, str) else repr(value)
            raise ConfigError(
                f"{self._place(*where)}: {where[-1]} must be {_EXAMPLES[unit]}, not {shown:.60}"
            )
        return found

    def _table(self, value: object, where: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise ConfigError(f"{self._place(*where)}: {'.'.join(where)} must be a table")
        return value

    def _only(
        self, table: Mapping[str, Any], where: tuple[str, ...], allowed: Iterable[str]
    ) -> None:
        allowed = tuple(allowed)
        for key in table:
            if key not in allowed:
                place = self._place(*where, key)
                raise ConfigError(f"{place}: unknown key {key}{what_there_is(key, allowed)}")

    def _place(self, *where: str) -> str:
        """``file:line`` of a key, or of the nearest table around it that has a line."""
        for length in range(len(where), 0, -1):
            if where[:length] in self.lines:
                return f"{self.path}:{self.lines[where[:length]]}"
        return f"{self.path}:1"


def number_of(value: object, unit: Unit) -> float | None:
    """A threshold as it is written, in the unit's own measure; None when it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        found = float(value)
    else:
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        scale = _UNITS[unit].get(match[2]) if match is not None else None
        if match is None or scale is None:
            return None
        found = float(match[1]) * scale
    return found if 0 <= found < float("inf") else None


def _check_addresses(namesrv: str, place: str) -> None:
    for address in filter(None, (part.strip() for part in namesrv.split(";"))):
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from None


def _split_at_first_table(text: str) -> tuple[str, str, str]:
    found = re.search(r"(?m)^\s*\[", text)
    if found is None:
        return text, "", ""
    return text[: found.start()], text[found.start() : found.end()], text[found.end() :]


def _quoted(value: str) -> str:
    """Return a TOML string; JSON's escapes are TOML's too."""
    return json.dumps(value, ensure_ascii=False)


def _check_private(contexts: Contexts) -> None:
    """Refuse a file with a secret that others can read. Errors: ConfigError."""
    if not any(one.secret_key for one in contexts.contexts.values()):
        return
    mode = contexts.path.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(
            f"{contexts.path} holds a secret_key, and others may read it (mode {mode:04o}); "
            f"chmod 600 {contexts.path}"
        )


def _replace(path: Path, text: str, *, private: bool = False) -> None:
    """Write the whole file or none of it; a private one for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() and not private else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
