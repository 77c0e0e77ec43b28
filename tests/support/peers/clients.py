"""Stock clients as processes: C++ (PyPI), Node.js (npm), Java and Go, behind one face.

A driver runs the client in a process of its own and speaks JSON lines: it is told what to send and
says what became of it, and it says what it received. See `tests/clients/cpp_driver.py`,
`tests/clients/js/driver.js`, `tests/interop/java/JavaDriver.java` and `tests/interop/go/main.go`.
The first two belong to the ordinary suite (`KINDS`); Java needs a JDK and Maven, Go its toolchain.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs

from support.peers.go import go_driver, require_go
from support.peers.java import compiled_classes, java_command, require_java
from support.processes.rig import REPO, Process, Processes, ProcessFailed
from support.suite.skips import unavailable

CLIENTS = REPO / "tests" / "clients"
JS = CLIENTS / "js"
Kind = Literal["cpp", "js", "java", "go"]
ClientT = TypeVar("ClientT", bound="Client")
KINDS: tuple[Kind, ...] = ("cpp", "js")

START_S = 30.0
SEND_S = 30.0
RECEIVE_S = 30.0
NPM_S = 300.0


class SendFailed(Exception):
    """The client says that a send did not succeed."""


@attrs.frozen
class Sent:
    """A client's report of one send. `msg_id` is the client's or the broker's, as it likes."""

    status: str
    msg_id: str | None
    queue_offset: int | None
    # Java and Go only.
    offset_msg_id: str | None = None
    broker: str | None = None


@attrs.frozen
class Received:
    """One delivery to a client's listener. `body` is absent when long: compare `sha256`."""

    topic: str
    body: str | None
    size: int
    sha256: str
    tags: str | None
    keys: str | None
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    msg_id: str
    reconsume_times: int
    born_timestamp: int
    store_timestamp: int
    store_size: int
    properties: dict[str, str]
    # When the test saw it, on the monotonic clock.
    at_s: float
    # Java and Go only.
    offset_msg_id: str | None = None
    broker: str | None = None


@attrs.define(eq=False)
class Client:
    """A driver process and the events it has reported so far."""

    process: Process
    events: list[dict[str, Any]] = attrs.Factory(list)
    messages: list[Received] = attrs.Factory(list)
    changed: threading.Condition = attrs.Factory(threading.Condition)
    ended: bool = False

    def hear(self, line: str) -> None:
        """Take one line of the driver's stdout, in the reader's thread."""
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            return
        with self.changed:
            self.events.append(event)
            if event["event"] == "message":
                fields = {key: value for key, value in event.items() if key != "event"}
                self.messages.append(Received(**fields, at_s=time.monotonic()))
            self.changed.notify_all()

    def hear_end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float) -> None:
        """Wait, event by event, until `holds()`. Errors: ProcessFailed on deadline or death."""
        deadline = time.monotonic() + within_s
        with self.changed:
            while not holds():
                left = deadline - time.monotonic()
                if left <= 0 or self.ended:
                    break
                self.changed.wait(left)
            else:
                return
        state = "before its end" if self.ended else "in time"
        raise ProcessFailed(f"{self.process.name}: not {state}: {what}\n{self.process.tail()}")

    def wait_for_event(self, name: str, within_s: float) -> dict[str, Any]:
        self.wait_until(lambda: any(e["event"] == name for e in self.events), name, within_s)
        return next(event for event in self.events if event["event"] == name)

    def wait_until_ready(self) -> None:
        self.wait_for_event("ready", START_S)

    def stop(self, within_s: float = 20.0) -> None:
        """Shut the client down in its own orderly way."""
        self.process.write_line(json.dumps({"op": "stop"}))
        self.wait_for_event("stopped", within_s)
        self.process.wait(within_s)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()


@attrs.define(eq=False)
class StockProducer(Client):
    _ids: Iterator[int] = attrs.Factory(itertools.count)

    def begin(self, topic: str, body: str | Sequence[str], mode: str = "sync", **more: Any) -> int:
        """Ask for one send and return its number without waiting."""
        number = next(self._ids)
        content = {"body": body} if isinstance(body, str) else {"bodies": list(body)}
        command = {"op": "send", "id": number, "topic": topic, "mode": mode, **content, **more}
        self.process.write_line(json.dumps(command))
        return number

    def outcome(self, number: int, within_s: float = SEND_S) -> Sent:
        """Return the outcome of send `number`. Errors: SendFailed with the client's words."""

        def answered() -> list[dict[str, Any]]:
            return [event for event in self.events if event.get("id") == number]

        self.wait_until(lambda: bool(answered()), f"outcome of send {number}", within_s)
        (event,) = answered()
        if event["event"] == "failed":
            raise SendFailed(event["error"])
        return Sent(
            event["status"],
            event["msg_id"],
            event["queue_offset"],
            event.get("offset_msg_id"),
            event.get("broker"),
        )

    def send(self, topic: str, body: str | Sequence[str], mode: str = "sync", **more: Any) -> Sent:
        """Send and wait. `more`: tags, keys, properties, delay_level, shard (mode "ordered")."""
        return self.outcome(self.begin(topic, body, mode, **more))

    def send_all(self, topic: str, bodies: Iterable[str], **more: Any) -> list[Sent]:
        """Send one after the other, the commands sent ahead."""
        return [self.outcome(n) for n in [self.begin(topic, body, **more) for body in bodies]]


@attrs.define(eq=False)
class TransactionalProducer(StockProducer):
    """`send` takes `local` and `checked`: "commit", "rollback" or "unknown", as the local
    transaction ends and as checks are answered."""

    @property
    def checks(self) -> list[dict[str, Any]]:
        """The checks that were answered, in their order."""
        return [event for event in list(self.events) if event["event"] == "checked"]

    def answer(self, state: str) -> None:
        """Answer all checks so from now on; "": each as its send said."""
        self.process.write_line(json.dumps({"op": "answer", "state": state}))

    def wait_for_checks(self, count: int, within_s: float = RECEIVE_S) -> list[dict[str, Any]]:
        self.wait_until(lambda: len(self.checks) >= count, f"{count} checks", within_s)
        return self.checks


@attrs.define(eq=False)
class StockConsumer(Client):
    @property
    def bodies(self) -> list[str | None]:
        return [message.body for message in list(self.messages)]

    @property
    def silent_s(self) -> float | None:
        """Seconds since its library wrote to a log of its own; None unless it has one (C++)."""
        home = self.process.cwd
        logs = [path.stat().st_mtime for path in home.glob("logs/rocketmq-cpp/*")] if home else []
        return time.time() - max(logs) if logs else None

    def wait_for_count(self, count: int, within_s: float = RECEIVE_S) -> list[Received]:
        """Wait for `count` deliveries, repeated ones counted."""
        self.wait_until(
            lambda: len(self.messages) >= count,
            f"{count} deliveries (so far {len(self.messages)})",
            within_s,
        )
        return list(self.messages)

    def wait_for_bodies(self, bodies: Iterable[str], within_s: float = RECEIVE_S) -> list[Received]:
        """Wait until every one of `bodies` has been delivered at least once."""
        wanted = set(bodies)
        self.wait_until(
            lambda: wanted <= {message.body for message in self.messages},
            f"all of {len(wanted)} bodies",
            within_s,
        )
        return list(self.messages)

    def subscribe_sql(self, topic: str, sql: str, within_s: float = SEND_S) -> None:
        """Change the filter of a running push consumer, once (Java)."""
        self.process.write_line(json.dumps({"op": "subscribe", "topic": topic, "sql": sql}))
        self.wait_for_event("subscribed", within_s)


@attrs.define(eq=False)
class Clients:
    """Starts stock clients for one test; they end with `processes`."""

    processes: Processes
    _numbers: Iterator[int] = attrs.Factory(lambda: itertools.count(1))

    def producer(
        self, kind: Kind, namesrv: str, group: str = "producers", **options: Any
    ) -> StockProducer:
        """A started producer. Options: timeout_ms; access_key, secret_key; compress_over, retries
        (JavaScript, Java); poll_ms, heartbeat_ms, system_properties (Java)."""
        return self._start(StockProducer, kind, "produce", namesrv, group, options)

    def transactional_producer(
        self, kind: Kind, namesrv: str, group: str, **options: Any
    ) -> TransactionalProducer:
        """A started transactional producer. Options: as `producer`; answer ("commit", "rollback" or
        "unknown"): to every check."""
        options |= {"transactional": True}
        return self._start(TransactionalProducer, kind, "produce", namesrv, group, options)

    def consumer(
        self,
        kind: Kind,
        namesrv: str,
        group: str,
        topic: str,
        expression: str = "*",
        **options: Any,
    ) -> StockConsumer:
        """A started push consumer. Options: fail_below (times); access_key, secret_key; orderly,
        threads (C++, Java); sql (a filter; Go, Java); lite (pull), max_reconsume_times, poll_ms,
        heartbeat_ms, persist_ms, system_properties (Java).
        With `wait=False` it may not be ready yet: several can start at once."""
        options |= {"topic": topic, "expression": expression}
        return self._start(StockConsumer, kind, "consume", namesrv, group, options)

    def _start(
        self,
        face: type[ClientT],
        kind: Kind,
        role: str,
        namesrv: str,
        group: str,
        options: dict[str, Any],
    ) -> ClientT:
        wait = options.pop("wait", True)
        system_properties = options.pop("system_properties", None)
        arguments = [namesrv, group, json.dumps(options)]
        client = self.start(face, kind, role, arguments, system_properties)
        if wait:
            client.wait_until_ready()
        return client

    def start(
        self,
        face: type[ClientT],
        kind: Kind,
        role: str,
        arguments: Sequence[str],
        system_properties: Mapping[str, str] | None = None,
    ) -> ClientT:
        """Start a driver in any of its roles; it is not yet ready."""
        require_client(kind)
        name = f"{kind}-{role}-{next(self._numbers)}"
        home = self.processes.root / "clients" / name
        home.mkdir(parents=True)
        if kind == "cpp":
            driver = [sys.executable, str(CLIENTS / "cpp_driver.py")]
        elif kind == "js":
            driver = ["node", str(JS / "driver.js")]
        elif kind == "go":
            driver = [go_driver()]
        else:
            driver = java_command(
                "JavaDriver", home, [], properties=system_properties, classes=compiled_classes()
            )
        process = Process(
            name,
            [*driver, role, *arguments],
            self.processes.root / "logs" / f"{name}.log",
            # The C++ library logs below HOME; the tests' own settings are no business of a client.
            {**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"},
            home,
            merge_stderr=False,
        )
        client = face(process)
        process.on_line = client.hear
        process.on_end = client.hear_end
        self.processes.add(process)
        process.start()
        return client


def require_client(kind: Kind) -> None:
    """Skip the test, saying why, when this client cannot run here; in CI fail instead."""
    if kind == "java":
        require_java()
        if shutil.which("javac") is None:
            unavailable("Java client: its driver needs a JDK, and javac is not installed")
        return
    if kind == "go":
        require_go()
        return
    reason = _why_no_cpp() if kind == "cpp" else _why_no_js()
    if reason is not None:
        unavailable(reason)


@functools.cache
def _why_no_cpp() -> str | None:
    if importlib.util.find_spec("rocketmq") is None:
        return "C++ client: the package `rocketmq` (x86-64 only) is not installed"
    return None


@functools.cache
def _why_no_js() -> str | None:
    if shutil.which("node") is None:
        return "Node.js client: node is not installed"
    with (JS / "package.json").open() as manifest:
        # Several pytest processes may come here at once; one installs.
        fcntl.flock(manifest, fcntl.LOCK_EX)
        wanted = json.load(manifest)["dependencies"]
        if all(_installed_version(name) == version for name, version in wanted.items()):
            return None
        if shutil.which("npm") is None:
            return "Node.js client: its modules are not installed and npm is missing"
        install = subprocess.run(
            ["npm", "install"],  # .npmrc says how
            cwd=JS,
            capture_output=True,
            text=True,
            timeout=NPM_S,
            check=False,
        )
    if install.returncode != 0:
        return f"Node.js client: npm install failed: {install.stderr.strip()[-300:]}"
    return None


def _installed_version(name: str) -> str | None:
    manifest = Path(JS / "node_modules" / name / "package.json")
    if not manifest.exists():
        return None
    return str(json.loads(manifest.read_text())["version"])
