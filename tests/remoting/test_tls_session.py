from __future__ import annotations

import os

import pytest
from support.stores.certificates import certificates, shake

from trioha.config import BrokerConfig
from trioha.config.tls_files import ClientTls, client_context, server_context
from trioha.errors import RemoteProtocolError
from trioha.remoting.tls_session import TlsSession

CERTIFICATES = certificates()


def sessions(
    server: str = "node", client: ClientTls | None = None, host: str = "127.0.0.1", **more: str
) -> tuple[TlsSession, TlsSession]:
    config = BrokerConfig(**CERTIFICATES.settings(server, **more))
    context = client_context(client or CERTIFICATES.client())()
    return TlsSession(server_context(config)()), TlsSession(context, server_hostname=host)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_bytes_come_out_as_they_went_in(step: int) -> None:
    server, client = sessions()
    shake(server, client, step)
    for size in (1, 300, 16_384, 16_385, 200_000):
        body = os.urandom(size)
        client.seal([b"", body[:10], memoryview(body)[10:]])
        data, got = client.take_ciphertext(), b""
        for start in range(0, len(data), max(step, 5)):
            server.feed(data[start : start + max(step, 5)])
            got += server.open_fed()
        assert got == body


def test_all_records_of_one_read_come_out_at_once() -> None:
    server, client = sessions()
    shake(server, client)
    for number in range(50):
        client.seal([b"%d " % number])
    server.feed(client.take_ciphertext())
    assert server.open_fed().split() == [b"%d" % number for number in range(50)]
    assert server.open_fed() == b""


def test_small_buffers_of_one_write_share_a_record() -> None:
    server, client = sessions()
    shake(server, client)
    client.seal([b"x"] * 1000)
    assert len(client.take_ciphertext()) < 1100


def test_what_came_before_the_close_is_read() -> None:
    server, client = sessions()
    shake(server, client)
    client.seal([b"last words"])
    server.feed(client.take_ciphertext() + client.close())
    assert server.open_fed() == b"last words"
    assert server.ended


@pytest.mark.parametrize("position", [1, -1], ids=["version", "checksum"])
def test_a_changed_byte_ends_the_connection(position: int) -> None:
    server, client = sessions()
    shake(server, client)
    client.seal([b"hello"])
    data = bytearray(client.take_ciphertext())
    data[position] ^= 1
    server.feed(bytes(data))
    with pytest.raises(RemoteProtocolError, match="bytes were changed on the way"):
        server.open_fed()
    assert server.take_ciphertext(), "an alert tells the peer"


@pytest.mark.parametrize(
    ("server", "host", "words"),
    [
        ("expired", "127.0.0.1", "its certificate has expired; replace the certificate"),
        ("foreign", "127.0.0.1", "an authority that is not trusted here"),
        (
            "operator",
            "127.0.0.1",
            "its certificate is not for this end of a connection",
        ),
        ("elsewhere", "127.0.0.1", "for another host: IP address mismatch"),
        ("elsewhere", "localhost", "for another host: Hostname mismatch"),
    ],
)
def test_a_client_says_why_it_trusts_no_such_node(server: str, host: str, words: str) -> None:
    accepting, client = sessions(server, host=host)
    with pytest.raises(RemoteProtocolError, match=words):
        shake(accepting, client)
    accepting.feed(client.take_ciphertext())
    with pytest.raises(RemoteProtocolError, match="it rejected the certificate of this side"):
        accepting.handshake()


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("", "it showed no certificate"),
        ("foreign", "an authority that is not trusted here"),
        ("expired", "its certificate has expired"),
    ],
)
def test_a_node_that_requires_certificates_says_why_it_rejects_one(client: str, words: str) -> None:
    accepting, connecting = sessions(
        client=CERTIFICATES.client(client), tls_server_need_client_auth="require"
    )
    with pytest.raises(RemoteProtocolError, match=words):
        shake(accepting, connecting)
    # TLS 1.3: the client believes that the handshake is complete, and reads the alert then.
    connecting.feed(accepting.take_ciphertext())
    with pytest.raises(RemoteProtocolError, match="certificate of this side"):
        connecting.open_fed()


def test_a_node_that_requires_certificates_accepts_one_of_its_ca() -> None:
    shake(*sessions(client=CERTIFICATES.client("operator"), tls_server_need_client_auth="require"))


def test_a_peer_without_tls_is_named_as_such() -> None:
    _, client = sessions()
    client.handshake()
    client.feed(b"\0\0\0\x10 plain bytes of a frame")
    with pytest.raises(RemoteProtocolError, match="it may not speak TLS"):
        client.handshake()
