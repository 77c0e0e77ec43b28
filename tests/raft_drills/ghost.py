"""Raft messages that the test sends in a member's name, as old ones that come late."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from raft_drills.hurt_group import BROKER, CLUSTER, SECRET, HurtGroup, Member
from support.processes.admin import receive_frame

from trioha.dledger.bootstrap import NONCE_BYTES
from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.messages import RaftMessage
from trioha.dledger.peer_hello import PROOF, PeerHello, PeerProofs, pack, unpack
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

ANSWER_S = 5.0


class Ghost:
    """A connection to a member that greets as another one and knows the secret."""

    def __init__(self, group: HurtGroup, source: Member, target: Member) -> None:
        founders = tuple(member.member_id for member in group.members)
        self._door = GroupDoor(CLUSTER, BROKER, source.member_id, founders)
        host, port = target.address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._socket.settimeout(ANSWER_S)
        try:
            self._greet(source, target)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Ghost:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, message: RaftMessage) -> None:
        body = b"".join(bytes(part) for part in self._door.encode(message))
        command = RemotingCommand(code_of(message), {}, body, flag=ONEWAY_FLAG)
        self._socket.sendall(encode(command))

    def wait_until_read(self) -> None:
        """Everything sent so far has been dealt with: one connection keeps its order."""
        command = RemotingCommand(RequestCode.TRIOHA_NODE_STATUS)
        self._socket.sendall(encode(command))
        decode_frame(receive_frame(self._socket))

    def _greet(self, source: Member, target: Member) -> None:
        hello = PeerHello.of(self._door, target.member_id, source.address, os.urandom(NONCE_BYTES))
        answer = self._exchange(hello.plain())
        nonce = answer[1]
        assert isinstance(nonce, bytes)
        self._exchange([PROOF, PeerProofs(SECRET).of_caller(hello, nonce)])

    def _exchange(self, fields: Sequence[object]) -> list[object]:
        command = RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, pack(list(fields)))
        self._socket.sendall(encode(command))
        answer = decode_frame(receive_frame(self._socket))
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
        return unpack(answer.body_bytes())
