"""JSON as Java peers write and expect it (fastjson 1.2).

Reading: strict JSON goes through msgspec. What that refuses is read by a parser of our own that
takes what fastjson emits or tolerates: integers, words and even objects as keys, single quotes,
raw control characters, superfluous commas. Keys come out as text however they were quoted; an
object with object keys comes out as an `ObjectKeyMap`.

Writing: compact and strict, except where a value asks for fastjson's own forms, `IntKeys`
(``{0:5}``) and `ObjectKeyMap` (``{{"brokerName":"b"}:{…}}``), which nest anywhere.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping

import msgspec

from trioha.errors import RemoteProtocolError
from trioha.wire.remoting_command import Buffer

REQUEST_DIALECT_BYTES = 65_536
"""Limit of what is not strict JSON in a request. Clients of every language send strict JSON."""
DEPTH_MAX = 64
"""Levels of nesting: RocketMQ's deepest body has six."""
_DIGITS_MAX = 400
"""Digits of a number; what msgspec accepts as well."""

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_SPACE_OR_COMMA = re.compile(r"[ \t\r\n\f\b,]*")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
# A number too long for the parser below must reach it, so as to be refused.
_BARE_KEY = re.compile(rb"([{,]\s*)(-?\d+):(?!-?\d{%d})" % (_DIGITS_MAX + 1))
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")
_PLAIN_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}


class IntKeys(Mapping[int, object]):
    """A mapping that is written with bare integer keys: ``{0:5,1:7}``."""

    __slots__ = ("_mapping",)

    def __init__(self, mapping: Mapping[int, object]) -> None:
        self._mapping = mapping

    def __getitem__(self, key: int) -> object:
        return self._mapping[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)

    def __repr__(self) -> str:
        return f"IntKeys({self._mapping!r})"


class ObjectKeyMap:
    """Ordered pairs whose keys are objects: ``{{"queueId":0}:{"offset":9}}``."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object]] = ()) -> None:
        self._pairs = list(pairs)

    def items(self) -> list[tuple[object, object]]:
        return self._pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[object, object]]:
        return iter(self._pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKeyMap) and self._pairs == other._pairs

    def __repr__(self) -> str:
        return f"ObjectKeyMap({self._pairs!r})"

    __hash__ = None  # type: ignore[assignment]


def loads(data: Buffer | str, *, dialect_bytes_max: int | None = None) -> object:
    """The value that `data` holds.

    Text of more than `dialect_bytes_max` must be strict JSON, but for bare integer keys: the parser
    of the dialect takes a microsecond for a byte.

    Errors: RemoteProtocolError when neither strict JSON nor fastjson's dialect fits.
    """
    try:
        value: object = _decode_strict(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    else:
        return value
    if not isinstance(data, str):
        # Bare integer keys are the usual reason, and quoting them is thrice as fast as parsing.
        # Inside a string the quotes would end it before a digit, which no JSON allows: it fails.
        try:
            value = _decode_strict(_BARE_KEY.sub(rb'\1"\2":', data))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            return value
    if dialect_bytes_max is not None and len(data) > dialect_bytes_max:
        raise RemoteProtocolError(
            f"{len(data)} bytes are no strict JSON, and only {dialect_bytes_max} may be another"
        )
    return _Parser(_text_of(data)).document()


def dumps(value: object) -> bytes:
    """The value as compact JSON.

    Errors: TypeError for what JSON cannot hold, UnicodeEncodeError for lone surrogates.
    """
    return _encoder.encode(value)


def _write_special(value: object) -> msgspec.Raw:
    pairs: Iterable[tuple[object, object]] | ItemsView[int, object]
    if isinstance(value, (IntKeys, ObjectKeyMap)):
        pairs = value.items()
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    encode = _encoder.encode
    return msgspec.Raw(b"{%b}" % b",".join([encode(k) + b":" + encode(v) for k, v in pairs]))


_encoder = msgspec.json.Encoder(enc_hook=_write_special)
_decode_strict = msgspec.json.Decoder().decode


def _text_of(data: Buffer | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8: {error}") from None


class _Parser:
    """Recursive descent over one text; `at` is the next character to read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def document(self) -> object:
        value = self._value()
        self._skip(_SPACE)
        if self._at != len(self._text):
            raise self._error("text behind the value")
        return value

    def _value(self) -> object:
        self._skip(_SPACE)
        start = self._text[self._at : self._at + 1]
        if start in ("{", "["):
            if self._depth >= DEPTH_MAX:
                raise self._error(f"nested deeper than {DEPTH_MAX}")
            self._depth += 1
            value = self._object() if start == "{" else self._array()
            self._depth -= 1
            return value
        if start in ('"', "'"):
            return self._string()
        if match := _NUMBER.match(self._text, self._at):
            self._at = match.end()
            return self._number(match)
        if match := _WORD.match(self._text, self._at):
            word = match.group()
            if word in _WORDS:
                self._at = match.end()
                return _WORDS[word]
        raise self._error("no value")

    def _object(self) -> dict[str, object] | ObjectKeyMap:
        self._at += 1
        pairs: list[tuple[object, object]] = []
        has_object_keys = False
        while not self._closes("}"):
            key = self._key()
            has_object_keys = has_object_keys or not isinstance(key, str)
            self._skip(_SPACE)
            if not self._text.startswith(":", self._at):
                raise self._error("no colon")
            self._at += 1
            pairs.append((key, self._value()))
        if has_object_keys:
            return ObjectKeyMap(pairs)
        return {str(key): value for key, value in pairs}

    def _array(self) -> list[object]:
        self._at += 1
        values = []
        while not self._closes("]"):
            values.append(self._value())
        return values

    def _closes(self, bracket: str) -> bool:
        """Step over commas; True, and behind the bracket, when the container ends here."""
        self._skip(_SPACE_OR_COMMA)
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        return False

    def _key(self) -> object:
        start = self._text[self._at : self._at + 1]
        if start in ("{", "[", '"', "'"):
            return self._value()
        if match := _NUMBER.match(self._text, self._at) or _WORD.match(self._text, self._at):
            self._at = match.end()
            return match.group()
        raise self._error("no key")

    def _string(self) -> str:
        quoted = _STRING if self._text[self._at] == '"' else _SINGLE_QUOTED
        match = quoted.match(self._text, self._at)
        if match is None:
            raise self._error("string without end")
        self._at = match.end()
        text = match.group(1)
        if "\\" in text:
            text = _ESCAPE.sub(_unescape, text)
            if _SURROGATES.search(text):
                # Pairs become one character; what stays alone has no UTF-8 form.
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text

    def _number(self, match: re.Match[str]) -> int | float:
        text = match.group()
        if len(text) > _DIGITS_MAX:
            raise self._error("number too long")
        if match.group(1) is None and match.group(2) is None:
            return int(text)
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise self._error("number out of range")
        return value

    def _skip(self, blanks: re.Pattern[str]) -> None:
        match = blanks.match(self._text, self._at)
        assert match is not None, "a starred pattern matches anywhere"
        self._at = match.end()

    def _error(self, what: str) -> RemoteProtocolError:
        near = self._text[self._at : self._at + 20]
        return RemoteProtocolError(f"undecodable JSON: {what} at {self._at}: {near!r}")


def _unescape(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _PLAIN_ESCAPES.get(escape, escape)
