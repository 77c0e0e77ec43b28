"""The files of a private CA: its own, and those of the nodes and operators that it signed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from trioha.config.private_ca import Pem, PrivateCa
from trioha.errors import ConfigError

CA_NAME = "ca"
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")


def issue_files(
    directory: Path, nodes: Sequence[str], operator: str | None, now: datetime
) -> list[Path]:
    """Write certificates ``HOST.pem`` and their keys ``HOST.key``; return the certificates' paths.

    Each of `nodes` holds the names and addresses of one node, a comma between them; the first of
    them names its files. The CA is made if there is none. Errors: ConfigError; OSError.
    """
    hosts_of = [[host.strip() for host in node.split(",")] for node in nodes]
    for host in [*(host for hosts in hosts_of for host in hosts), operator or CA_NAME]:
        if not _HOST.fullmatch(host):
            raise ConfigError(f'"{host}" is no host name or address; write HOST or HOST,HOST')
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = _open_ca(directory, now)
    made = [_put(directory, hosts[0], ca.issue(hosts[0], hosts, now)) for hosts in hosts_of]
    if operator:
        made.append(_put(directory, operator, ca.issue(operator, [], now)))
    return made


def _open_ca(directory: Path, now: datetime) -> PrivateCa:
    certificate, key = directory / f"{CA_NAME}.pem", directory / f"{CA_NAME}.key"
    if not certificate.exists() and not key.exists():
        ca = PrivateCa.make("trioha private CA", now)
        _put(directory, CA_NAME, ca.pem)
        return ca
    try:
        return PrivateCa.load(Pem(certificate.read_bytes(), key.read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot use the CA {certificate} with its key {key}: {error}; put both back, or move "
            "both away and give every node a certificate of a new CA"
        ) from error


def _put(directory: Path, name: str, pem: Pem) -> Path:
    # The key first: a node waits until both have rested.
    _replace(directory / f"{name}.key", pem.key)
    _replace(directory / f"{name}.pem", pem.certificate)
    return directory / f"{name}.pem"


def _replace(path: Path, data: bytes) -> None:
    """Replace a file in one step; it is its owner's alone from the first moment."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
