"""Starts nodes by a fork server: a process that has imported already what nodes import.

A node that starts from nothing spends half a second of processor time on imports. The fork server
imports once, for all clusters of a test run, and ends with the process that started it.

The server is `trioha.cli.fork_nodes`.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from trioha.supervisor import ChildProcess

_STOP_S = 5.0


class ForkedProcess:
    """A node that the fork server started."""

    def __init__(
        self, pid: int, stdin: trio.lowlevel.FdStream, stdout: trio.lowlevel.FdStream, status: int
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout: trio.abc.ReceiveStream | None = stdout
        self.stderr: trio.abc.ReceiveStream | None = None
        self._status = status
        self._code: int | None = None
        self._waiting = trio.Lock()

    @property
    def returncode(self) -> int | None:
        """Exit code, the negative number of the signal that ended it, or None while it runs."""
        if self._code is None:
            try:
                told = os.read(self._status, 64)
            except BlockingIOError:
                return None
            # `wait` may be waiting for it: nothing else wakes a task that waits for a closed one.
            with contextlib.suppress(RuntimeError):  # outside Trio nobody waits
                trio.lowlevel.notify_closing(self._status)
            os.close(self._status)
            self._code = int(told) if told else -signal.SIGKILL
        return self._code

    async def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        async with self._waiting:
            while (code := self.returncode) is None:
                with contextlib.suppress(trio.ClosedResourceError):  # `returncode` was quicker
                    await trio.lowlevel.wait_readable(self._status)
        return code

    def send_signal(self, number: signal.Signals | int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ends, and that is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The side of the process that starts nodes."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from trioha.cli.fork_nodes import main; main()"],
                stdin=theirs.fileno(),
                start_new_session=True,
            )

    async def spawn(
        self, arguments: Sequence[str], log: Path | None, environment: Mapping[str, str] | None
    ) -> ChildProcess:
        """Start ``trioha`` with these arguments; `log` takes its stderr.

        Errors: OSError.
        """
        stdin, ours_in = os.pipe()
        ours_out, stdout = os.pipe()
        status, status_end = os.pipe()
        stderr = os.open(log or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        packet = json.dumps([list(arguments), dict(environment or os.environ)]).encode()
        try:
            socket.send_fds(self._socket, [packet], [stdin, stdout, stderr, status_end])
        finally:
            for fd in (stdin, stdout, stderr, status_end):
                os.close(fd)
        os.set_blocking(status, False)
        await trio.lowlevel.wait_readable(status)
        # Not more than the process id: an exit code may stand behind it already.
        told = b""
        while not told.endswith(b"\n"):
            if not (piece := os.read(status, 1)):
                raise OSError(errno.ECHILD, "the fork server has ended")
            told += piece
        pid = int(told)
        streams = (trio.lowlevel.FdStream(ours_in), trio.lowlevel.FdStream(ours_out))
        return ForkedProcess(pid, *streams, status)

    def close(self) -> None:
        """End the server; its nodes end by the end of their stdin."""
        self._socket.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


def fork_server() -> ForkServer:
    """Return the fork server of this process, started now if need be."""
    server = _server_of(os.getpid())
    if not server.is_running:
        _server_of.cache_clear()
        server = _server_of(os.getpid())
    return server


@functools.cache
def _server_of(pid: int) -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server
