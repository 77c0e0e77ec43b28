"""How soon a frame is answered when nobody looks into it: what the machine allows a broker at best.

    bare_relay.py PROCESSES FRAME_BYTES COUNT

A blocking client on loopback, and behind it as many processes in a row as a put passes: a broker
alone is one, a SYNC_MASTER and its slave are two. Each sleeps in epoll and hands on what it reads.
Prints the median time of an answer in milliseconds.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import sys
import time

ANSWER = bytes(240)
"""About as long as the answer to a send."""


def serve(server: socket.socket, behind: tuple[str, int] | None) -> None:
    """Answer one client until it hangs up, each frame once whoever is behind has answered it."""
    client, _ = server.accept()
    next_one = None if behind is None else connect(behind)
    poll = select.epoll()
    poll.register(client, select.EPOLLIN)
    if next_one is not None:
        poll.register(next_one, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != client.fileno():
                assert next_one is not None
                next_one.recv(65536)
                client.send(ANSWER)
            elif not (data := client.recv(65536)):
                return
            elif next_one is not None:
                next_one.send(data)
            else:
                client.send(ANSWER)


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main() -> None:
    processes, size, count = map(int, sys.argv[1:])
    behind: tuple[str, int] | None = None
    for _ in range(processes):
        server = socket.create_server(("127.0.0.1", 0))
        address = server.getsockname()
        if os.fork() == 0:
            serve(server, behind)
            os._exit(0)
        server.close()
        behind = address
    assert behind is not None
    frame, took_ms = bytes(size), []
    with connect(behind) as connection:
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            connection.sendall(frame)
            connection.recv(65536)
            took_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
    for _ in range(processes):
        os.wait()
    print(statistics.median(took_ms))


main()
