"""Certificates, keys and CAs in files, as contexts of TLS; read again when the files change.

A changed file counts once all files of its context have rested from one look to the next: a
certificate and its key are two files, and the first of them to be replaced does not fit the other.
Files that are broken change nothing: the context read last goes on counting.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import attrs

from trioha.config.tls import TlsSettings
from trioha.errors import ConfigError

TLS_VARIABLES: Mapping[str, str] = {
    "tls": "TRIOHA_TLS_ENABLE",
    "tls_ca": "TRIOHA_TLS_CLIENT_TRUST_CERT_PATH",
    "tls_cert": "TRIOHA_TLS_CLIENT_CERT_PATH",
    "tls_key": "TRIOHA_TLS_CLIENT_KEY_PATH",
}
"""Keys of a context, and the variables that say the same to a client; nodes take the same ones."""
_PASSWORD_VARIABLE = "TRIOHA_TLS_CLIENT_KEY_PASSWORD"
_CHECK_HOST_VARIABLE = "TRIOHA_TLS_CLIENT_CHECK_HOST"
_AUTH_SERVER_VARIABLE = "TRIOHA_TLS_CLIENT_AUTH_SERVER"


@attrs.frozen(kw_only=True)
class TlsFiles:
    """The files of one end of TLS; "" for none."""

    cert: str = ""
    key: str = ""
    password: str = attrs.field(default="", repr=False)
    trust: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cert, self.key, self.trust)))


@attrs.frozen(kw_only=True)
class ClientTls(TlsFiles):
    """TLS of connections to nodes: the files, and the checks of the other end."""

    check_peer: bool = True
    check_host: bool = True


class FileContext:
    """A context of files that may change."""

    def __init__(self, files: TlsFiles, make: Callable[[], ssl.SSLContext]) -> None:
        """Read the files. Errors: ConfigError with the file, what is wrong, and the cure."""
        self.files = files
        self._make = make
        self._used = self._seen = self._stamps()
        self._context = make()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        return self._context

    def look(self) -> bool:
        """Read the files again if they have changed and come to rest; return whether they have.

        Errors: ConfigError, once for each change; the old context goes on counting.
        """
        before, self._seen = self._seen, self._stamps()
        if self._seen in (self._used, None) or self._seen != before:
            return False
        self._used = self._seen
        self._context = self._make()
        return True

    def fresh(self) -> ssl.SSLContext:
        """Return the context of the files as they are now; as they were while they are broken.

        For clients, which have no task that looks at files.
        """
        stamps = self._stamps()
        if stamps not in (self._used, None):
            with suppress(ConfigError):
                self._context = self._make()
                self._used = stamps
        return self._context

    def _stamps(self) -> tuple[tuple[int, int, int], ...] | None:
        """Return when each file has changed; None while one is missing."""
        try:
            found = [os.stat(path) for path in self.files.paths]
        except OSError:
            return None
        return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


def server_context(config: TlsSettings, *, client_auth: bool = True) -> FileContext:
    """Return the context of a node's ports. Errors: ConfigError."""
    files = TlsFiles(
        cert=config.tls_server_cert_path,
        key=config.tls_server_key_path,
        password=config.tls_server_key_password,
        trust=config.tls_server_trust_cert_path,
    )
    need = config.tls_server_need_client_auth if client_auth else "none"

    def make() -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_SERVER, files)
        if need != "none":
            context.verify_mode = ssl.CERT_REQUIRED if need == "require" else ssl.CERT_OPTIONAL
        # A peer that only sends, and closes, would leave a ticket unread: its end would be a reset.
        # And without tickets a certificate that is not trusted any more opens no new connection.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        return context

    return FileContext(files, make)


def client_context(tls: ClientTls) -> FileContext:
    """Return the context of connections to others. Errors: ConfigError."""

    def make() -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_CLIENT, tls)
        context.check_hostname = tls.check_host and tls.check_peer
        if not tls.check_peer:
            context.verify_mode = ssl.CERT_NONE
        elif not tls.trust:
            context.load_default_certs()
        return context

    return FileContext(tls, make)


def node_client_tls(config: TlsSettings) -> ClientTls:
    """Return how a node connects to others: with its own certificate as a rule."""
    own = not config.tls_client_cert_path
    return ClientTls(
        cert=config.tls_server_cert_path if own else config.tls_client_cert_path,
        key=config.tls_server_key_path if own else config.tls_client_key_path,
        password=config.tls_server_key_password if own else config.tls_client_key_password,
        trust=config.tls_client_trust_cert_path or config.tls_server_trust_cert_path,
        check_peer=config.tls_client_auth_server,
        check_host=config.tls_client_check_host,
    )


def tls_of_environment(
    environment: Mapping[str, str] | None = None, default: ClientTls | None = None
) -> ClientTls | None:
    """Return how clients and tools connect over TLS; None if they do not.

    `default` counts where the environment says nothing. Errors: ConfigError.
    """
    variables = os.environ if environment is None else environment
    if not variables.get(TLS_VARIABLES["tls"], "").strip():
        password = variables.get(_PASSWORD_VARIABLE, "")
        return default and attrs.evolve(default, password=password)

    def flag(name: str) -> bool:
        text = variables.get(name, "").strip().lower()
        if text not in ("", "true", "false"):
            raise ConfigError(f'{name} must be true or false, not "{variables[name]}"')
        return text != "false"

    def path(key: str) -> str:
        text = variables.get(TLS_VARIABLES[key], "")
        return str(Path(text).expanduser()) if text else ""

    if not flag(TLS_VARIABLES["tls"]):
        return None
    return ClientTls(
        cert=path("tls_cert"),
        key=path("tls_key"),
        password=variables.get(_PASSWORD_VARIABLE, ""),
        trust=path("tls_ca"),
        check_peer=flag(_AUTH_SERVER_VARIABLE),
        check_host=flag(_CHECK_HOST_VARIABLE),
    )


def certificate_end(path: str) -> datetime:
    """Return when the first certificate of a file expires. Errors: ConfigError."""
    # A tenth of a second, and only nodes with TLS need it.
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in files.paths:
        _check_readable(path)
    if files.trust:
        try:
            context.load_verify_locations(files.trust)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{files.trust} holds no CA certificate in PEM ({_openssl(error)})"
            ) from error
    if files.cert:
        try:
            # Always with a password: without one OpenSSL asks the terminal.
            context.load_cert_chain(files.cert, files.key or None, lambda: files.password)
        except ssl.SSLError as error:
            raise ConfigError(_chain_problem(files, error)) from error
        except ValueError as error:
            raise ConfigError(f"{files.key}: {error}") from error
    return context


def _check_readable(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; `trioha security init` makes certificates "
            "and keys, and docs/security.md tells which goes where"
        ) from error


def _chain_problem(files: TlsFiles, error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{files.key} is not the key of the certificate {files.cert}"
    if "ENCRYPTED" in _text(files.key) and reason not in ("UNSUPPORTED", "UNSUPPORTED_ALGORITHM"):
        fault = "is wrong" if files.password else "is missing"
        return (
            f"{files.key} is protected by a password, which {fault}; set tls.server.keyPassword or "
            "tls.client.keyPassword (TRIOHA_TLS_CLIENT_KEY_PASSWORD)"
        )
    if "PRIVATE KEY" not in _text(files.key):
        return f"{files.key} holds no private key in PEM"
    if reason in ("UNSUPPORTED", "UNSUPPORTED_ALGORITHM"):
        return (
            f"{files.key} is encrypted by a cipher that OpenSSL 3 does not know any more; encrypt "
            "it anew: openssl pkcs8 -topk8 -v2 aes256 -provider legacy -provider default"
        )
    return f"{files.cert} holds no usable certificate in PEM ({_openssl(error)})"


def _text(path: str) -> str:
    return Path(path).read_text("latin-1") if path else ""


def _openssl(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
