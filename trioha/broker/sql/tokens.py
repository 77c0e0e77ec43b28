"""The tokens of a SQL92 filter, one after the other (SelectorParser.jj)."""

from __future__ import annotations

import re

# Longest first, as JavaCC matches. A line comment needs its line end, see `Tokens.advance`.
_TOKEN = re.compile(
    r"""(?P<skip>[ \t\n\r\f]+|/\*.*?\*/)
    |(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<decimal>0|[1-9][0-9]*[lL]?)
    |(?P<string>'[^']*(?:''[^']*)*')
    |(?P<word>[a-zA-Z_$][a-zA-Z0-9_$]*)
    |(?P<mark><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL,
)
_LINE_COMMENT = re.compile(r"--[^\n\r]*(?:\r\n|\n|\r)")
_KEYWORDS = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"])
_PART_OPERATORS = frozenset(["CONTAINS", "STARTSWITH", "ENDSWITH"])
"""Words of RocketMQ 5 (apache/rocketmq 6863). A property may have such a name, as in 4.9: they are
operators only where an operator can stand."""
END = "the end"


class SqlFilterError(ValueError):
    """The text is no SQL92 filter; the message names the place and what is wrong."""


class TrailingTextError(SqlFilterError):
    """Something follows a complete expression."""


class Tokens:
    """The token under way: its kind, its text and its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind = ""
        """`float`, `decimal`, `string`, `word`, or the keyword or mark itself, or END."""
        self.image = ""
        self.position = 0
        self._next = 0
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self.advance()

    def advance(self) -> None:
        text = self.text
        while True:
            at = self._next
            if at == len(text):
                self.kind, self.image, self.position = END, "", at
                return
            # Looked for only if there is one: else `--` is two signs, and a long row of them would
            # be searched again and again.
            match = _LINE_COMMENT.match(text, at) if at < self._last_line_end else None
            if match is None:
                match = _TOKEN.match(text, at)
                if match is None:
                    raise SqlFilterError(f"character {at + 1}: cannot read {text[at : at + 16]!r}")
                kind = match.lastgroup or ""
            else:
                kind = "skip"
            self._next = match.end()
            if kind != "skip":
                break
        image = match.group()
        if kind == "mark":
            kind = image
        elif kind == "word" and image.upper() in _KEYWORDS:
            kind = image.upper()
        self.kind, self.image, self.position = kind, image, at

    def take(self, kind: str) -> bool:
        """Go on if the token is of that kind."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def take_part_operator(self) -> str:
        """Go on if the token is CONTAINS or its like; return it in capitals, else nothing."""
        word = self.image.upper() if self.kind == "word" else ""
        if word not in _PART_OPERATORS:
            return ""
        self.advance()
        return word

    def expect(self, kind: str, what: str = "") -> str:
        if self.kind != kind:
            raise self.error(f"expected {what or kind}, found {self.shown}")
        image = self.image
        self.advance()
        return image

    @property
    def shown(self) -> str:
        return f"{self.image:.32}" or END

    def error(self, what: str) -> SqlFilterError:
        return SqlFilterError(f"character {self.position + 1}: {what}")
