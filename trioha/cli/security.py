"""`trioha security`: what a cluster is secured with."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import click

from trioha.errors import ConfigError

SECRET_BYTES = 32
"""Bytes of a secret: a longer key makes an HMAC-SHA256 no stronger."""
FILE_NAME = "cluster.secret"
ACCOUNTS_NAME = "plain_acl.yml"
OPERATOR = "operator"
_KEY_BYTES = 24
_ACCOUNTS = """\
# Accounts of a cluster's clients: docs/security.md, "Access control". Read again when it changes.
accounts:
- accessKey: {operator}
  secretKey: {operator_key}
  admin: true
- accessKey: application
  secretKey: {application_key}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""


@click.group("security")
def command() -> None:
    """Make what nodes and operators prove themselves with (docs/security.md)."""


directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("trioha-security"),
    show_default=True,
    help="Where the files go.",
)


@command.command("init")
@click.argument("nodes", nargs=-1, metavar="[HOST[,HOST…]]…")
@directory_option
def init(directory: Path, nodes: tuple[str, ...]) -> None:
    """Make a cluster secret and first accounts, and tell what to copy where. Existing files are
    never replaced.

    With the hosts of the nodes it makes certificates for TLS too: a private CA, one certificate a
    node, and one for operators. Give every name and address by which a node is asked for, with
    commas between those of one node.

    \b
    trioha security init
    trioha security init --dir /etc/trioha
    trioha security init 10.0.0.1 10.0.0.2 10.0.0.3,broker-c.example
    """
    path = make_secret(directory)
    accounts = make_accounts(directory)
    click.echo(
        f"""made {path}, readable by you alone

1. Copy it to every broker and name server, readable by the node's user alone (mode 0600):
       scp {path} HOST:/etc/trioha/{FILE_NAME}
2. Name it in the configuration of each, and restart them, name servers last:
       clusterSecretFile=/etc/trioha/{FILE_NAME}
   Until all have it, those without cannot register or follow; docs/security.md has the order
   that keeps a running cluster serving.
3. Give it to each operator who may fail over, resync, or change a group, in a file of their own:
       [contexts.NAME]                       in ~/.config/trioha/config.toml
       secret_file = "{FILE_NAME}"       beside it; or --secret-file {path}

With it, nodes and operators prove who they are. It does not restrict clients: a broker that
other machines reach needs accounts as well, or anonymousClients=true. They are made in
    {accounts}
1. Copy it to each broker and name server, beside the secret, and name it in their configuration:
       aclEnable=true
       aclFile=/etc/trioha/{ACCOUNTS_NAME}
2. The account {OPERATOR} may do everything: put its keys into the contexts of operators.
       trioha context add NAME -n HOST:PORT --access-key {OPERATOR}
   The account application may send and receive: give its keys to your programs, or make
   one account for each of them.

docs/security.md says what is protected."""
    )
    if nodes:
        _issue(directory, nodes, OPERATOR)
    else:
        click.echo("It encrypts nothing: `trioha security issue HOST…` makes certificates of TLS.")


@command.command("issue")
@click.argument("nodes", nargs=-1, required=True, metavar="HOST[,HOST…]…")
@directory_option
@click.option("--operator", metavar="NAME", help="Make one for this operator as well.")
def issue(directory: Path, nodes: tuple[str, ...], operator: str | None) -> None:
    """Make certificates of TLS for nodes, signed by the private CA; a new CA if there is none.

    A certificate that is there already is replaced by one with a new key. Copy both files to the
    node: it reads them without a restart.

    \b
    trioha security issue 10.0.0.1 10.0.0.4,broker-d.example
    trioha security issue --operator anna 10.0.0.1
    """
    _issue(directory, nodes, operator)


def _issue(directory: Path, nodes: tuple[str, ...], operator: str | None) -> None:
    from trioha.config.certificate_files import issue_files

    made = issue_files(directory, nodes, operator, datetime.now(UTC))
    own = next(iter(made))
    click.echo("made, each with its private key, readable by you alone:")
    for path in made:
        click.echo(f"    {path}")
    click.echo(
        f"""
1. Copy to each node its certificate, its key and the CA's certificate, for the node's user alone:
       scp {own} {own.with_suffix(".key")} {directory}/ca.pem HOST:/etc/trioha/
2. Name them in the configuration of brokers and name servers, and restart them:
       tls.server.certPath=/etc/trioha/{own.name}
       tls.server.keyPath=/etc/trioha/{own.with_suffix(".key").name}
       tls.server.trustCertPath=/etc/trioha/ca.pem
   Now their ports accept both TLS and plain connections. Then, once all have them:
       tls.enable=true                       nodes connect to each other over TLS
       tls.server.mode=enforcing             nobody connects without TLS any more
       tls.server.need.client.auth=require   nor without a certificate of this CA
3. Give operators and clients the CA's certificate, and a certificate if nodes require one:
       trioha context add NAME -n HOST:PORT --tls-ca ca.pem --tls-cert FILE --tls-key FILE
4. Keep {directory}/ca.key away from all nodes: with it a process can pass for any of them.

docs/security.md has the order for a running cluster, and how a certificate is replaced."""
    )


def make_secret(directory: Path) -> Path:
    """Write a new secret into a new file of the directory; return its path.

    Errors: ConfigError if there is one already; OSError.
    """
    return _make_file(
        directory / FILE_NAME,
        f"{secrets.token_urlsafe(SECRET_BYTES)}\n",
        "a secret in use is replaced in steps, which docs/security.md tells",
    )


def make_accounts(directory: Path) -> Path:
    """Write an operator's and an application's account into a new file; return its path.

    Errors: ConfigError if there is one already; OSError.
    """
    text = _ACCOUNTS.format(
        operator=OPERATOR,
        operator_key=secrets.token_hex(_KEY_BYTES),
        application_key=secrets.token_hex(_KEY_BYTES),
    )
    return _make_file(directory / ACCOUNTS_NAME, text, "add accounts to it, or move it away")


def _make_file(path: Path, text: str, cure: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # O_EXCL: the file is new, with its mode from the first moment, and no link is followed.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; {cure}") from None
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return path
