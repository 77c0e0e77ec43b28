"""White lists of addresses; the examples are those of RocketMQ's own tests and manual."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.security.addresses import address_of, parse_addresses


def admits(entry: str, address: str) -> bool:
    listed = parse_addresses(entry)
    return listed is not None and listed(ip_address(address))


@pytest.mark.parametrize(
    ("entry", "inside", "outside"),
    [
        ("*", "1.2.3.4 ::1", ""),
        ("*.*.*.*", "1.2.3.4", ""),
        ("127.0.0.1", "127.0.0.1", "127.0.0.2 ::1"),
        ("127.0.0.1,127.0.0.2,127.0.0.3", "127.0.0.1 127.0.0.3", "127.0.0.4"),
        ("127.0.0.{1,2,3}", "127.0.0.1 127.0.0.3", "127.0.0.4 127.0.1.1"),
        ("127.0.0.1-200", "127.0.0.1 127.0.0.200", "127.0.0.201 127.0.1.5"),
        ("127.0.0.*", "127.0.0.0 127.0.0.255", "127.0.1.0"),
        ("127.0.1-20.*", "127.0.1.9 127.0.20.0", "127.0.21.0 127.0.0.9"),
        ("127.*.*.*", "127.9.9.9", "128.0.0.0"),
        ("127.20-30.*.*", "127.20.0.1 127.30.255.255", "127.31.0.1"),
        ("10.10.103.*", "10.10.103.7", "10.10.104.7 10.10.10.3"),
        ("5::7:6:1-200:*", "5::7:6:1:1 5::7:6:200:ffff", "5::7:6:201:1 5::8:6:1:1"),
        ("fe80::20-ff", "fe80::20 fe80::ff", "fe80::1f fe80::1:20 10.0.0.32"),
        ("fe80::*", "fe80::1 fe80::ffff", "fe80::1:0"),
        ("1:2:3:4:5:6:7:{8,9}", "1:2:3:4:5:6:7:8 1:2:3:4:5:6:7:9", "1:2:3:4:5:6:7:a"),
        ("0:0:0:0:0:0:0:1", "::1", "::2"),
    ],
)
def test_an_entry_admits_what_it_names(entry: str, inside: str, outside: str) -> None:
    for address in inside.split():
        assert admits(entry, address), f"{entry} leaves {address} out"
    for address in outside.split():
        assert not admits(entry, address), f"{entry} admits {address}"


@pytest.mark.parametrize("entry", ["", "  "])
def test_an_empty_entry_admits_nobody(entry: str) -> None:
    assert parse_addresses(entry) is None


@pytest.mark.parametrize(
    "entry",
    [
        "127.0.0.1.5",
        "127.0.0",
        "here",
        "127.0.0.256",
        "127.0.0.5-1",
        "127.0.0.1-256",
        "127.0.*",
        "127.0.0.-5",
        "1-3.0.0.1",
        "127.{1,2}.0.1",
        "127.0.{1,2}",
        "127.0.0.{1,x}",
        "127.0.0.1,here",
        "1:2:3:4:5:6:7:8:*",
        "::1-5:6",
        "::*:1",
        "fe80:*",
        "fe80::1-g",
        "fe80::1_0-20",
    ],
)
def test_what_is_no_address_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_addresses(entry)


@given(st.text("0123456789abcf.:*-,{} ", max_size=20), st.ip_addresses())
def test_any_text_is_either_refused_or_a_list(entry: str, address: object) -> None:
    try:
        listed = parse_addresses(entry)
    except ValueError:
        return
    if listed is not None:
        assert listed(ip_address(str(address))) in (True, False)


@given(st.ip_addresses())
def test_an_address_admits_itself_and_its_network(address: object) -> None:
    text = str(address)
    assert admits(text, text)
    if ":" in text:
        # Not `exploded`: from Python 3.13 on it ends in ffff:0.0.0.0 for a mapped IPv4 address.
        groups = IPv6Address(text).packed.hex(":", 2).split(":")
        network = ":".join(groups[:-1]) + ":*"
    else:
        network = text.rpartition(".")[0] + ".*"
    assert admits(network, text)


def test_a_peer_is_known_by_its_address() -> None:
    assert address_of("10.0.0.1:5555") == ip_address("10.0.0.1")
    assert address_of("[fe80::1%eth0]:5555") == ip_address("fe80::1")
    assert address_of("[::ffff:10.0.0.1]:5555") == ip_address("10.0.0.1")
    assert address_of("memory:1") is None
