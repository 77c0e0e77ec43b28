"""Nodes as child processes under one Trio block: started, watched, stopped in order.

Each child gets a process group of its own, so that Ctrl-C at a terminal reaches the supervisor
alone, which then stops the children in order (otherwise they would see a second signal and stop at
once). Each reads its stdin to the end and stops when it ends: a supervisor that is killed leaves
nothing running. A child that dies is reported with its last lines; it is not restarted, because a
broker that fell over should be looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import attrs
import trio

from trioha.errors import TriohaError
from trioha.ready_line import parse_ready_json
from trioha.services.loop.background import open_background_nursery

LAST_LINES_MAX = 20
LINE_BYTES_MAX = 65_536
LAST_WORDS_S = 1.0
"""Time for the last output of a dead child to come out of its pipe."""
STOP_GRACE_S = 30.0
"""Time to stop: longer than a broker's own grace (shutdownGrace, 10 s) and its last flush."""

KILL_GRACE_S = 2.0
"""Time for killed children to be gone before their supervisor ends."""


class ChildProcess(Protocol):
    """The part of `trio.Process` that a supervisor uses."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    @property
    def stdout(self) -> trio.abc.ReceiveStream | None: ...
    @property
    def stderr(self) -> trio.abc.ReceiveStream | None: ...
    async def wait(self) -> int: ...
    def send_signal(self, sig: signal.Signals | int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Spawn = Callable[[Sequence[str], Path | None, Mapping[str, str] | None], Awaitable[ChildProcess]]
"""Starts `trioha` with arguments, a file for stderr and an environment."""


class NodeFailed(TriohaError):
    """A node ended before it was ready; the text carries its last lines."""


@attrs.define(eq=False)
class Node:
    """One child process."""

    name: str
    process: ChildProcess
    log: Path | None = None
    """File of its stderr; None: the supervisor gets its stderr, line by line."""
    facts: dict[str, object] = attrs.Factory(dict)
    """Fields of its ready line."""
    is_detached: bool = False
    """The process outlives the supervisor."""
    last_lines: deque[str] = attrs.Factory(lambda: deque(maxlen=LAST_LINES_MAX))
    is_stopping: bool = False
    stderr_ended: trio.Event = attrs.Factory(trio.Event)

    @property
    def address(self) -> str:
        return str(self.facts["listen"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self) -> list[str]:
        """Return its last lines of output."""
        if self.log is not None and self.log.exists():
            return self.log.read_text(errors="replace").splitlines()[-LAST_LINES_MAX:]
        return list(self.last_lines)


@attrs.define(eq=False)
class Supervisor:
    """Starts and stops nodes. `on_line` gets what they print, `on_death` those that die unasked."""

    _nursery: trio.Nursery
    _on_line: Callable[[Node, str], None]
    _on_death: Callable[[Node], None]
    _spawn: Spawn | None = None
    """Starts nodes that have a log and are not detached; None: as programs of their own."""
    nodes: list[Node] = attrs.field(factory=list, init=False)

    async def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        detached: bool = False,
        core: int | None = None,
    ) -> Node:
        """Run ``trioha run …`` and wait for its ready line. The caller owns patience.

        A `detached` node outlives a supervisor that ends well; it must have a `log`. With a `core`
        all its threads run on that one.

        Errors: NodeFailed when it ends first.
        """
        words = ["run", *arguments, "--ready-json"]
        if not detached:
            words.append("--until-stdin-ends")
        if self._spawn is not None and log is not None and not detached:
            process = await self._spawn(words, log, environment)
        else:
            process = await _open_process(words, log, environment, detached=detached)
        if core is not None:
            # Before it has a second thread: those that it starts later inherit this.
            with suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, {core})
        node = Node(name, process, log, is_detached=detached)
        self.nodes.append(node)
        if process.stderr is not None:
            self._nursery.start_soon(self._forward, node, name=f"supervisor.stderr[{name}]")
        else:
            node.stderr_ended.set()
        await self._wait_ready(node)
        self._nursery.start_soon(self._watch, node, name=f"supervisor.watch[{name}]")
        return node

    async def stop(self, node: Node) -> int:
        """SIGTERM, and SIGKILL after `STOP_GRACE_S`; returns the exit code."""
        node.is_stopping = True
        node.process.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            return await node.process.wait()
        node.process.kill()
        return await node.process.wait()

    async def kill(self, node: Node) -> None:
        """SIGKILL, and wait until it is gone."""
        node.is_stopping = True
        node.process.kill()
        await node.process.wait()

    async def stop_all(self) -> None:
        """Stop the nodes, youngest first: slaves before masters before name servers."""
        for node in reversed(self.nodes):
            if node.process.returncode is None and not node.is_detached:
                await self.stop(node)

    def kill_all(self) -> None:
        for node in self.nodes:
            node.is_stopping = True
            if node.process.returncode is None:
                node.process.kill()

    async def wait_gone(self) -> None:
        """Wait for those that were killed: a moment, unless the kernel holds one. Not cancelled."""
        with trio.move_on_after(KILL_GRACE_S, shield=True):
            for node in self.nodes:
                await node.process.wait()

    async def _wait_ready(self, node: Node) -> None:
        assert node.process.stdout is not None
        received = b""
        while b"\n" not in received and len(received) < LINE_BYTES_MAX:
            chunk = await node.process.stdout.receive_some()
            if not chunk:
                code = await node.process.wait()
                await node.stderr_ended.wait()
                said = "; ".join(node.tail()[-3:]) or "it said nothing"
                raise NodeFailed(
                    f"{node.name} ended with exit code {code} before it served: {said}"
                )
            received += chunk
        node.facts = parse_ready_json(received.decode(errors="replace"))

    async def _forward(self, node: Node) -> None:
        assert node.process.stderr is not None
        rest = b""
        async for chunk in node.process.stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                text = line.decode(errors="replace")
                node.last_lines.append(text)
                self._on_line(node, text)
        node.stderr_ended.set()

    async def _watch(self, node: Node) -> None:
        await node.process.wait()
        if not node.is_stopping:
            with trio.move_on_after(LAST_WORDS_S):
                await node.stderr_ended.wait()
            self._on_death(node)


@asynccontextmanager
async def open_supervisor(
    *,
    on_line: Callable[[Node, str], None] = lambda node, line: None,
    on_death: Callable[[Node], None] = lambda node: None,
    spawn: Spawn | None = None,
) -> AsyncIterator[Supervisor]:
    """Supervise while the block runs; on the way out every node that is not detached is stopped.

    Cancellation: children are killed when the block is cancelled.
    Errors: an exception of the block comes out as it is.
    """
    async with open_background_nursery() as nursery:
        supervisor = Supervisor(nursery, on_line, on_death, spawn)
        try:
            yield supervisor
            await supervisor.stop_all()
        except Exception:
            for node in supervisor.nodes:
                node.is_detached = False
            await supervisor.stop_all()
            raise
        except BaseException:
            supervisor.kill_all()
            await supervisor.wait_gone()
            raise
        finally:
            nursery.cancel_scope.cancel()


async def _open_process(
    words: Sequence[str],
    log: Path | None,
    environment: Mapping[str, str] | None,
    *,
    detached: bool,
) -> trio.Process:
    stderr = subprocess.PIPE if log is None else log.open("ab")
    try:
        return await trio.lowlevel.open_process(
            [sys.executable, "-m", "trioha", *words],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    finally:
        if not isinstance(stderr, int):
            stderr.close()
