"""Answer times of frames that no process parses: the best that the machine allows a broker.

    bare_relay.py FOLLOWERS FRAME_BYTES COUNT [IN_FLIGHT]

A client on loopback sends frames to a process. That process hands them to its followers: a broker
alone has none, a SYNC_MASTER one, the leader of a DLEDGER group two. All sleep in epoll until there
is something to read. A frame is answered once one follower has told that it read it, without
followers at once. The client keeps IN_FLIGHT frames (1) on their way. Prints the median time of an
answer in milliseconds, answers a second, and the processor time in microseconds that a frame took
the process that answers, and then each follower.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import struct
import sys
import time
from collections import deque

ANSWER = bytes(240)
"""About as long as the answer to a send."""
_TOLD = struct.Struct(">Q")


def follow(server: socket.socket) -> None:
    """Tell the leader how many bytes were read, whenever some were."""
    leader, _ = server.accept()
    poll = select.epoll()
    poll.register(leader, select.EPOLLIN)
    total = 0
    while True:
        poll.poll()
        if not (data := leader.recv(65536)):
            return
        total += len(data)
        leader.send(_TOLD.pack(total))


def lead(server: socket.socket, followers: list[tuple[str, int]], frame_bytes: int) -> None:
    """Answer one client until it hangs up, each frame once a follower has it, if there are any."""
    client, _ = server.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    behind = {one.fileno(): one for one in map(connect, followers)}
    poll = select.epoll()
    for fd in (client.fileno(), *behind):
        poll.register(fd, select.EPOLLIN)
    total = held = answered = 0
    while True:
        for fd, _ in poll.poll():
            if fd in behind:
                told = behind[fd].recv(65536)
                held = max(held, *(one for (one,) in _TOLD.iter_unpack(told)))
            elif not (data := client.recv(65536)):
                return
            else:
                total += len(data)
                for follower in behind.values():
                    follower.send(data)
                held = held if behind else total
            due = held // frame_bytes - answered
            if due:
                answered += due
                client.send(ANSWER * due)


def connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def measure(
    address: tuple[str, int], frame_bytes: int, count: int, in_flight: int
) -> tuple[float, float]:
    """Send the frames; return the median time of an answer in ms, and answers a second."""
    frame = bytes(frame_bytes)
    took_ms: list[float] = []
    with connect(address) as connection:
        began_ns = time.perf_counter_ns()
        sent_ns = deque([began_ns] * in_flight)
        connection.sendall(frame * in_flight)
        unread = 0
        while len(took_ms) < count:
            unread += len(connection.recv(65536))
            answers, unread = divmod(unread, len(ANSWER))
            now_ns = time.perf_counter_ns()
            for _ in range(answers):
                took_ms.append((now_ns - sent_ns.popleft()) / 1e6)
                sent_ns.append(now_ns)
            if answers:
                connection.sendall(frame * answers)
        elapsed_s = (time.perf_counter_ns() - began_ns) / 1e9
    return statistics.median(took_ms), len(took_ms) / elapsed_s


def main() -> None:
    followers, size, count, *more = map(int, sys.argv[1:])
    addresses: list[tuple[str, int]] = []
    pids = []
    for _ in range(followers):
        server = socket.create_server(("127.0.0.1", 0))
        addresses.append(server.getsockname())
        if (pid := os.fork()) == 0:
            follow(server)
            os._exit(0)
        pids.append(pid)
        server.close()
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    if (leader := os.fork()) == 0:
        lead(server, addresses, size)
        os._exit(0)
    server.close()
    median_ms, per_s = measure(address, size, count, *(more or [1]))
    print(median_ms, per_s, *(processor_us(pid) / count for pid in (leader, *pids)))


def processor_us(pid: int) -> float:
    """Wait for the end of a child; return its processor time."""
    usage = os.wait4(pid, 0)[2]
    return (usage.ru_utime + usage.ru_stime) * 1e6


main()
