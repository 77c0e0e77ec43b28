"""Addresses as people and nodes write them."""

from __future__ import annotations

import pytest

from trioha.errors import TriohaError
from trioha.wire.address import parse_address, split_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("h:1", ("h", 1)), ("[::1]:9876", ("::1", 9876)), (" a.b:0 ", ("a.b", 0))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == parse_address(text) == address


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:x", "h:65536", "h:-1", "h:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        split_address(text)
    with pytest.raises(TriohaError, match="is not an address; write HOST:PORT"):
        parse_address(text)
