"""The msgpack maps that trioha's own requests and answers carry."""

from __future__ import annotations

from typing import Any

import msgpack

from trioha.errors import RemoteProtocolError

__all__ = ["decode_map"]


def decode_map(data: bytes | memoryview, what: str = "the answer") -> dict[Any, Any]:
    """The map that `data` is; `what` begins the error's words. Nothing in it is checked.

    Errors: RemoteProtocolError when it is no msgpack, or no map.
    """
    try:
        # A status has numbers among its keys; a key that cannot be one is a TypeError.
        fields = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"{what} is not msgpack: {error}") from error
    if not isinstance(fields, dict):
        raise RemoteProtocolError(f"{what} is not a map")
    return fields
