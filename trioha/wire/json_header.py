"""The JSON form of a remoting header, as msgspec reads and writes it.

Apart from `remoting_command` since msgspec reads these annotations when it runs, and a compiled
module keeps none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

ExtValue = str | int | float | bool | None

# Java's int. A number beyond it could be read, but not be echoed in either header form.
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class JsonHeader(msgspec.Struct, gc=False):
    """A header that came in. Unknown members are ignored."""

    code: _Int32 = 0
    language: str | int | None = None
    version: _Int32 | str = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, ExtValue] | None = None


class OutgoingJsonHeader(msgspec.Struct, gc=False):
    """A header that goes out, in this order."""

    code: int
    extFields: Mapping[str, ExtValue]
    flag: int
    language: str
    opaque: int
    version: int
    remark: str | msgspec.UnsetType = msgspec.UNSET
    serializeTypeCurrentRPC: str = "JSON"


decode_json_fields: Final = msgspec.json.Decoder(dict[str, ExtValue]).decode
decode_json_header: Final = msgspec.json.Decoder(JsonHeader).decode
encode_json_header: Final = msgspec.json.Encoder().encode
"""Bytes of an `OutgoingJsonHeader`."""
