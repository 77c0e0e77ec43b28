"""The ext fields of an answer given all the time: most never change, a few are filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from trioha.wire.packed_fields import pack_fields

_ROCKETMQ: Final = 1


class FieldsTemplate:
    """Encodes what `RemotingCommand.encoded_fields` holds, in either form."""

    def __init__(self, names: Sequence[str], constants: Mapping[str, str]) -> None:
        self._packed_names = [
            len(name.encode()).to_bytes(2, "big") + name.encode() for name in names
        ]
        self._json_names = [msgspec.json.encode(name) + b':"' for name in names]
        self._json_names[1:] = [b'",' + name for name in self._json_names[1:]]
        self._packed_end = pack_fields({**constants})
        end = msgspec.json.encode(constants)[1:]
        self._json_end = b'"' + (b"," if constants else b"") + end

    def fill(self, serialize_type: int, values: Sequence[bytes]) -> bytes:
        """The fields with `values`, which are ASCII and need no escaping: digits, ids, names."""
        parts: list[bytes] = []
        position = 0
        if serialize_type == _ROCKETMQ:
            for name in self._packed_names:
                value = values[position]
                parts.append(name)
                parts.append(len(value).to_bytes(4, "big"))
                parts.append(value)
                position += 1
            parts.append(self._packed_end)
            return b"".join(parts)
        parts.append(b"{")
        for name in self._json_names:
            parts.append(name)
            parts.append(values[position])
            position += 1
        parts.append(self._json_end)
        return b"".join(parts)
