"""A cluster in this process, and the command line run against it as an operator runs it.

The cluster lives in a thread of its own, in real time. The nouns' commands run as they are, but for
one thing: their connections are opened in that thread.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractContextManager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from pathlib import Path
from typing import Any, Protocol, TypeVar

import attrs
import pytest
import trio

from support.suite.json_schema import faults
from trioha.cli import documents, run
from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.delivery import Handler
from trioha.client.driving import drive
from trioha.client.message import ConsumeFrom, Message, ReceivedMessage
from trioha.client.queue_task import PushConsumerConfig
from trioha.jobs.cluster_map import read_map
from trioha.jobs.members import read_connections
from trioha.jobs.telling import JobScope
from trioha.testing import TriohaCluster
from trioha.testing.machines import Layout
from trioha.testing.memory_cluster import open_memory_cluster

T = TypeVar("T")
_QUICK = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, suspend_s=0.2, commit_interval_s=0.1)
"""A member whose pulls end soon: it looks at new offsets then."""
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@attrs.frozen
class Printed:
    """Outcome of one command."""

    code: int
    out: str
    err: str
    document: Any = None
    """Its output with -o json, checked against its schema."""


class Called(Protocol):
    """A cluster in a thread of its own."""

    def call(self, function: Callable[[TriohaCluster], Awaitable[T]]) -> T: ...


def run_here(*arguments: str) -> Printed:
    """Run one command in this process, in any thread, but one at a time."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return Printed(code, out.getvalue(), err.getvalue())


@contextmanager
def reading(
    cluster: Called, topic: str, group: str, handler: Handler | None = None
) -> Iterator[None]:
    """Keep a member of a group connected that reads a topic."""
    over = trio.Event()
    opened: Future[None] = Future()

    async def read(cluster: TriohaCluster) -> None:
        opening = cluster.consumer(topic, handler or _consume, group=group, config=_QUICK)
        async with opening as consumer:
            # The broker does not announce that it knows the consumer: ask until it does.
            while not (consumer.queues and await _is_known(cluster, group)):  # noqa: ASYNC110
                await trio.sleep(0.01)
            opened.set_result(None)
            await over.wait()

    async def end(cluster: TriohaCluster) -> None:
        over.set()

    thread = threading.Thread(target=cluster.call, args=[read], name=f"reader of {topic}")
    thread.start()
    try:
        opened.result(timeout=20)
        yield
    finally:
        cluster.call(end)
        thread.join()


class Operated:
    """A cluster and its operator."""

    def __init__(
        self, cluster: TriohaCluster, token: trio.lowlevel.TrioToken, scope: trio.CancelScope
    ) -> None:
        self.cluster = cluster
        self.namesrv = cluster.namesrv
        self._token = token
        self._scope = scope
        self._capture: pytest.CaptureFixture[str] | None = None

    def call(self, function: Callable[[TriohaCluster], Awaitable[T]]) -> T:
        """Await ``function(cluster)`` in the cluster's thread; return its result."""
        return trio.from_thread.run(function, self.cluster, trio_token=self._token)

    def close(self) -> None:
        self._token.run_sync_soon(self._scope.cancel)

    def listen(self, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> Operated:
        """Let the nouns of this test reach the cluster."""
        self._capture = capture

        def in_cluster(
            namesrv: str, config: ClusterConfig, work: Callable[[Cluster], Awaitable[T]]
        ) -> T:
            async def run_there(cluster: TriohaCluster) -> T:
                there = attrs.evolve(
                    cluster.client_config(),
                    connect_timeout_s=config.connect_timeout_s,
                    request_timeout_s=config.request_timeout_s,
                )
                async with open_cluster(namesrv, there) as opened:
                    return await work(opened)

            return self.call(run_there)

        patch.setattr(documents, "in_cluster", in_cluster)
        patch.setenv("NAMESRV_ADDR", self.namesrv)
        return self

    def reading(
        self, topic: str, group: str, handler: Handler | None = None
    ) -> AbstractContextManager[None]:
        """Keep a member of a group connected that reads a topic."""
        return reading(self, topic, group, handler)

    @contextmanager
    def sending(self, topic: str, *, every_s: float) -> Iterator[None]:
        """Send a message now and again."""
        scope = trio.CancelScope()

        async def send(cluster: TriohaCluster) -> None:
            with scope:
                async with cluster.producer() as producer:
                    while True:
                        await producer.send(Message(topic, b"tick"))
                        await trio.sleep(every_s)

        thread = threading.Thread(target=self.call, args=[send], name=f"sender to {topic}")
        thread.start()
        try:
            yield
        finally:
            self._token.run_sync_soon(scope.cancel)
            thread.join()

    def eventually(self, holds: Callable[[], bool], within_s: float = 20) -> None:
        """Wait until `holds()`; no event tells of it, so this looks again."""
        for _ in range(int(within_s / 0.02)):
            if holds():
                return
            self.call(_moment)
        raise AssertionError(f"it does not hold after {within_s} s")

    def send(self, topic: str, count: int, *, tags: str = "", keys: str = "") -> list[str]:
        """Send so many messages, numbers as bodies; return their ids."""

        async def send_all(cluster: TriohaCluster) -> list[str]:
            async with cluster.producer() as producer:
                return [
                    (
                        await producer.send(
                            Message(topic, b"%d" % number, tags, keys.split() if keys else ())
                        )
                    ).msg_id
                    for number in range(count)
                ]

        return self.call(send_all)

    def consume(self, topic: str, group: str) -> int:
        """Let a group consume all of a topic; return the count."""

        async def consume_all(cluster: TriohaCluster) -> int:
            return len(await cluster.consume(topic, group))

        return self.call(consume_all)

    def trioha(self, *arguments: str) -> Printed:
        """Run one command."""
        assert self._capture is not None, "listen comes first"
        self._capture.readouterr()
        code = run([str(one) for one in arguments])
        printed = self._capture.readouterr()
        assert "Traceback" not in printed.err, printed.err
        return Printed(code, printed.out, printed.err)

    def ok(self, *arguments: str) -> str:
        """Run one command that succeeds; return what it printed."""
        done = self.trioha(*arguments)
        assert (done.code, done.err) == (0, ""), (arguments, done)
        return done.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run one command with -o json; return its document, checked against its schema."""
        done = self.trioha(*arguments, "-o", "json")
        assert done.code == code, (arguments, done)
        document = json.loads(done.out)
        names = ("-".join(arguments[:size]) for size in (3, 2))
        path = next(path for name in names if (path := SCHEMAS / f"{name}.json").exists())
        schema = json.loads(path.read_text())
        assert faults(document, schema) == []
        return document

    def refused(self, code: int, *arguments: str) -> str:
        """Run one command that fails with one line on stderr; return that line."""
        done = self.trioha(*arguments)
        assert done.code == code, (arguments, done)
        assert done.err.startswith("trioha: "), done
        assert done.err.count("\n") == 1, done
        return done.err


async def _moment(cluster: TriohaCluster) -> None:
    await trio.sleep(0.02)


async def _is_known(cluster: TriohaCluster, group: str) -> bool:
    scope = JobScope((cluster.namesrv,))
    masters = (await drive(read_map(scope), cluster.observer)).masters()
    told = await drive(read_connections(scope, group, masters.values()), cluster.observer)
    return bool(told.members)


async def _consume(message: ReceivedMessage) -> None:
    pass


@contextmanager
def operate(layout: Layout) -> Iterator[Operated]:
    """Open a cluster in this process; it ends with the block."""
    opened: Future[Operated] = Future()

    async def serve() -> None:
        with trio.CancelScope() as scope:
            async with open_memory_cluster(layout, seed=1, root=None, settings={}) as cluster:
                token = trio.lowlevel.current_trio_token()
                opened.set_result(Operated(cluster, token, scope))
                await trio.sleep_forever()

    def run_it() -> None:
        try:
            trio.run(serve)
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = threading.Thread(target=run_it, name="operated cluster")
    thread.start()
    try:
        yield opened.result()
    finally:
        if not opened.exception():
            opened.result().close()
        thread.join()
