from __future__ import annotations

import socket
import sys
import time

import pytest
import trio
from support.suite.skips import skip_unless

from trioha.services.loop.transport import SocketTransport, connect, open_listener


@pytest.mark.parametrize("host", ["é" * 250, "\ud800"])
async def test_a_name_that_no_host_can_have_is_an_address_that_nobody_has(host: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        await connect(host, 1)


async def test_reads_tell_how_long_their_bytes_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless(sys.platform == "linux", "no other kernel stamps what it receives")
    now_ns = time.time_ns
    listener = open_listener("127.0.0.1", 0)
    client = await connect("127.0.0.1", listener.port)
    accepted = await listener.accept()
    try:
        for waited_s in (3, 5):  # the second shows that a late connection asks at each read
            before_ns = now_ns()
            monkeypatch.setattr(time, "time_ns", lambda s=waited_s: now_ns() + s * 10**9)
            client.try_send([b"x"])
            assert await accepted.receive_some() == b"x"
            with trio.fail_after(60):
                # If no other socket asks, the kernel begins to stamp a moment later.
                while not accepted.waited_ms:
                    client.try_send([b"x"])
                    assert await accepted.receive_some() == b"x"
            slack_ms = (now_ns() - before_ns) // 10**6 + 1
            assert waited_s * 1000 <= accepted.waited_ms + 1
            assert accepted.waited_ms <= waited_s * 1000 + slack_ms
        assert not client.waited_ms
    finally:
        for end in (client, accepted, listener):
            end.close()


@pytest.mark.parametrize("is_one_way", [False, True])
async def test_tcp_acknowledges_late_what_no_answer_follows(is_one_way: bool) -> None:
    skip_unless(sys.platform == "linux", "no other kernel can be asked to")
    listener = open_listener("127.0.0.1", 0)
    client = await connect("127.0.0.1", listener.port)
    accepted = await listener.accept()
    assert isinstance(accepted, SocketTransport)
    accepted.stream.is_one_way = is_one_way
    try:
        for _ in range(3):
            client.try_send([b"x"])
            assert await accepted.receive_some() == b"x"
        at_once = accepted.stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        assert bool(at_once) is not is_one_way
    finally:
        for end in (client, accepted, listener):
            end.close()
