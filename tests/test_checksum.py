"""The checksum of records is zlib's, whichever library computes it."""

from __future__ import annotations

import mmap
import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from trioha.checksum import crc32

PIECE = bytes(range(251)) * 1100  # its length is odd and more than 256 KiB


@given(
    st.integers(0, 300) | st.integers(0, len(PIECE)),
    st.integers(0, 80),
    st.integers(0, 0xFFFFFFFF),
)
def test_any_length_place_and_seed_gives_zlibs_sum(size: int, at: int, seed: int) -> None:
    piece = memoryview(PIECE)[at : at + size]
    assert crc32(piece, seed) == zlib.crc32(piece, seed)
    assert crc32(bytes(piece)) == zlib.crc32(piece)


@given(st.binary(max_size=600), st.binary(max_size=600))
def test_a_sum_goes_on_where_another_ended(head: bytes, tail: bytes) -> None:
    assert crc32(tail, crc32(head)) == zlib.crc32(head + tail)


def test_mapped_bytes_are_summed_in_place() -> None:
    with mmap.mmap(-1, 3 * mmap.PAGESIZE) as mapped:
        mapped[5 : 5 + 8192] = PIECE[:8192]
        with memoryview(mapped) as view, view[5 : 5 + 8192] as piece:
            assert crc32(piece) == zlib.crc32(PIECE[:8192])


def test_zlib_computes_it_where_isal_is_missing() -> None:
    program = (
        "import sys; sys.modules['isal'] = None\n"
        "import zlib, trioha.checksum as ours; print(ours.crc32 is zlib.crc32)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
