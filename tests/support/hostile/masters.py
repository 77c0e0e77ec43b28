"""Masters and name servers that turn hostile: what they say is changed on its way to our node.

`HostileWay` stands between a node and one that it believes. It reads the frames that come, changes
some of them as a sender would that knows their structure, and signs a hello's answer anew, since a
hostile master knows the secret.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random

import msgpack

from support.hostile.bodies import packed
from support.hostile.values import NUMBERS, changed, damaged, odd_value
from trioha.errors import RemoteProtocolError
from trioha.ha.hello import Proofs
from trioha.remoting.connection import RemotingConnection
from trioha.services.ha.greeting import CHALLENGE_FIELD, PROOF_FIELD
from trioha.services.loop.parked_reader import Take
from trioha.services.loop.transport import Transport, take_each
from trioha.wire import fastjson
from trioha.wire.codes import SENDS, RequestCode, ResponseCode
from trioha.wire.ha_frames import EXTENDED_HEADER, KIND_LOG, KIND_METADATA
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode

_INTS = tuple(one for one in NUMBERS if type(one) is int)
_HELLO = int(RequestCode.HA_HELLO)


class Changes:
    """Changes that a hostile node makes to its frames; `count` so far."""

    def __init__(self, rng: Random, secret: str) -> None:
        self.rng = rng
        self.proofs = Proofs(Keyring(secret)) if secret else None
        self.share = 0.3
        """Share of frames that are changed. A node that trusts none any more reads none."""
        self.count = 0
        self.is_on = False

    def takes(self) -> bool:
        """Whether the next frame is changed."""
        is_taken = self.is_on and self.rng.random() < self.share
        self.count += is_taken
        return is_taken

    def answer(self, command: RemotingCommand, nonce: bytes) -> bytes:
        """A remoting frame, changed."""
        rng, body = self.rng, command.body_bytes()
        fields = dict(command.ext_fields)
        if body and rng.random() < 0.7:
            body = self.body(body)
        if fields and rng.random() < 0.3:
            fields[rng.choice([*fields, CHALLENGE_FIELD])] = rng.choice(("", "x", "zz" * 32, -1))
        if self.proofs is not None and PROOF_FIELD in fields and rng.random() < 0.9:
            fields[PROOF_FIELD] = self.proofs.of_master(nonce, body).hex()
        if rng.random() < 0.1:
            command.code = rng.choice((0, 1, 2, 3, 16, 17, -1, 9999))
        frame = encode(
            RemotingCommand(
                command.code, fields, body, command.opaque, command.flag, command.remark
            )
        )
        return damaged(rng, frame) if rng.random() < 0.1 else frame

    def verdict(self, command: RemotingCommand) -> bytes:
        """Return a name server's answer that names another master, or a very large answer."""
        rng = self.rng
        if rng.random() < 0.1:
            large = rng.choice((b"[" * (1 << 20), b'{"a":"' + b"x" * (1 << 22) + b'"}'))
            return encode(RemotingCommand(0, {}, large, command.opaque, command.flag))
        other = rng.choice(("10.0.0.1:1", "10.0.0.2:1", "10.0.9.9:1", "nowhere", ":", ""))
        fields = {
            "epoch": rng.choice((1, 2, 9, 1000, 1 << 20, *NUMBERS)),
            "epochNonce": rng.choice(("aa" * 8, "", "x", "aa")),
            "epochHeldMs": rng.choice((0, 1, 1 << 40, *_INTS)),
            "masterAddr": other,
            "haServerAddr": rng.choice((other, "10.0.0.1:2", "10.0.9.9:2", "")),
        }
        code = rng.choice((0, ResponseCode.FENCED_MASTER_EPOCH, ResponseCode.FENCED_MASTER_EPOCH))
        return encode(
            RemotingCommand(code, fields, b"", command.opaque, command.flag, "another is master")
        )

    def body(self, body: bytes) -> bytes:
        """msgpack or JSON with values changed; else bytes."""
        rng = self.rng
        with suppress(ValueError, TypeError, msgpack.UnpackException):
            return packed(changed(rng, msgpack.unpackb(body, strict_map_key=False)))
        with suppress(RemoteProtocolError, ValueError, TypeError):
            return fastjson.dumps(changed(rng, fastjson.loads(body)))
        return damaged(rng, body)

    def link_frame(self, header: bytes, body: bytes) -> bytes:
        """A frame of the replication link, changed."""
        rng = self.rng
        kind, epoch, offset, size = EXTENDED_HEADER.unpack(header)
        if kind == KIND_METADATA and rng.random() < 0.7:
            ops = msgpack.unpackb(body, strict_map_key=False)
            if rng.random() < 0.3:
                ops = [1, [rng.randrange(14), odd_value(rng)]]
            body = damaged(rng, body) if rng.random() < 0.1 else packed(changed(rng, ops))
            return EXTENDED_HEADER.pack(kind, epoch, offset, len(body)) + body
        if kind == KIND_LOG and size and rng.random() < 0.5:
            return header + damaged_log(rng, body)
        numbers = [kind, epoch, offset, size]
        at = rng.randrange(3 if kind == KIND_LOG else 4)
        numbers[at] = rng.choice((0, 1, 2, 3, 4, 255)) if at == 0 else rng.choice(_INTS)
        with suppress(struct.error):
            header = EXTENDED_HEADER.pack(*numbers)
        return header + body


def damaged_log(rng: Random, log: bytes) -> bytes:
    """Bytes of log, some of them others: no record, or one with odd fields."""
    made = bytearray(log)
    at = rng.choice((0, 4, 12, 20, 28, 36, 84, 88, rng.randrange(len(made))))
    new = rng.choice((rng.randbytes(4), bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"))
    made[at : at + len(new)] = new
    return bytes(made[: len(log)])


class HostileWay:
    """A connection of our node's whose other end is hostile. Implements `Transport`."""

    def __init__(
        self,
        transport: Transport,
        changes: Changes,
        *,
        is_link: bool = False,
        is_namesrv: bool = False,
    ) -> None:
        self.peer = transport.peer
        self.waited_ms = 0
        self._transport = transport
        self._changes = changes
        self._is_link = is_link
        self._is_namesrv = is_namesrv
        self._machine = RemotingConnection()
        self._asked = RemotingConnection()
        self._sends: set[int] = set()
        self._nonce = b""
        self._data = b""
        self._is_begun = False

    async def receive_some(self) -> bytes:
        while True:
            data = await self._transport.receive_some()
            if not data:
                return data
            made = self._link_data(data) if self._is_link else self._answers(data)
            if made:
                return made

    async def receive_each(self, take: Take) -> bool:
        return await take_each(self, take)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        self._listen(buffers)
        return self._transport.try_send(buffers)

    async def send_some(self, buffers: list[Buffer]) -> list[Buffer]:
        return await self._transport.send_some(buffers)

    async def send_all(self, buffers: list[Buffer]) -> None:
        self._listen(buffers)
        await self._transport.send_all(buffers)

    def finish(self) -> None:
        self._transport.finish()

    def close(self) -> None:
        self._transport.close()

    def peer_has_gone(self) -> bool:
        return self._transport.peer_has_gone()

    def abort(self) -> None:
        self._transport.abort()

    def _listen(self, buffers: list[Buffer]) -> None:
        """Learn the nonce of a hello, which its answer is signed with, and the sends of clients.

        The answer to a client's send that our node forwards stays as it is: a test would believe
        that a message is stored.
        """
        if self._is_link:
            return
        self._asked.receive_data(b"".join(buffers))
        while (command := self._asked.next_frame()) is not None:
            if command.code == _HELLO and not command.is_response:
                hello = msgpack.unpackb(command.body_bytes(), strict_map_key=False)
                self._nonce = hello.get("nonce", b"")
            elif command.code in SENDS and not command.is_response:
                self._sends.add(command.opaque)

    def _answers(self, data: bytes) -> bytes:
        made = b""
        self._machine.receive_data(data)
        while (command := self._machine.next_frame()) is not None:
            is_of_client = command.is_response and command.opaque in self._sends
            if is_of_client or not self._changes.takes():
                made += encode(command)
            elif self._is_namesrv and self._changes.rng.random() < 0.6:
                made += self._changes.verdict(command)
            else:
                made += self._changes.answer(command, self._nonce)
        return made

    def _link_data(self, data: bytes) -> bytes:
        """Whole frames behind the challenge, if there is one."""
        self._data += data
        made = b""
        if not self._is_begun:
            self._is_begun = True
            if self._changes.proofs is not None:
                made, self._data = self._data, b""
                return damaged(self._changes.rng, made) if self._changes.takes() else made
        head = EXTENDED_HEADER.size
        while len(self._data) >= head:
            size = EXTENDED_HEADER.unpack(self._data[:head])[3]
            if size < 0:  # a link of the classic kind, after a changed answer
                made, self._data = made + self._data, b""
                break
            if len(self._data) < head + size:
                break
            header, body = self._data[:head], self._data[head : head + size]
            self._data = self._data[head + size :]
            made += (
                self._changes.link_frame(header, body) if self._changes.takes() else header + body
            )
        return made
