"""Makes text from elsewhere safe to show; knows which characters are not.

Names, client ids, bodies, remarks and journal lines come from peers. A terminal obeys control
characters in them: they move the cursor, set its title, answer for the keyboard. Bidirectional and
invisible characters let one text look like another. Each of them is shown as JSON and Java write
it, ESC as ``\\u001b``, so a JSON document stays one and means the same.

`SafeStream` does this for all that a command prints; `trioha.cli.run` puts it before stdout and
stderr. Tables and the console also escape line breaks, which would forge a row.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_INVISIBLE = (
    "\x7f-\x9f"  # DEL and C1: an 8-bit terminal takes U+009B for ESC [
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff"  # tags and further variation selectors
    "\ud800-\udfff"  # lone halves of a pair, which no encoding can print
)
_unsafe_in_a_line = re.compile(f"[\0-\x1f{_INVISIBLE}]")
_unsafe_in_lines = re.compile(f"[\0-\x08\x0b-\x1f{_INVISIBLE}]")


def shown(text: str) -> str:
    """Return `text` as one line without control, bidirectional and invisible characters."""
    return _unsafe_in_a_line.sub(_escape, text)


def shown_lines(text: str) -> str:
    """Return `text` likewise, but with its line breaks and tabs."""
    return _unsafe_in_lines.sub(_escape, text)


def shown_bytes(data: bytes) -> str:
    """Return `data` as `shown_lines`; a byte that is no UTF-8 becomes ``\\xff``."""
    return shown_lines(data.decode(errors="backslashreplace"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code > 0xFFFF:  # a pair, as in JSON
        high, low = divmod(code - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
    return f"\\u{code:04x}"


class SafeStream(io.TextIOWrapper):
    """Writes to the bytes below another text stream what `shown_lines` makes of the text.

    Characters that the encoding lacks are escaped, too: no text fails to print.
    """

    def __init__(self, own: TextIO) -> None:
        super().__init__(
            own.buffer, encoding=own.encoding, errors="backslashreplace", write_through=True
        )
        self.own = own
        """The stream below, for escape sequences of trioha's own."""

    def write(self, text: str) -> int:
        super().write(shown_lines(text))
        if "\n" in text:
            self.flush()
        return len(text)


def own_stream(stream: TextIO) -> TextIO:
    """Return the stream for a bar or a colour that trioha itself draws: nothing is escaped."""
    return stream.own if isinstance(stream, SafeStream) else stream


@contextmanager
def safe_output() -> Iterator[None]:
    """Put a `SafeStream` before stdout and stderr."""
    before = sys.stdout, sys.stderr
    streams = [SafeStream(one) if hasattr(one, "buffer") else one for one in before]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            if isinstance(stream, SafeStream):
                with suppress(OSError):  # the reader left, as `| head` does
                    stream.detach()
