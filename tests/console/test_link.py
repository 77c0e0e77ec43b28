"""The console's end of the network before nodes that die, answer late, or answer half."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from support.stores.certificates import certificates
from trioha_console.link import Links, NotConnected

from trioha.config import BrokerConfig
from trioha.config.tls_files import server_context
from trioha.errors import Unreachable
from trioha.remoting.node_proofs import CHALLENGE_FIELD, is_proven
from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

Serve = Callable[[RemotingCommand, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def node(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Listen as a node; `serve` is given each request."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                prefix = await reader.readexactly(4)
                rest = await reader.readexactly(int.from_bytes(prefix))
                await serve(decode_frame(prefix + rest), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()


def question() -> RemotingCommand:
    return RemotingCommand(RequestCode.TRIOHA_NODE_STATUS)


async def answer(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(command.response(body=b"well")))


async def test_an_answer_goes_to_who_asked_also_when_answers_overtake_each_other() -> None:
    held: list[RemotingCommand] = []

    async def backwards(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        held.append(command)
        if len(held) == 3:
            for one in reversed(held):
                writer.write(encode(one.response(body=str(one.ext_fields["n"]).encode())))

    links = Links()
    async with node(backwards) as address:
        asked = [RemotingCommand(RequestCode.TRIOHA_NODE_STATUS, {"n": n}) for n in range(3)]
        answers = await asyncio.gather(*(links.request(address, one) for one in asked))
        assert [one.body_bytes() for one in answers] == [b"0", b"1", b"2"]
        await links.close()


async def test_nobody_listens() -> None:
    async with node(answer) as address:
        pass
    with pytest.raises(NotConnected, match=f"{address}: Connection refused"):
        await Links().request(address, question())


async def test_a_node_that_answers_too_late_costs_its_question_only() -> None:
    async def late(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        if command.ext_fields.get("n") == "slow":
            return
        await answer(command, writer)

    links = Links(request_timeout_s=0.05)
    async with node(late) as address:
        slow = RemotingCommand(RequestCode.TRIOHA_NODE_STATUS, {"n": "slow"})
        with pytest.raises(Unreachable, match=r"did not answer within 0\.05 s"):
            await links.request(address, slow)
        assert (await links.request(address, question(), 5.0)).body_bytes() == b"well"
        await links.close()


@pytest.mark.parametrize("share", [0, 3, 20])
async def test_a_node_that_dies_after_half_an_answer_is_asked_on_a_new_connection(
    share: int,
) -> None:
    deaths = 0

    async def half(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        nonlocal deaths
        if deaths:
            await answer(command, writer)
            return
        deaths += 1
        writer.write(encode(command.response(body=b"well"))[:share])
        await writer.drain()
        writer.close()

    links = Links()
    async with node(half) as address:
        with pytest.raises(Unreachable, match="connection closed by the node"):
            await links.request(address, question())
        assert (await links.request(address, question())).body_bytes() == b"well"
        await links.close()


async def test_what_does_not_speak_our_protocol_is_said() -> None:
    async def chatter(_: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    links = Links()
    async with node(chatter) as address:
        with pytest.raises(Unreachable, match="it does not speak our protocol"):
            await links.request(address, question())
        await links.close()


async def test_requests_of_an_account_are_signed() -> None:
    heard: list[RemotingCommand] = []

    async def listen(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        heard.append(command)
        await answer(command, writer)

    account = Credentials("operator-1", "operator-secret")
    async with node(listen) as address:
        for links in (Links(credentials=account), Links()):
            await links.request(address, question())
            await links.close()
    signed, unsigned = heard
    assert account.key.has_signed(signed)
    assert not unsigned.ext_fields


@pytest.mark.parametrize("account", [None, Credentials("operator-1", "operator-secret")])
@pytest.mark.parametrize("secret", ["", "the secret of this cluster", "the secret of another one"])
async def test_a_node_that_asks_for_proof_gets_it_from_who_knows_the_secret(
    secret: str, account: Credentials | None
) -> None:
    right, challenge = Keyring("the secret of this cluster"), "ab" * 32
    done: list[RemotingCommand] = []

    async def ask_for_proof(command: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        # The account's signature covers the proof, and the proof does not cover the signature.
        assert account is None or account.key.has_signed(command)
        if command.ext_str(CHALLENGE_FIELD, "") == challenge and is_proven(right, command):
            done.append(command)
            await answer(command, writer)
        else:
            fields: dict[str, ExtValue] = {CHALLENGE_FIELD: challenge}
            no = command.response(ResponseCode.NO_PERMISSION, "proof", fields)
            writer.write(encode(no))

    links = Links(keyring=Keyring(secret), credentials=account)
    async with node(ask_for_proof) as address:
        response = await links.request(address, question())
        assert response.code == (0 if "this" in secret else ResponseCode.NO_PERMISSION)
        assert len(done) == ("this" in secret)
        await links.close()


async def test_a_node_is_asked_over_tls_and_a_wrong_certificate_is_named() -> None:
    made = certificates()
    for name, words in (("node", ""), ("expired", "has expired"), ("foreign", "not trusted here")):
        config = BrokerConfig(**made.settings(name))
        async with node(answer, server_context(config)()) as address:
            links = Links(tls=made.client())
            if words:
                with pytest.raises(NotConnected, match=words):
                    await links.request(address, question())
            else:
                assert (await links.request(address, question())).body_bytes() == b"well"
            await links.close()


async def test_a_node_without_tls_is_named_as_such() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    with pytest.raises(NotConnected, match="it may not speak TLS"):
        await Links(tls=certificates().client()).request(address, question())
    server.close()
