"""Connections of hostile peers to the ports of a node."""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random
from typing import Any

import attrs
import msgpack
import trio

from support.hostile.bodies import packed
from support.hostile.frames import HostileFrames
from support.hostile.values import NUMBERS, changed, damaged, odd_bytes
from support.nodes.raft_messages import names_of
from trioha.dledger import messages as say
from trioha.dledger.membership import Configuration
from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.peer_hello import PeerHello, PeerProofs, pack, unpack
from trioha.errors import RemoteProtocolError, Unreachable
from trioha.ha import auth
from trioha.remoting.connection import RemotingConnection
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.remoting.client import open_remoting_client
from trioha.wire.codes import RequestCode
from trioha.wire.ha_frames import EXTENDED_MAGIC, EXTENDED_OPENING, EXTENDED_REPORT, REPORT
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand, encode

_HEAD_SIZE = struct.Struct(">I")
PROBE = 0x7FFF_FF01
ANSWER_S = 300.0
"""On virtual time: longer than any request waits."""
PATIENCE_S = 1.0


class Unanswered(AssertionError):
    """A connection was neither answered nor closed."""


async def talk(transport: Transport, frames: HostileFrames, count: int) -> None:
    """Send so many frames and wait for an answer to the last one, or for the end.

    Errors: Unanswered.
    """
    machine = RemotingConnection()
    probe = encode(RemotingCommand(31_998, opaque=PROBE))
    data = b"".join(frames.frames(count)) + probe
    try:
        with trio.fail_after(ANSWER_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send, transport, data)
                while received := await transport.receive_some():
                    machine.receive_data(received)
                    while (answer := machine.next_frame()) is not None:
                        frames.learn(answer)
                        if answer.opaque == PROBE and answer.is_response:
                            return
    except trio.BrokenResourceError:
        pass
    except trio.TooSlowError:
        raise Unanswered(f"{transport.peer} was neither answered nor closed") from None
    finally:
        transport.close()


async def _send(transport: Transport, data: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await transport.send_all([data])


async def talk_proven(
    transport: Transport, frames: HostileFrames, count: int, clock: Clock, keyring: Keyring
) -> None:
    """Ask what only nodes and operators may ask, with proof of the secret."""
    try:
        async with open_remoting_client(
            "hostile", 1, clock, transport=transport, keyring=keyring, sign=frames.sign
        ) as client:
            for _ in range(count):
                request = frames.request()
                request.flag = 0
                with trio.move_on_after(PATIENCE_S):
                    frames.learn(await client.request(request))
    except Unreachable:
        pass


async def follow(transport: Transport, rng: Random, count: int, secret: str) -> None:
    """Follow a master on its HA port, more or less."""
    try:
        if secret:
            challenge = await transport.receive_some()
            await transport.send_all([auth.answer(secret, challenge)])
        opening = EXTENDED_OPENING.pack(EXTENDED_MAGIC, rng.randrange(4), b"\xaa" * 8, 9)
        data = opening if rng.random() < 0.5 else REPORT.pack(rng.choice((0, 0, 100, -1, 1 << 60)))
        report = EXTENDED_REPORT if data is opening else REPORT
        for _ in range(count):
            numbers = [rng.choice((0, 0, 1, 100, 2000, -1, 2**63 - 1)) for _ in report.format[1:]]
            one = report.pack(*numbers)
            data += damaged(rng, one) if rng.random() < 0.05 else one
        await transport.send_all([damaged(rng, data) if rng.random() < 0.5 else data])
        with trio.move_on_after(PATIENCE_S):
            while await transport.receive_some():
                pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        transport.close()


async def scrape(transport: Transport, rng: Random) -> None:
    """Ask the HTTP port for a page, more or less."""
    path = rng.choice(("/livez", "/readyz", "/metrics", "/x", "*", "//"))
    data = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".encode()
    if rng.random() < 0.7:
        data = damaged(rng, data)
    try:
        await transport.send_all([data + odd_bytes(rng, 30) if rng.random() < 0.3 else data])
        with trio.move_on_after(PATIENCE_S):
            while await transport.receive_some():
                pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        transport.close()


@attrs.frozen
class RaftGuise:
    """The member of a group that a hostile peer poses as."""

    door: GroupDoor
    target: str
    address: str
    proofs: PeerProofs


async def pose(
    transport: Transport, guise: RaftGuise, rng: Random, count: int, term: int, end: int
) -> int:
    """Greet as a member and send Raft messages; return how many frames were sent."""
    machine = RemotingConnection()

    async def ask(body: bytes) -> RemotingCommand:
        await transport.send_all([encode(RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, body))])
        while True:
            if (answer := machine.next_frame()) is not None:
                return answer
            if not (data := await transport.receive_some()):
                raise trio.BrokenResourceError
            machine.receive_data(data)

    sent = 2
    try:
        hello = PeerHello.of(guise.door, guise.target, guise.address, rng.randbytes(16))
        nonce = unpack((await ask(pack(hello.plain()))).body_bytes())[1]
        await ask(pack(["proof", guise.proofs.of_caller(hello, nonce)]))
        for _ in range(count):
            message = _message(rng, guise, term, end)
            head, *body = guise.door.encode(message)
            if rng.random() < 0.2:
                fields = packed(changed(rng, msgpack.unpackb(head[_HEAD_SIZE.size :])))
                head = _HEAD_SIZE.pack(len(fields)) + fields
            command = RemotingCommand(code_of(message), {}, b"".join([head, *body]), flag=2)
            frame = encode(command)
            sent += 1
            await transport.send_all([damaged(rng, frame) if rng.random() < 0.05 else frame])
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(PATIENCE_S):
            while await transport.receive_some():
                pass
    except (trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError):
        pass  # the node has closed the connection, or rejected the greeting
    finally:
        transport.close()
    return sent


_KINDS: tuple[type[say.RaftMessage], ...] = (
    *(say.VoteRequest, say.VoteResponse, say.StaleTerm, say.Heartbeat, say.HeartbeatResponse),
    *(say.Compare, say.Truncate, say.Append, say.PushResponse, say.Install, say.TimeoutNow),
)
_WEIGHTS = (2, 2, 2, 3, 3, 3, 3, 4, 3, 1, 1)


def _message(rng: Random, guise: RaftGuise, term: int, end: int) -> say.RaftMessage:
    kind = rng.choices(_KINDS, _WEIGHTS)[0]
    values: dict[str, Any] = {}
    for name in names_of(kind):
        values[name] = _field(rng, name, term, end)
    values |= {"source": guise.door.member_id, "target": guise.target}
    message: say.RaftMessage = kind(**values)
    return message


def _field(rng: Random, name: str, term: int, end: int) -> object:
    match name:
        case "term":
            return term + rng.choice((0, 0, 0, 1, -1))
        case "body":
            return odd_bytes(rng) if rng.random() < 0.5 else b""
        case "configuration":
            return rng.choice((0, end)), Configuration.of("n0", "n1", "n2")
        case "rows":
            return ((1, 0), (term, end))
        case "reason":
            return "r"
        case "type":
            return rng.choice(list(say.PushType))
        case "status":
            return rng.choice(list(say.PushStatus))
    if name in ("is_pre", "by_transfer", "granted", "conflict"):
        return rng.random() < 0.5
    if "term" in name:
        return rng.choice((term, term, 0, term + 1))
    if rng.random() < 0.1:
        return rng.choice([one for one in NUMBERS if type(one) is int])
    return rng.choice((end, end, 0, end - 1, end + 1))
