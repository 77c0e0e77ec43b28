"""The body of RESET_CONSUMER_CLIENT_OFFSET: new offsets per queue (ResetOffsetBody.java)."""

from __future__ import annotations

from trioha.client.message import MessageQueue
from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.json_fields import integer, integer_of, list_of, object_of
from trioha.wire.remoting_command import Buffer


def decode_reset_offsets(body: Buffer) -> dict[MessageQueue, int]:
    """Queue → offset, from Java's object keys or the list that C++ clients are sent.

    Errors: RemoteProtocolError.
    """
    fields = object_of(fastjson.loads(body), "reset offsets")
    table = fields.get("offsetTable")
    if isinstance(table, fastjson.ObjectKeyMap):
        return {
            MessageQueue.from_dict(queue): integer_of(offset, "offset")
            for queue, offset in table.items()
        }
    if isinstance(table, dict) and table:
        raise RemoteProtocolError("offsetTable has keys that are no queues")
    return {
        MessageQueue.from_dict(entry): integer(object_of(entry, "offset"), "offset")
        for entry in list_of(table or [], "offsetTable")
    }
