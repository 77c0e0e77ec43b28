"""Secrets of a node: from files, which are read again when they change, or from the environment.

A file holds one secret a line; empty lines and lines that begin with # do not count. The first
secret signs, all are accepted (`trioha.wire.keyring`). A changed file counts within a second. A
file that cannot be read any more changes nothing: the secrets read last go on counting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from trioha.config.settings import BrokerConfig, NamesrvConfig
from trioha.errors import ConfigError
from trioha.wire.keyring import Keyring

SECRET_VARIABLE = "TRIOHA_CLUSTER_SECRET"
SECRET_FILE_VARIABLE = "TRIOHA_CLUSTER_SECRET_FILE"
SECRETS_MAX = 4
"""One that signs, and those that are being replaced."""
SECRET_CHARS_MIN, SECRET_CHARS_MAX = 16, 1024
"""16 random characters cannot be guessed from a proof that somebody overheard."""
FILE_BYTES_MAX = 16_384
_LOOK_INTERVAL_S = 1.0

_Signature = tuple[int, int, int]
_open_files: dict[tuple[Path, str], FileKeyring] = {}


class FileKeyring(Keyring):
    """The secrets in a file. Errors: ConfigError if it cannot be read now, or holds no secret."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key
        self._signature = _signature(path)
        self._looked_s = time.monotonic()
        super().__init__(*read_secrets(path, key))

    @property
    def secrets(self) -> tuple[str, ...]:
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_INTERVAL_S:
            self._looked_s = now_s
            self.reload()
        return self._secrets

    def reload(self) -> None:
        """Read the file again if it has changed."""
        signature = _signature(self._path)
        if signature is None or signature == self._signature:
            return
        try:
            self._secrets = read_secrets(self._path, self._key)
        except ConfigError:
            return  # half written, or emptied by mistake: the old secrets still count
        self._signature = signature


def read_secrets(path: Path, key: str) -> tuple[str, ...]:
    """Return the secrets in a file, the one that signs first.

    Errors: ConfigError that names the file and `key`, the setting that names the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(
            f"{key}: cannot read {path}: {error.strerror}; `trioha security init` makes one"
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: {path} is no text; write one secret a line") from None
    lines = (line.strip() for line in text.splitlines())
    secrets = tuple(line for line in lines if line and not line.startswith("#"))
    if not 0 < len(secrets) <= SECRETS_MAX or len(data) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{key}: {path} holds {len(secrets)} secrets; write 1 to {SECRETS_MAX}, one a line"
        )
    for secret in secrets:
        check_secret(secret, f"{key}: {path}")
    return secrets


def check_secret(secret: str, place: str) -> None:
    """Errors: ConfigError if the secret is too short or too long."""
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX:
        raise ConfigError(
            f"{place}: a secret of {len(secret)} characters; use {SECRET_CHARS_MIN} to "
            f"{SECRET_CHARS_MAX}: `trioha security init` makes one"
        )


def cluster_keyring(
    config: BrokerConfig | NamesrvConfig, environment: Mapping[str, str] | None = None
) -> Keyring:
    """The secrets that nodes and operators of this cluster prove themselves with.

    Errors: ConfigError.
    """
    return _keyring(config.cluster_secret_file, os.environ if environment is None else environment)


def operator_keyring(environment: Mapping[str, str] | None = None) -> Keyring:
    """The secrets that an operator's tools sign with. Errors: ConfigError."""
    variables = os.environ if environment is None else environment
    return _keyring(variables.get(SECRET_FILE_VARIABLE, ""), variables)


def ha_keyring(config: BrokerConfig) -> Keyring:
    """The secrets of replication links and hellos: haSecret, else the cluster's.

    Errors: ConfigError.
    """
    own = _own(config.ha_secret, config.ha_secret_file, "haSecretFile")
    return own or cluster_keyring(config)


def raft_keyring(config: BrokerConfig) -> Keyring:
    """The secrets of a group's members: dLegerSecret, else those of replication links.

    Errors: ConfigError.
    """
    own = _own(config.d_leger_secret, config.d_leger_secret_file, "dLegerSecretFile")
    return own or ha_keyring(config)


def _own(secret: str, file: str, key: str) -> Keyring:
    if secret and file:
        raise ConfigError(f"{key} and {key.removesuffix('File')} are both set; keep the file")
    return _opened(file, key) if file else Keyring(secret)


def _keyring(file: str, environment: Mapping[str, str]) -> Keyring:
    if file:
        return _opened(file, "clusterSecretFile")
    secret = environment.get(SECRET_VARIABLE, "").strip()
    if secret:
        check_secret(secret, SECRET_VARIABLE)
    return Keyring(secret)


def _opened(file: str, key: str) -> FileKeyring:
    """The one keyring of this file in this process; opened once, it cannot fail any more."""
    path = Path(file).expanduser()
    found = _open_files.get((path, key))
    if found is None:
        found = _open_files[path, key] = FileKeyring(path, key)
    return found


def _signature(path: Path) -> _Signature | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
