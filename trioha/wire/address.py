"""Addresses as people and nodes write them: ``host:port`` and ``[v6]:port``."""

from __future__ import annotations

from trioha.errors import TriohaError


def parse_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` taken apart. Errors: TriohaError."""
    host, colon, port = address.strip().rpartition(":")
    if colon and host and port.isdecimal() and int(port) < 65536:
        return host.strip("[]"), int(port)
    raise TriohaError(f"{address!r} is not an address; write HOST:PORT")


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
