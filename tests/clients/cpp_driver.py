"""The C++ client (PyPI `rocketmq`, librocketmq inside) driven over JSON lines.

    cpp_driver.py produce NAMESRV GROUP OPTIONS-JSON
    cpp_driver.py consume NAMESRV GROUP OPTIONS-JSON

Commands come on stdin, events leave on stdout, one JSON object per line; `support.peers.clients` is
the other end. Runs alone in its process, since the library's threads crash at interpreter exit now
and then: the process leaves by `os._exit`. It imports nothing of trioha.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import traceback
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import dll

PROPERTIES = (
    *("KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID"),
    *("ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "CLUSTER", "MIN_OFFSET", "MAX_OFFSET", "colour"),
)
BODY_SHOWN_MAX = 2000
CONSUME_SUCCESS, RECONSUME_LATER = 0, 1

# The library writes to stdout now and then: our events get a descriptor of their own.
_events = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
os.dup2(2, 1)
_lock = threading.Lock()


def emit(event: str, **fields: Any) -> None:
    with _lock:
        _events.write(json.dumps({"event": event, **fields}) + "\n")


def message_of(command: dict[str, Any], body: str) -> Message:
    message = Message(command["topic"])
    size = command.get("random_bytes")
    data = os.urandom(size) if size else body.encode()
    # Message.set_body stops at the first NUL byte.
    dll.SetByteMessageBody(message, data, len(data))
    if command.get("tags"):
        message.set_tags(command["tags"])
    if command.get("keys"):
        message.set_keys(command["keys"])
    if command.get("delay_level"):
        message.set_delay_time_level(command["delay_level"])
    for name, value in command.get("properties", {}).items():
        message.set_property(name, value)
    return message


def send(producer: Producer, command: dict[str, Any]) -> dict[str, Any]:
    mode = command["mode"]
    if mode == "batch":
        messages = [message_of(command, body) for body in command["bodies"]]
        result = producer.send_batch(messages)
    elif mode == "oneway":
        producer.send_oneway(message_of(command, command["body"]))
        return {"status": "ONEWAY", "msg_id": None, "queue_offset": None}
    elif mode == "ordered":
        result = producer.send_orderly(message_of(command, command["body"]), command["shard"])
    elif mode == "sync":
        result = producer.send_sync(message_of(command, command["body"]))
    else:
        raise ValueError(f"no mode {mode}")
    status = "SEND_OK" if result.status.name == "OK" else result.status.name
    return {"status": status, "msg_id": result.msg_id, "queue_offset": result.offset}


def set_account(client: Producer | PushConsumer, options: dict[str, Any]) -> None:
    if "access_key" in options:
        client.set_session_credentials(options["access_key"], options["secret_key"], "")


def produce(namesrv: str, group: str, options: dict[str, Any]) -> None:
    producer = Producer(
        group,
        timeout=options.get("timeout_ms", 10_000),
        max_message_size=options.get("max_message_size", 16 * 1024 * 1024),
    )
    producer.set_namesrv_addr(namesrv)
    set_account(producer, options)
    producer.start()
    emit("ready", client="cpp")
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "stop":
            producer.shutdown()
            emit("stopped")
            return
        try:
            emit("sent", id=command["id"], **send(producer, command))
        except RocketMQException as error:
            reason = dll.GetLatestErrorMessage()
            text = f"{error!r} {reason.decode(errors='replace') if reason else ''}"
            emit("failed", id=command["id"], error=text)


def text_or_none(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def received(message: RecvMessage) -> dict[str, Any]:
    body = message.body or b""
    properties = {name: text_or_none(message.get_property(name)) for name in PROPERTIES}
    return {
        "topic": message.topic,
        "body": body.decode() if len(body) <= BODY_SHOWN_MAX else None,
        "size": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "tags": text_or_none(message.tags),
        "keys": text_or_none(message.keys),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "msg_id": message.id,
        "reconsume_times": message.reconsume_times,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "store_size": message.store_size,
        "properties": {name: value for name, value in properties.items() if value},
    }


def consume(namesrv: str, group: str, options: dict[str, Any]) -> None:
    fail_below = options.get("fail_below", 0)
    consumer = PushConsumer(group, orderly=options.get("orderly", False))
    consumer.set_namesrv_addr(namesrv)
    set_account(consumer, options)
    consumer.set_thread_count(options.get("threads", 2))

    def on_message(_consumer: int, handle: int) -> int:
        try:
            fields = received(RecvMessage(handle))
            emit("message", **fields)
        except Exception:
            emit("broken", error=traceback.format_exc())
            return CONSUME_SUCCESS
        return RECONSUME_LATER if fields["reconsume_times"] < fail_below else CONSUME_SUCCESS

    expression = options.get("expression", "*").encode()
    dll.Subscribe(consumer._handle, options["topic"].encode(), expression)
    # The wrapper's own callback reports a failure by an exception inside ctypes; this one by value.
    consumer._register_callback(on_message)
    consumer.start()
    emit("ready", client="cpp")
    for line in sys.stdin:
        if json.loads(line)["op"] == "stop":
            break
    consumer.shutdown()
    emit("stopped")


def main() -> None:
    role, namesrv, group, options = sys.argv[1:5]
    try:
        {"produce": produce, "consume": consume}[role](namesrv, group, json.loads(options))
        status = 0
    except BaseException:
        emit("broken", error=traceback.format_exc())
        status = 1
    _events.flush()
    os._exit(status)


main()
