"""Hosts and message ids (MessageDecoder.java, MessageClientIDSetter.java).

An offset id, what a send answers as `msgId`, is the upper-case hex of the store host and the phy
offset. A unique id, the property UNIQ_KEY, is made by the client before it sends: address, pid,
a process hash, milliseconds of the month, a counter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from trioha.errors import RemoteProtocolError
from trioha.wire.remoting_command import Buffer

_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_PROCESS: Final = struct.Struct(">HI")
_SERIAL: Final = struct.Struct(">IH")


def pack_host(host: str, port: int) -> bytes:
    """A numeric address as records store it: 4 or 16 bytes, then the port.

    An IPv4 peer of a dual-stack socket (``::ffff:a.b.c.d``) is stored as IPv4.

    Errors: ValueError when `host` is not a numeric address.
    """
    try:
        address = IPv4Address(host).packed
    except AddressValueError:
        address6 = IPv6Address(host.partition("%")[0])
        mapped = address6.ipv4_mapped
        address = address6.packed if mapped is None else mapped.packed
    return address + _PORT.pack(port)


def unpack_host(data: Buffer) -> tuple[str, int]:
    """The address as text and the port. Errors: RemoteProtocolError when neither v4 nor v6."""
    size = len(data)
    if size == 8:
        a, b, c, d = data[:4]
        return f"{a}.{b}.{c}.{d}", _PORT.unpack_from(data, 4)[0]
    if size == 20:
        return str(IPv6Address(bytes(data[:16]))), _PORT.unpack_from(data, 16)[0]
    raise RemoteProtocolError(f"host of {size} bytes is neither IPv4 nor IPv6")


def offset_message_id(store_host: bytes, phy_offset: int) -> str:
    """The id under which a broker's record can be asked for."""
    return (store_host + _OFFSET.pack(phy_offset)).hex().upper()


def decode_message_id(text: str) -> tuple[str, int, int]:
    """Host, port and phy offset of an offset id.

    Errors: RemoteProtocolError when the text is not such an id.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28):
        raise RemoteProtocolError(f"not a message id: {text!r:.80}")
    host, port = unpack_host(data[:-8])
    return host, port, _OFFSET.unpack_from(data, len(data) - 8)[0]


class UniqueIdGenerator:
    """Makes the ids that a client gives its messages.

    `seed` stands for Java's class loader hash: it separates clients of one process. Tools derive
    the sending time from the id, so the month begins in local time, as theirs does.
    """

    def __init__(self, host: str, pid: int, seed: int, wall_ms: Callable[[], int]) -> None:
        process = _PROCESS.pack(pid & 0xFFFF, seed & 0xFFFFFFFF)
        self._prefix = (pack_host(host, 0)[:-4] + process).hex().upper()
        self._wall_ms = wall_ms
        self._count = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def __call__(self) -> str:
        """The next id."""
        now_ms = self._wall_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._begin_month(now_ms)
        count = self._count
        self._count = count + 1 & 0xFFFF
        serial = _SERIAL.pack(now_ms - self._month_start_ms & 0xFFFFFFFF, count)
        return self._prefix + serial.hex().upper()

    def _begin_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(start.replace(year=year, month=month).timestamp() * 1000)
