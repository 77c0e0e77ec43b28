"""Signatures: golden ones of stock clients, and what a signature covers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.security.signature import Credentials
from trioha.security.signing_key import (
    _NAMES_CHARS_MAX,
    _NAMES_MAX,
    ACCESS_KEY,
    SIGNATURE,
    SigningKey,
    _values_of,
    read_signed_send,
    signed_text,
)
from trioha.wire.codes import RequestCode, SerializeType
from trioha.wire.packed_fields import pack_fields
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
values = st.text(max_size=40).filter(lambda text: text.isprintable())
tables = st.dictionaries(names, values, max_size=8)


def java_signature(fields: dict[str, str], body: bytes, secret: str) -> str:
    """AclUtils.combineRequestContent and AclSigner, as written in Java's documentation."""
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


@given(tables, st.binary(max_size=200), st.text("abc", min_size=7, max_size=200))
def test_a_signature_is_over_the_values_by_name_and_the_body(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    table: dict[str, ExtValue] = {**fields}
    request = RemotingCommand(RequestCode.SEND_MESSAGE, table, body)
    Credentials("account", secret).sign(request)
    expected = {name: value for name, value in fields.items() if name != SIGNATURE}
    expected[ACCESS_KEY] = "account"
    assert request.ext_fields[SIGNATURE] == java_signature(expected, body, secret)


@given(tables, st.binary(max_size=9000), st.sampled_from(SerializeType), st.integers(0, 3))
def test_a_signature_survives_the_wire_in_both_header_forms(
    fields: dict[str, str], body: bytes, form: SerializeType, cuts: int
) -> None:
    parts = (
        [body[i * len(body) // 4 : (i + 1) * len(body) // 4] for i in range(4)] if cuts else body
    )
    request = RemotingCommand(10, {**fields}, parts, serialize_type=form)
    credentials = Credentials("account", "secret-7")
    credentials.sign(request)
    arrived = decode_frame(encode(request))
    assert SigningKey("secret-7").has_signed(arrived)
    assert not SigningKey("secret-8").has_signed(arrived)


@given(tables.filter(bool), st.data())
def test_a_changed_value_breaks_the_signature(fields: dict[str, str], data: st.DataObject) -> None:
    request = RemotingCommand(10, {**fields}, b"body")
    Credentials("account", "secret-7").sign(request)
    name = data.draw(
        st.sampled_from(sorted(fields.keys() - {SIGNATURE, ACCESS_KEY}) or [ACCESS_KEY])
    )
    request.ext_fields[name] = request.ext_str(name) + "x"
    assert not SigningKey("secret-7").has_signed(request)


GOLDEN = json.loads((Path(__file__).parent / "testdata" / "signed_requests.json").read_text())


@pytest.mark.parametrize(
    "golden", GOLDEN["requests"], ids=lambda one: f"{one['client']}-{one['code']}"
)
def test_signatures_of_stock_clients(golden: dict[str, Any]) -> None:
    """Requests as they came from the C++ (0.4.4), Node.js and Java (4.9.8) clients."""
    body = bytes.fromhex(golden["body"])
    for form in SerializeType:
        request = RemotingCommand(golden["code"], dict(golden["fields"]), body)
        request.serialize_type = form
        arrived = decode_frame(encode(request))
        assert SigningKey(GOLDEN["secret"]).has_signed(arrived)
        assert not SigningKey(GOLDEN["secret"] + "x").has_signed(arrived)


def test_numbers_and_booleans_of_a_json_header_count_as_text() -> None:
    fields: dict[str, ExtValue] = {"b": "topic", "e": 3, "k": False, "z": None, "m": True}
    assert signed_text(fields) == "topic3falsetrue"


def test_the_mark_of_a_query_by_unique_key_is_not_signed() -> None:
    """Java's client adds it after the signature."""
    request = RemotingCommand(RequestCode.QUERY_MESSAGE, {"key": "k", "topic": "t"})
    Credentials("account", "secret-7").sign(request)
    request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert SigningKey("secret-7").has_signed(request)


@pytest.mark.parametrize("signature", [None, "", 7, True, "é", "x" * 28])
def test_what_is_no_signature_is_none(signature: ExtValue) -> None:
    request = RemotingCommand(10, {"a": "b", SIGNATURE: signature})
    assert not SigningKey("secret-7").has_signed(request)


def test_names_that_strangers_make_up_are_not_kept() -> None:
    """Names are sorted before the signature is compared: a stranger's would fill the memory."""
    usual = tuple(f"name-{number}" for number in range(_NAMES_MAX))
    many, long = (*usual, "one-more"), ("n" * (_NAMES_CHARS_MAX + 1),)
    for names in (usual, many, long):
        assert signed_text(dict.fromkeys(reversed(names), "v")) == "v" * len(names)
    kept = {frozenset(names) for names in _values_of}
    assert frozenset(usual) in kept
    assert not kept & {frozenset(many), frozenset(long)}


def test_credentials_do_not_show_their_secret() -> None:
    assert "secret-7" not in repr(Credentials("account", "secret-7"))


short_tables = st.dictionaries(st.sampled_from("abcdefz"), st.sampled_from(["T", "1", "", "ü"]))
accounts = st.permutations([ACCESS_KEY, SIGNATURE, "Zz"]).flatmap(
    lambda all_names: st.integers(0, 3).map(lambda count: all_names[:count])
)


@given(short_tables, short_tables, accounts, st.sampled_from(["none", "same", "other"]))
def test_a_signed_send_reads_as_it_lies_like_its_fields(
    table: dict[str, str], other: dict[str, str], ends: list[str], copy: str
) -> None:
    names = dict(sorted(table.items())) if copy != "other" else table
    copies = {"none": b"", "same": pack_fields(names), "other": pack_fields(other)}
    data = pack_fields(names) + copies[copy] + pack_fields(dict.fromkeys(ends, "text"))
    assert_reads_like_fields(data)


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_bytes_that_are_no_signed_send_are_left_to_the_other_way(
    tail: bytes, at: int, value: int
) -> None:
    data = bytearray(java_send() + tail)
    data[at % len(data)] = value
    assert_reads_like_fields(bytes(data))


def test_a_send_as_java_signs_it_takes_the_short_way() -> None:
    assert read_signed_send(java_send()) == ("account", "T", b"accountgT3", b"c2lnbmVk")
    table = pack_fields({"a": "g", "b": "T", "e": "3"})
    ends = pack_fields({ACCESS_KEY: "account", SIGNATURE: "c2lnbmVk"})
    assert read_signed_send(table + ends) == ("account", "T", b"accountgT3", b"c2lnbmVk")


def java_send() -> bytes:
    table = pack_fields({"a": "g", "b": "T", "e": "3"})
    return table + table + pack_fields({SIGNATURE: "c2lnbmVk", ACCESS_KEY: "account"})


def assert_reads_like_fields(data: bytes) -> None:
    """The short way returns the texts that `ext_fields` has, or None."""
    signed = read_signed_send(data)
    if signed is None:
        return
    fields = RemotingCommand(310, serialize_type=1, encoded_fields=data).ext_fields
    access_key, topic, text, signature = signed
    assert (access_key, topic) == (fields[ACCESS_KEY], fields["b"])
    assert text == signed_text(fields).encode()
    assert signature.decode("latin-1") == fields[SIGNATURE]
