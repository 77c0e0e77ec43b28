"""The stock Python client of RocketMQ 5 behind JSON lines: arguments are the proxy's address.

Each line of stdin is an operation with an `id`; its answer has the same `id`, or an `error`.
Messages that a push consumer receives are events of their own.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

PATIENCE_S = 10.0
held: dict[str, Any] = {}
"""Received messages by body: the newest delivery of each."""
clients: dict[str, Any] = {}
printing = threading.Lock()


def say(**event: Any) -> None:
    with printing:
        print(json.dumps(event), flush=True)


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials(), request_timeout=5)


def send(topic: str, bodies: Sequence[str], group: str = "") -> None:
    producer = clients.get(topic)
    if producer is None:
        producer = clients[topic] = Producer(configuration(), (topic,))
        producer.startup()
    for body in bodies:
        message = Message()
        message.topic = topic
        message.body = body.encode()
        if group:
            message.message_group = group
        producer.send(message)


def subscribe(topic: str, group: str, expression: str = "*") -> None:
    consumer = SimpleConsumer(configuration(), group, await_duration=5)
    consumer.startup()
    consumer.subscribe(topic, FilterExpression(expression))
    clients[group] = consumer


def receive(
    group: str, count: int, invisible_s: int, within_s: float = PATIENCE_S
) -> list[tuple[str, int]]:
    """Receive until there are `count` messages; return body and delivery attempt of each."""
    found: list[tuple[str, int]] = []
    until = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < until:
        try:
            messages = clients[group].receive(16, invisible_s)
        except Exception as error:
            # The proxy does not know the client's settings yet, or the broker is down.
            say(event="note", text=repr(error))
            time.sleep(0.2)
            continue
        for message in messages:
            body = message.body.decode()
            held[body] = message
            found.append((body, message.delivery_attempt))
    return found


def ack(group: str, bodies: Sequence[str], within_s: float = 0) -> None:
    """Acknowledge each; for so long again while the proxy does not know the new master."""
    until = time.monotonic() + within_s
    for body in bodies:
        while True:
            try:
                clients[group].ack(held[body])
                break
            except Exception as error:
                if time.monotonic() > until:
                    raise
                say(event="note", text=repr(error))
                time.sleep(0.2)


def hide(group: str, body: str, seconds: int) -> None:
    clients[group].change_invisible_duration(held[body], seconds)


def push(topic: str, group: str, failing: Sequence[str] = ()) -> None:
    """Consume; bodies of `failing` fail when they come first."""
    seen: set[str] = set()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Any) -> Any:
            body = message.body.decode()
            is_first = body not in seen
            seen.add(body)
            say(event="message", body=body, attempt=message.delivery_attempt)
            failed = is_first and body in failing
            return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration(), group, Listener(), {topic: FilterExpression("*")})
    consumer.startup()
    clients[group] = consumer


OPERATIONS: dict[str, Callable[..., Any]] = {
    "send": send,
    "subscribe": subscribe,
    "receive": receive,
    "ack": ack,
}
OPERATIONS |= {"hide": hide, "push": push}

say(event="ready")
for line in sys.stdin:
    command = json.loads(line)
    number, operation = command.pop("id"), command.pop("op")
    try:
        say(id=number, result=OPERATIONS[operation](**command))
    except Exception as error:
        say(id=number, error=repr(error))
