from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.wire.codes import SerializeType
from trioha.wire.fields_template import FieldsTemplate
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

NAMES = st.lists(st.sampled_from(["msgId", "queueId", 'odd"']), min_size=1, unique=True)
TEXT = st.text('ab"\\ü', min_size=1)
CONSTANTS = st.dictionaries(st.sampled_from(["MSG_REGION", "TRACE_ON"]), TEXT)


@given(NAMES, CONSTANTS, st.sampled_from(SerializeType), st.data())
def test_a_filled_template_reads_like_the_fields_it_stands_for(
    names: list[str], constants: dict[str, str], serialize_type: SerializeType, data: st.DataObject
) -> None:
    values = [data.draw(st.text("0123456789ABCDEF,", min_size=1)) for _ in names]
    template = FieldsTemplate(names, constants)
    request = RemotingCommand(310, opaque=7, serialize_type=serialize_type)
    response = request.response(
        encoded_fields=template.fill(serialize_type, [value.encode() for value in values])
    )
    expected = request.response(ext_fields={**dict(zip(names, values, strict=True)), **constants})
    assert encode(response) == encode(expected)
    assert decode_frame(encode(response)).ext_fields == expected.ext_fields
    assert response.ext_fields == expected.ext_fields


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_fields_changed_after_filling_are_what_is_sent(serialize_type: SerializeType) -> None:
    template = FieldsTemplate(["msgId"], {})
    response = RemotingCommand(310, serialize_type=serialize_type).response(
        encoded_fields=template.fill(serialize_type, [b"A"])
    )
    response.ext_fields["msgId"] = "B"
    assert decode_frame(encode(response)).ext_fields == {"msgId": "B"}
