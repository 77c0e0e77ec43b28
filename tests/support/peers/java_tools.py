"""Three more faces of the Java driver: a reader, mqadmin, and the admin client's methods."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from support.peers.clients import Client, Clients, Received, SendFailed

ANSWER_S = 60.0
ASK_PERIOD_S = 0.2
_NOTHING_COMMITTED = "return offset table is empty"
# Asks for routes every second, not every thirty, and shares the queues as often (else 20 s). Its
# heartbeats come as often: with new queues a subscription gets a new version, and brokers, Java's
# and ours, refuse its pulls until a heartbeat brings that. The one that should is not sent if
# another is under way at that moment, and then 30 s are lost.
QUICK_CONSUMER: dict[str, Any] = {
    "poll_ms": 1000,
    "heartbeat_ms": 1000,
    "system_properties": {"rocketmq.client.rebalance.waitInterval": "1000"},
}
# For a consumer whose group is reset while it runs. Java's client tells the broker its progress
# every five seconds, from a thread of its own. That thread may have read a queue's old offset when
# the reset sets the new one, and then it sends the old one last: the queue stays where it was, on
# Java's broker as on ours. (With a period of 1 ms one of nine resets lost a queue of Java's
# broker.) Without that thread the progress comes with the pulls, at the latest after the 15 s that
# one is held.
RESETTABLE_CONSUMER: dict[str, Any] = {**QUICK_CONSUMER, "persist_ms": 3_600_000}


@attrs.define(eq=False)
class _Asked(Client):
    """Answers one command after the other."""

    _ids: Iterator[int] = attrs.Factory(itertools.count)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The answer to one command. Errors: SendFailed with the client's words."""
        number = next(self._ids)
        self.process.write_line(json.dumps({"op": op, "id": number, **fields}))

        def answered() -> list[dict[str, Any]]:
            return [event for event in self.events if event.get("id") == number]

        self.wait_until(lambda: bool(answered()), f"answer to {op} {fields}", ANSWER_S)
        (event,) = answered()
        if event["event"] == "failed":
            raise SendFailed(event["error"])
        self.events.remove(event)
        return event


@attrs.define(eq=False)
class JavaReader(_Asked):
    """Looks messages up by place, key and time, as an application with the Java client would."""

    def drain(self, topic: str, expression: str = "*") -> list[Received]:
        """All of a topic, pulled queue by queue."""
        return self._messages("drain", topic=topic, expression=expression)

    def drain_sql(self, topic: str, sql: str) -> list[Received]:
        """All messages of a topic that a SQL92 filter takes."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._messages("drain", topic=topic, sql=sql)
            except SendFailed as error:
                # The client has not yet been told the broker's version by a heartbeat.
                if "does not upgrade" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(ASK_PERIOD_S)

    def view(self, msg_id: str) -> Received:
        """The message with this offset id, from the broker whose address is in it."""
        (message,) = self._messages("view", msg_id=msg_id)
        return message

    def query(self, topic: str, key: str) -> list[Received]:
        """Messages with a key, or with this unique id."""
        return self._messages("query", topic=topic, key=key)

    def search(self, topic: str, broker: str, queue_id: int, timestamp: int) -> int:
        """Return the offset of this time in a queue."""
        answer = self.ask(
            "search", topic=topic, broker=broker, queue_id=queue_id, timestamp=timestamp
        )
        return int(answer["offset"])

    def _messages(self, op: str, **fields: Any) -> list[Received]:
        now_s = time.monotonic()
        return [Received(**one, at_s=now_s) for one in self.ask(op, **fields)["messages"]]


@attrs.define(eq=False)
class MqAdmin(_Asked):
    """mqadmin in one process: a Java start per command would be most of the time."""

    def run(self, *arguments: str) -> str:
        """Return the command's output, an exception's trace included."""
        return str(self.ask("run", arguments=arguments)["printed"])

    def consumer_progress(self, namesrv: str, group: str) -> str:
        """A group's progress; "" before its first commit, which mqadmin tells by an exception."""
        printed = self.run("consumerProgress", "-n", namesrv, "-g", group)
        return "" if _NOTHING_COMMITTED in printed else printed


@attrs.define(eq=False)
class JavaCalls(_Asked):
    """Java's admin client (DefaultMQAdminExt) at one name server."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Return the method's result, read from its JSON. Errors: CallFailed."""
        answer = self.ask("call", method=method, arguments=list(arguments))
        if "error" in answer:
            raise CallFailed(f"{answer['error']} {answer['code']}")
        return _with_json_keys(json.loads(answer["result"]))


class CallFailed(Exception):
    """Java's admin client raised this error, with this response code."""


def _with_json_keys(value: Any) -> Any:
    """Turn keys that are JSON objects into `broker:queue` where they are queues."""
    if isinstance(value, list):
        return [_with_json_keys(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, one in value.items():
        if key.startswith("{"):
            queue = json.loads(key)
            key = f"{queue['topic']}@{queue['brokerName']}:{queue['queueId']}"
        found[key] = _with_json_keys(one)
    return found


def java_calls(clients: Clients, namesrv: str) -> JavaCalls:
    calls = clients.start(JavaCalls, "java", "call", [namesrv])
    calls.wait_until_ready()
    return calls


def java_reader(clients: Clients, namesrv: str, group: str) -> JavaReader:
    reader = clients.start(JavaReader, "java", "read", [namesrv, group])
    reader.wait_until_ready()
    return reader


def mq_admin(clients: Clients) -> MqAdmin:
    admin = clients.start(MqAdmin, "java", "admin", [])
    admin.wait_until_ready()
    return admin


def table(printed: str) -> list[list[str]]:
    """The lines of a table as words, without its head. Errors: AssertionError for an exception."""
    assert "Exception" not in printed, printed
    lines = [line.split() for line in printed.splitlines()]
    return [words for words in lines if words and not words[0].startswith(("#", "---"))]


def fields(printed: str, separator: str = ":") -> dict[str, str]:
    """Lines of `name: value`. Errors: AssertionError for an exception."""
    assert "Exception" not in printed, printed
    pairs = (line.split(separator, 1) for line in printed.splitlines() if separator in line)
    return {name.strip(): value.strip() for name, value in pairs}


def eventually(ask: Callable[[], object], wanted: object, within_s: float) -> None:
    """Ask until the answer is `wanted`. Errors: AssertionError if it is not in time."""
    deadline = time.monotonic() + within_s
    while (found := ask()) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}"
        time.sleep(ASK_PERIOD_S)
