"""`trioha security`: what a cluster is secured with."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from trioha.errors import ConfigError

SECRET_BYTES = 32
"""Bytes of a secret: a longer key makes an HMAC-SHA256 no stronger."""
FILE_NAME = "cluster.secret"


@click.group("security")
def command() -> None:
    """Make what nodes and operators prove themselves with (docs/security.md)."""


@command.command("init")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("trioha-security"),
    show_default=True,
    help="Where the files go.",
)
def init(directory: Path) -> None:
    """Make a cluster secret, and tell what to copy where. An existing one is never replaced.

    \b
    trioha security init
    trioha security init --dir /etc/trioha
    """
    path = make_secret(directory)
    click.echo(
        f"""made {path}, readable by you alone

1. Copy it to every broker and name server, readable by the node's user alone (mode 0600):
       scp {path} HOST:/etc/trioha/{FILE_NAME}
2. Name it in the configuration of each, and restart them, name servers last:
       clusterSecretFile=/etc/trioha/{FILE_NAME}
   Until all have it, those without cannot register or follow; docs/security.md has the order
   that keeps a running cluster serving.
3. Give it to whoever may fail over, resync, or change a group, in a file of their own:
       [contexts.NAME]                       in ~/.config/trioha/config.toml
       secret_file = "{FILE_NAME}"       beside it; or --secret-file {path}

It does not restrict clients and encrypts nothing: docs/security.md says what is protected."""
    )


def make_secret(directory: Path) -> Path:
    """Write a new secret into a new file of the directory; return its path.

    Errors: ConfigError if there is one already; OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / FILE_NAME
    try:
        # O_EXCL: the file is new, with its mode from the first moment, and no link is followed.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists; a secret in use is replaced in steps, which docs/security.md tells"
        ) from None
    with os.fdopen(handle, "w") as file:
        file.write(f"{secrets.token_urlsafe(SECRET_BYTES)}\n")
        file.flush()
        os.fsync(file.fileno())
    return path
