"""Text from elsewhere as it may be shown."""

from __future__ import annotations

import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.hostile import UNSAFE

from trioha.shown import SafeStream, own_stream, safe_output, shown, shown_bytes, shown_lines

ANY_TEXT = st.text(st.characters(exclude_categories=()))
CONTROLS = ("Cc", "Cs", "Zl", "Zp")
BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(ANY_TEXT)
def test_no_control_or_bidi_character_is_left(text: str) -> None:
    for one in shown(text):
        assert unicodedata.category(one) not in CONTROLS
        assert unicodedata.bidirectional(one) not in BIDI
    assert not UNSAFE.search(shown_lines(text))


@given(ANY_TEXT)
def test_it_is_shown_once_only_and_loses_nothing_that_json_can_say(text: str) -> None:
    assert shown(shown(text)) == shown(text)
    assert json.loads(shown(json.dumps(text, ensure_ascii=False))) == text


WRITTEN = st.characters(categories=("L", "N", "P", "S", "M")).filter(
    # Further variation selectors change how a letter looks, so that two names look alike.
    lambda one: not "\U000e0100" <= one <= "\U000e01ef"
)


@given(st.text(WRITTEN | st.just(" ")))
def test_what_anybody_writes_stays_as_it_is(text: str) -> None:
    assert shown(text) == text


def test_every_character_that_moves_hides_or_turns_text_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") or (
            unicodedata.bidirectional(one) in BIDI
        ):
            assert shown(one).startswith("\\u"), hex(code)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b]0;x\x07", r"\u001b]0;x\u0007"),
        ("a\r\nb\tc", r"a\u000d\u000ab\u0009c"),
        ("\x9b31m\x7f", r"\u009b31m\u007f"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\udb40\udc41"),
        ("grüße 你好 👍🏽 C:\\path", "grüße 你好 👍🏽 C:\\path"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_lines_keep_their_breaks_and_tabs() -> None:
    assert shown_lines("a\tb\nc\r\n") == "a\tb\nc\\u000d\n"


@given(st.binary())
def test_bytes_become_text_that_any_terminal_takes(data: bytes) -> None:
    assert not UNSAFE.search(shown_bytes(data))


def test_bytes_that_are_no_text_are_shown_in_hex() -> None:
    assert shown_bytes(b"ok \xff\x1b[0m") == r"ok \xff\u001b[0m"


def test_a_stream_escapes_what_is_written_and_what_its_encoding_lacks() -> None:
    raw = io.BytesIO()
    stream = SafeStream(io.TextIOWrapper(raw, encoding="ascii"))
    assert stream.write("é\x1b[0m\n") == 6
    assert raw.getvalue() == b"\\xe9\\u001b[0m\n"
    own_stream(stream).write("\x1b[1m")
    own_stream(stream).flush()
    assert raw.getvalue().endswith(b"\x1b[1m")
    stream.detach()


def test_whoever_prints_prints_safely(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with safe_output():
        print("\x1b]0;x\x07")
        sys.stderr.write("\u202e\n")
    print("after")
    out, err = capfdbinary.readouterr()
    assert out == b"\\u001b]0;x\\u0007\nafter\n"
    assert err == b"\\u202e\n"
