"""Bodies that their sender compressed."""

from __future__ import annotations

import zlib

_COMPRESSOR_SHIFT = 8
_COMPRESSOR_MASK = 0x7
_ZLIB = (0, 3)
_BODY_BYTES_MAX = 64 << 20
"""Limit of a decompressed body. Brokers take 4 MiB; a bomb is 1000 times its size."""


def inflate(body: bytes, sys_flag: int) -> bytes | None:
    """The body inflated, or None when its method is not zlib or it is damaged."""
    if sys_flag >> _COMPRESSOR_SHIFT & _COMPRESSOR_MASK not in _ZLIB:
        return None
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, _BODY_BYTES_MAX)
    except zlib.error:
        return None
    return data if inflater.eof else None
