"""The signature of RocketMQ's clients (AclUtils.combineRequestContent, AclSigner of 4.9).

``Signature = Base64(HMAC-SHA1(secret, values || body))``, where the values are those of all ext
fields except the signature itself, as text, in the order of the fields' names.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from hmac import compare_digest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from trioha.wire.packed_fields import ext_text
from trioha.wire.remoting_command import Buffer, ExtValue, RemotingCommand

if TYPE_CHECKING:
    from mypy_extensions import i64

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
_BLOCK_BYTES: Final = 64
_PACKED_ACCESS_KEY: Final = b"\0\x09AccessKey"
_PACKED_SIGNATURE: Final = b"\0\x09Signature"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Java's clients add it after they have signed (MixAll.UNIQUE_MSG_QUERY_FLAG)."""


def signed_text(fields: dict[str, ExtValue]) -> str:
    """Return the values that a signature covers, joined. HOT.

    Java's order is that of UTF-16 code units; names of fields are ASCII, where it is Python's. A
    field without a value counts as empty: that is what its sender signed.
    """
    names = tuple(fields)
    values_of = _values_of.get(names)
    if values_of is None:
        values_of = _remember(names)
    try:
        return "".join(values_of(fields))
    except TypeError:  # not all of them are texts
        values = [fields[name] for name in _signed_names(names)]
        return "".join(ext_text(value) for value in values if value is not None)


def _signed_names(names: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if name not in (SIGNATURE, _UNIQUE_KEY_QUERY))


# A client sends the same few sets of names again and again: they are sorted once.
_values_of: Final[dict[tuple[str, ...], Callable[[dict[str, ExtValue]], Iterable[Any]]]] = {}
_VALUES_OF_MAX: Final = 1_000
_NAMES_MAX: Final = 64
_NAMES_CHARS_MAX: Final = 2_048
"""A longer set of names is sorted each time: its sender may be a stranger."""


def _remember(names: tuple[str, ...]) -> Callable[[dict[str, ExtValue]], Iterable[Any]]:
    """Return what picks the signed values of a request with these fields, in order."""
    signed = _signed_names(names)
    # One name alone would give its text, which joins to itself.
    values_of = itemgetter(*signed) if signed else lambda fields: ()
    if len(names) <= _NAMES_MAX and sum(map(len, names)) <= _NAMES_CHARS_MAX:
        if len(_values_of) >= _VALUES_OF_MAX:
            _values_of.clear()
        _values_of[names] = values_of
    return values_of


def read_signed_send(data: bytes) -> tuple[str, str, bytes, bytes] | None:
    """Read a packed send header as it lies: access key, topic, signed values, signature. HOT.

    None for any other shape than Java's: names of one letter in rising order, as a rule the same
    table once more, then account and signature. Texts are ASCII and shorter than 64 KiB.
    """
    # Sizes from 128 on are no ASCII either: then each text is looked at.
    is_ascii = data.isascii()
    values: list[bytes] = []
    topic = access_key = signature = b""
    last: i64 = 96
    position: i64 = 0
    end: i64 = len(data)
    while end - position >= 7 and data[position] == 0 and data[position + 1] == 1:
        letter: i64 = data[position + 2]
        if letter <= last:
            break
        last = letter
        if letter > 122 or data[position + 3] != 0 or data[position + 4] != 0:
            return None
        begin: i64 = position + 7
        position = begin + (data[position + 5] << 8 | data[position + 6])
        if position > end:
            return None
        value = data[begin:position]
        if not is_ascii and not value.isascii():
            return None
        values.append(value)
        if letter == 98:  # b
            topic = value
    if data[position : position * 2] == data[:position]:
        position *= 2
    for _ in range(2):
        # Both names have nine letters.
        begin = position + 15
        if begin > end or data[begin - 4] != 0 or data[begin - 3] != 0:
            return None
        name = data[position : begin - 4]
        position = begin + (data[begin - 2] << 8 | data[begin - 1])
        if position > end:
            return None
        if name == _PACKED_ACCESS_KEY:
            access_key = data[begin:position]
        elif name == _PACKED_SIGNATURE:
            signature = data[begin:position]
        else:
            return None
    if position != end or not (topic and access_key and signature):
        return None
    if not is_ascii and not (access_key.isascii() and signature.isascii()):
        return None
    # Capitals come first: the access key is what is signed before all values.
    return access_key.decode(), topic.decode(), access_key + b"".join(values), signature


class SigningKey:
    """A secret, ready to sign: the two keyed blocks of the HMAC (RFC 2104) are hashed once.

    Copies of these cost half of what a copy of `hmac.HMAC` does, and a third of `hmac.digest`.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        if len(key) > _BLOCK_BYTES:
            key = sha1(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha1(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha1(bytes(byte ^ 0x5C for byte in block))

    def signature_of(self, request: RemotingCommand) -> str:
        """Return the signature of a request as it is. HOT."""
        values = signed_text(request.ext_fields).encode("utf-8", "replace")
        return self._signature(values, request.body).decode()

    def _signature(self, values: bytes, body: Buffer | Sequence[Buffer]) -> bytes:
        """The body is hashed where it lies: a large one is not copied."""
        inner = self._inner.copy()
        inner.update(values)
        if isinstance(body, (bytes, bytearray, memoryview)):
            inner.update(body)
        else:
            for part in body:
                inner.update(part)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)

    def signature_over(self, content: bytes) -> bytes:
        """Return the signature over values and body that were put together by the caller."""
        return self._signature(content, b"")

    def has_signed_values(
        self, values: bytes, body: Buffer | Sequence[Buffer], signature: bytes
    ) -> bool:
        """Return whether this is the key's signature over these values and the body. HOT."""
        return compare_digest(self._signature(values, body), signature)

    def has_signed(self, request: RemotingCommand) -> bool:
        """Tell whether the request carries this key's signature. Takes the same time either way."""
        signature = request.ext_fields.get(SIGNATURE)
        if not isinstance(signature, str) or not signature.isascii():
            return False
        return compare_digest(self.signature_of(request), signature)
