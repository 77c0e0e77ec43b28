"""White lists of addresses as RocketMQ writes them (RemoteAddressStrategyFactory of 4.9).

=========================  ====================================================
``*``                      every address; also ``*.*.*.*``
``192.168.0.7``            one address; IPv6 in any spelling
``192.168.0.7,192.168.1.9``  each of them
``192.168.0.{7,9}``        alternatives of the last group
``192.168.0.*``            every address that begins so
``192.168.1-3.*``          a range in one group; the groups behind it do not count
``fe80::20-ff:*``          IPv6: a range, ``*``, or a range and ``*``, at the end
=========================  ====================================================

An empty entry admits nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address
Admits = Callable[[Address], bool]
"""Returns whether a white list names this address."""

_EVERY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")


def parse_addresses(text: str) -> Admits | None:
    """Read one entry of a white list; None when it is empty. Errors: ValueError."""
    text = text.strip()
    if not text:
        return None
    if text in _EVERY:
        return lambda address: True
    if text.endswith("}"):
        return _one_of(_alternatives(text))
    if "," in text:
        return _one_of([part for part in text.split(",") if part])
    if "*" in text or "-" in text:
        return _range_v6(text) if ":" in text else _range_v4(text)
    return _one_of([text])


def address_of(peer: str) -> Address | None:
    """Return the address of ``host:port`` or ``[v6]:port``; None when the host is none."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _one_of(texts: list[str]) -> Admits:
    addresses = frozenset(map(_address, texts))
    return lambda address: address in addresses


def _alternatives(text: str) -> list[str]:
    head, brace, last = text[:-1].partition("{")
    separator = ":" if ":" in text else "."
    if not brace or not head.endswith(separator) or (separator == "." and head.count(".") != 3):
        raise ValueError(f"{text!r}: braces may stand for the last group of an address only")
    return [head + one.strip() for one in last.split(",") if one.strip()]


def _range_v4(text: str) -> Admits:
    groups = [group.strip() for group in text.split(".")]
    if len(groups) != 4:
        raise ValueError(f"{text!r} does not have four groups")
    for index in (1, 2, 3):
        low_high = _range(groups[index], 10, 255)
        if low_high is not None:
            head = [_number(group, 10, 255) for group in groups[:index]]
            return _admits_v4(bytes(head), *low_high)
    raise ValueError(f"{text!r}: the first group must be a number; write * for every address")


def _admits_v4(head: bytes, low: int, high: int) -> Admits:
    def admits(address: Address) -> bool:
        if not isinstance(address, IPv4Address):
            return False
        packed = address.packed
        return packed.startswith(head) and low <= packed[len(head)] <= high

    return admits


def _range_v6(text: str) -> Admits:
    head = text
    low, high = 0, 0xFFFF
    behind = 0
    """Groups at the end that may hold anything."""
    if head.endswith("*"):
        head, behind = head[:-1].removesuffix(":"), 1
        if head.endswith(":"):
            head += ":"
    before, colon, last = head.rpartition(":")
    if colon and "-" in last:
        low_high = _range(last, 16, 0xFFFF)
        assert low_high is not None, f"{last!r} holds a minus"
        low, high = low_high
        head = before + ":" if before.endswith(":") else before
    elif behind:
        behind = 0  # the star is the range
    if "*" in head or "-" in head:
        raise ValueError(f"{text!r}: a range and * may stand at the end of an IPv6 address only")
    count = 7 - behind
    groups = _groups_v6(head, count, text)

    def admits(address: Address) -> bool:
        if not isinstance(address, IPv6Address):
            return False
        packed = address.packed
        value = int.from_bytes(packed[2 * count : 2 * count + 2], "big")
        return packed.startswith(groups) and low <= value <= high

    return admits


def _groups_v6(head: str, count: int, text: str) -> bytes:
    """Return the first `count` groups, with ``::`` filled up."""
    left, gap, right = head.partition("::")
    before = [group for group in left.split(":") if group]
    after = [group for group in right.split(":") if group]
    missing = count - len(before) - len(after)
    if missing < 0 or (not gap and missing) or "::" in right:
        raise ValueError(f"{text!r} does not have {count} groups before its range")
    groups = [*before, *["0"] * missing, *after]
    return b"".join(_number(group, 16, 0xFFFF).to_bytes(2, "big") for group in groups)


def _range(group: str, base: int, most: int) -> tuple[int, int] | None:
    """Return the bounds of ``*`` or ``3-7``; None for anything else."""
    if group == "*":
        return 0, most
    low, minus, high = group.partition("-")
    if not minus:
        return None
    bounds = _number(low, base, most), _number(high, base, most)
    if bounds[0] > bounds[1]:
        raise ValueError(f"{group!r} ends before it begins")
    return bounds


def _number(text: str, base: int, most: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if not 0 <= number <= most or not text.strip().isalnum():
        raise ValueError(f"{text!r} is no group of an address")
    return number


def _address(text: str) -> Address:
    try:
        return ip_address(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no address; a network is written like 10.1.0.*") from None
