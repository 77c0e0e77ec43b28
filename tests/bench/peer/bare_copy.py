"""A copy of bytes over loopback from a mapped file into a mapped file, and nothing else.

    bare_copy.py FROM TO BYTES

Two processes, one connection, no frames, no checks: what the machine allows a replica at best.
Prints the seconds from the first byte's arrival to the last one's.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time

CHUNK_BYTES = 1 << 20


def send(source: str, size: int, connection: socket.socket) -> None:
    with (
        open(source, "rb") as file,
        mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as log,
        memoryview(log) as view,
    ):
        for begin in range(0, size, CHUNK_BYTES):
            with view[begin : begin + CHUNK_BYTES] as chunk:
                connection.sendall(chunk)


def receive(target: str, size: int, connection: socket.socket) -> float:
    with open(target, "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as log, memoryview(log) as view:
            began_s = 0.0
            at = 0
            while at < size:
                with view[at : at + CHUNK_BYTES] as chunk:
                    received = connection.recv_into(chunk)
                if received == 0:
                    raise ConnectionError(f"{size - at} bytes are missing")
                if at == 0:
                    began_s = time.monotonic()
                at += received
            return time.monotonic() - began_s


def main() -> None:
    source, target, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        child = os.fork()
        if child == 0:
            with socket.create_connection(address) as connection:
                send(source, size, connection)
            os._exit(0)
        connection, _ = server.accept()
        with connection:
            print(receive(target, size, connection), flush=True)
        os.waitpid(child, 0)


main()
