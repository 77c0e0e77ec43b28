"""The hello's handler: challenges belong to their connections."""

from __future__ import annotations

from pathlib import Path

from support.handlers.sending import FakeChannel, at
from support.nodes.handshakes import Member, greeted_set

from trioha.ha.hello import Hello, Proofs
from trioha.remoting.channel import Channel
from trioha.services.ha.greeting import CHALLENGE_FIELD, PROOF_FIELD
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SECRET = "s3cret"


def hello_of(member: Member) -> bytes:
    name = member.config.broker_name
    return Hello.of(name, member.address, member.mastership, member.store).encode()


def ask(member: Member, channel: Channel, body: bytes, challenge: str = "") -> RemotingCommand:
    fields: dict[str, ExtValue] = {}
    if challenge:
        proof = Proofs(SECRET).of_slave(bytes.fromhex(challenge), body)
        fields = {CHALLENGE_FIELD: challenge, PROOF_FIELD: proof.hex()}
    request = RemotingCommand(RequestCode.HA_HELLO, fields, body)
    return member.greeting.answer(channel, request, at(1))


async def test_a_flood_of_hellos_keeps_no_slave_from_its_proof(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, ha_secret=SECRET) as set_:
        master, slave = set_.members
        body, channel = hello_of(slave), FakeChannel()
        challenge = ask(master, channel, body).ext_str(CHALLENGE_FIELD)
        stranger = FakeChannel()
        for _ in range(1000):
            assert ask(master, stranger, body).code == ResponseCode.NO_PERMISSION
        assert ask(master, channel, body, challenge).code == ResponseCode.SUCCESS


async def test_a_challenge_serves_once_and_on_its_own_connection(tmp_path: Path) -> None:
    async with greeted_set(tmp_path, ha_secret=SECRET) as set_:
        master, slave = set_.members
        body, channel = hello_of(slave), FakeChannel()
        challenge = ask(master, channel, body).ext_str(CHALLENGE_FIELD)
        for other, code in (
            (FakeChannel(), ResponseCode.NO_PERMISSION),
            (channel, ResponseCode.SUCCESS),
            (channel, ResponseCode.NO_PERMISSION),
        ):
            assert ask(master, other, body, challenge).code == code
