"""CRC-32 of zlib's polynomial, which RocketMQ's records carry of their bodies.

isal computes it with the processor's carry-less multiplication: 36 ns for 128 bytes and 16 us for a
mebibyte, where zlib takes 118 ns and 144 us. Where isal has no wheel, zlib's is used; the figures
and what they give are in docs/decisions/0027-checksums-from-isal.md.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
