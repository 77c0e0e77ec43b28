"""Forks nodes out of a process that has imported them already, for `trioha.testing`.

Theory of operation. Its stdin is a socket of packets. A packet holds arguments and environment of a
node, and four descriptors: stdin, stdout and stderr of the node, and a pipe that takes its process
id and later its exit code. A packet of no bytes, the end of the socket, ends the server.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import import_module

Run = Callable[[list[str]], int]
"""Runs one command of `trioha` and returns its exit code."""

_PACKET_BYTES_MAX = 131_072
_FD_COUNT = 4
_FDS_MAX = 4096
"""Limit of descriptors, more than the server ever has open."""


def serve(packets: socket.socket, run: Run) -> None:
    """Fork a node for each packet, and report each that ends, until the socket ends."""
    wakeup, wakeup_end = os.pipe()
    for fd in (wakeup, wakeup_end):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([packets.fileno(), wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 1024)
            _reap(running)
        if packets.fileno() not in ready:
            continue
        packet, fds, _, _ = socket.recv_fds(packets, _PACKET_BYTES_MAX, _FD_COUNT)
        if not packet:
            return
        pid = os.fork()
        if pid == 0:
            _become_node(packet, fds, run)
        running[pid] = fds[3]
        os.write(fds[3], b"%d\n" % pid)
        for fd in fds[:3]:
            os.close(fd)


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # its cluster has ended
            os.write(fd, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(fd)


def _become_node(packet: bytes, fds: list[int], run: Run) -> None:
    """Run the node in this child; never returns."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        os.closerange(3, _FDS_MAX)
        # The server's own may have been files, in which one can seek.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        random.seed()
        arguments, environment = json.loads(packet)
        os.environ.clear()
        os.environ.update(environment)
        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Import what nodes import, and serve."""
    # The module of that name takes its place in the package.
    from trioha.cli import run

    import_module("trioha.cli.run")
    import_module("trioha.services.broker")
    import_module("trioha.services.namesrv.server")
    gc.collect()
    gc.freeze()
    packets = socket.socket(fileno=os.dup(0))
    serve(packets, run)
