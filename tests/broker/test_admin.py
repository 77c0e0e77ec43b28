from __future__ import annotations

import msgpack
from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import at

from trioha.wire.codes import RequestCode

ADMINISTRATION = {
    17, 21, 25, 26, 28, 43, 45, 200, 201, 202, 203, 204, 207, 208, 215,
    300, 303, 305, 306, 314, 315, 316, 317, 328, 329, 351, 352, 30001,
}  # fmt: skip


def test_every_administrative_request_has_a_handler() -> None:
    assert set(ConsumeSide().admin.handlers()) == ADMINISTRATION


def test_consumer_offsets_for_slaves_even_if_there_are_none() -> None:
    side = ConsumeSide()
    command = request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    version = b'"dataVersion":{"counter":0,"timestamp":%d}' % at().wall_ms
    assert side.ask(command).body_bytes() == b'{"offsetTable":{},%b}' % version
    side.offsets.commit("g", "T", 0, 5)
    assert side.ask(command).body_bytes() == b'{"offsetTable":{"T@g":{0:5}},%b}' % version
    assert side.offsets.encode() == b'{"offsetTable":{"T@g":{0:5}}}', "the file"


def test_delay_offsets_for_slaves_even_if_there_are_none() -> None:
    response = ConsumeSide().ask(request(RequestCode.GET_ALL_DELAY_OFFSET))
    assert response.body_bytes() == b'{"offsetTable":{}}'


def test_node_status_is_a_msgpack_map() -> None:
    response = ConsumeSide().ask(request(RequestCode.TRIOHA_NODE_STATUS), now_ms=7)
    assert msgpack.unpackb(response.body_bytes()) == {"now_ms": 7, "role": "ASYNC_MASTER"}
