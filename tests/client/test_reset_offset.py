"""Both forms of RESET_CONSUMER_CLIENT_OFFSET."""

from __future__ import annotations

import pytest

from trioha.client.message import MessageQueue
from trioha.client.reset_offset import decode_reset_offsets
from trioha.errors import RemoteProtocolError

QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:9}}', {QUEUE: 9}),
        (
            b'{"offsetTable":[{"brokerName":"b","offset":9,"queueId":0,"topic":"T"}]}',
            {QUEUE: 9},
        ),
        (b'{"offsetTable":{}}', {}),
        (b"{}", {}),
    ],
)
def test_java_and_cpp_form(body: bytes, expected: dict[MessageQueue, int]) -> None:
    assert decode_reset_offsets(body) == expected


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"offsetTable":{"a":1}}', b'{"offsetTable":7}'])
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_reset_offsets(body)
