"""Addresses as people and nodes write them: ``host:port`` and ``[v6]:port``."""

from __future__ import annotations

from trioha.errors import TriohaError


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[v6]:port``. Errors: ValueError."""
    host, colon, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise ValueError(f'"{text}" is not HOST:PORT')
    return host, int(port)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address that a person typed. Errors: TriohaError."""
    try:
        return split_address(address)
    except ValueError:
        raise TriohaError(f"{address!r} is not an address; write HOST:PORT") from None


def format_address(host: object, port: object) -> str:
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def parse_namesrvs(text: str) -> tuple[str, ...]:
    """``HOST:PORT;HOST:PORT`` taken apart; a comma does as well. Errors: TriohaError."""
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    if not addresses:
        raise TriohaError("no name server given; write HOST:PORT;HOST:PORT")
    for address in addresses:
        parse_address(address)
    return addresses
