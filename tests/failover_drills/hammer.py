"""Raw sends to one address for ever, for any broker there: `python hammer.py HOST:PORT TOPIC`.

Each answer is one JSON line. A client that knows no routes is the one that a wrong master would
acknowledge. It runs where the test puts it, in a namespace of its own if need be.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.processes.admin import receive_frame

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.remoting_command import decode_frame, encode

PAUSE_S = 0.002
ANSWER_S = 6.0


def hammer(address: str, topic: str) -> None:
    host, port = address.rsplit(":", 1)
    number = 0
    while True:
        try:
            with socket.create_connection((host, int(port)), 1.0) as connection:
                connection.settimeout(ANSWER_S)
                while True:
                    name = f"hammer-{number}"
                    number += 1
                    message = Message(topic, name.encode())
                    queue = MessageQueue(topic, "", 0)
                    wall_ms = int(time.time() * 1000)
                    began_s = time.monotonic()
                    connection.sendall(
                        encode(send_command("hammer", message, name, queue, wall_ms))
                    )
                    answer = decode_frame(receive_frame(connection))
                    print(
                        json.dumps(
                            {
                                "name": name,
                                "code": answer.code,
                                "began": began_s,
                                "ended": time.monotonic(),
                            }
                        ),
                        flush=True,
                    )
                    time.sleep(PAUSE_S)
        except OSError:
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    hammer(*sys.argv[1:3])
