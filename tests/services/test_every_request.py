"""Every declared request code at every kind of node, sent by callers who may not: none is obeyed.

The callers: one without any proof, one that signs with a wrong key and proves another secret, one
whose account and secret were valid until they were removed, and one that sends again what an
operator has proven.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from support.nodes.live_group import live_group
from support.nodes.live_node import SUCCESS, live_namesrv, send_request
from support.nodes.live_set import live_set

from trioha.config import BrokerRole, secret_files
from trioha.errors import Unreachable
from trioha.remoting.node_proofs import is_challenge, proven
from trioha.security.requirement import Right
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signature import Credentials
from trioha.services.loop.clock import Clock
from trioha.services.node import acl_files
from trioha.services.node.access_control import ACL_FILE
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.wire.codes import RequestCode as Code
from trioha.wire.codes import ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SECRET, GONE_SECRET = "the secret of this cluster", "the secret that it had before"
OPERATOR = Credentials("operator-1", "operator-secret")
GONE = Credentials("operator-0", "operator-secret")
_ACCOUNT = "- accessKey: {}\n  secretKey: operator-secret\n  admin: true\n"
ACCOUNTS = "accounts:\n" + _ACCOUNT.format(OPERATOR.access_key)
OPEN_READS = {
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
}
"""Codes that slaves of another make poll. Without accounts any caller may, as with routes."""
PROVEN_BY_OPERATORS = {Code.HA_RESYNC, Code.TRIOHA_RAFT_ADMIN}
MEMBERS = 3
OWN_CHALLENGES = {Code.HA_HELLO, Code.TRIOHA_RAFT_HELLO}
"""tests/services/ha/test_greeting.py and tests/services/raft/test_links.py send theirs again."""


@attrs.frozen
class Caller:
    credentials: Credentials | None
    secret: str

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[RemotingClient]:
        by = self.credentials
        sign = (lambda request: None) if by is None else by.sign
        async with open_remoting_client(
            *parse_address(address), Clock(), sign=sign, keyring=Keyring(self.secret)
        ) as client:
            yield client


STRANGERS = {
    "unsigned": Caller(None, ""),
    "wrongly signed": Caller(attrs.evolve(OPERATOR, secret_key="not-the-secret"), "another secret"),
    "expired": Caller(GONE, GONE_SECRET),
}


@attrs.frozen
class Target:
    """A node, and whether it asks for accounts."""

    address: str
    port: Port
    accounts: bool

    @property
    def codes(self) -> list[Code]:
        """Codes that strangers may not send here."""
        return [
            code
            for code, one in REQUIREMENTS[self.port].items()
            if one.right is not Right.ANONYMOUS
            and (
                self.accounts
                or one.changes
                or code in PROVEN_BY_OPERATORS
                or (one.right is Right.NODE and code not in OPEN_READS)
            )
        ]

    async def state(self) -> list[object]:
        """Return the state that strangers could have changed."""
        codes: tuple[Code, ...] = (Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_NAMESRV_CONFIG)
        if self.port is Port.BROKER:
            codes = (Code.GET_BROKER_CONFIG, Code.GET_ALL_TOPIC_CONFIG, Code.GET_MAX_OFFSET)
        async with Caller(OPERATOR, SECRET).at(self.address) as client:
            answers = [
                await client.request(RemotingCommand(code, {"topic": "T", "queueId": 0}))
                for code in codes
            ]
        return [(answer.code, answer.body_bytes()) for answer in answers]

    async def until_sent(self) -> None:
        """Wait until the group has a leader."""
        while True:
            async with Caller(OPERATOR, SECRET).at(self.address) as client:
                if (await client.request(send_request())).code == SUCCESS:
                    return
            await trio.sleep(0.01)  # it is a real network

    async def until_forgotten(self) -> None:
        """Wait until the node knows neither the removed account nor the removed secret."""
        secret = (
            Code.UPDATE_NAMESRV_CONFIG if self.port is Port.NAMESRV else Code.CLEAN_UNUSED_TOPIC
        )
        # The two files are read one after the other; an account is enough for the second code.
        codes = [secret, Code.TRIOHA_NODE_TASKS] if self.accounts else [secret]
        while codes:
            async with STRANGERS["expired"].at(self.address) as client:
                if is_rejection(await client.request(RemotingCommand(codes[0]))):
                    del codes[0]
                    continue
            await trio.sleep(0.01)  # it is a real network


def is_rejection(answer: RemotingCommand) -> bool:
    words = (answer.remark or "").startswith("org.apache.rocketmq.acl.common.AclException")
    return answer.code == ResponseCode.NO_PERMISSION or (
        answer.code == ResponseCode.SYSTEM_ERROR and words
    )


def request_of(code: Code) -> RemotingCommand:
    fields: dict[str, ExtValue] = {"topic": "T", "b": "T", "group": "g", "consumerGroup": "g"}
    return RemotingCommand(code, {**fields, "offset": 0, "commitLogOffset": 0}, b"{}")


async def answer_to(
    target: Target, code: Code, ask: Callable[[RemotingClient], Awaitable[RemotingCommand]]
) -> RemotingCommand | None:
    """Return the answer on a connection of its own; None if the node closed it."""
    async with STRANGERS["unsigned"].at(target.address) as client:
        try:
            return await ask(client)
        except Unreachable:
            return None


async def check_strangers(target: Target) -> tuple[int, list[tuple[str, Code]]]:
    """Send every code as every stranger; return how many were sent, and the ones not rejected."""
    count, obeyed = 0, []
    for name, caller in STRANGERS.items():
        for code in target.codes:
            async with caller.at(target.address) as client:
                with trio.fail_after(10):
                    try:
                        answer = await client.request(request_of(code))
                    except Unreachable:
                        assert REQUIREMENTS[target.port][code].by_connection, code
                        count += 1  # a message without a proven sender ends its connection
                        continue
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                continue  # another kind of node serves it
            count += 1
            if not is_rejection(answer):
                obeyed.append((name, code))
    return count, obeyed


async def check_replays(target: Target) -> tuple[int, list[tuple[str, Code]]]:
    """Send again what an operator has proven, on its connection and on another one."""
    count, obeyed = 0, []
    for code in target.codes:
        if code in OWN_CHALLENGES or REQUIREMENTS[target.port][code].by_connection:
            continue
        async with Caller(OPERATOR, "").at(target.address) as client:
            answer = await client.request(request_of(code))
            if not is_challenge(answer):
                continue  # an account is enough for it
            again = proven(Keyring(SECRET), answer, request_of(code))
            assert not is_challenge(await client.request(again)), code
            async with Caller(OPERATOR, "").at(target.address) as other:
                for one in (client, other):
                    count += 1
                    if not is_challenge(await one.request(again)):
                        obeyed.append(("replayed", code))
    return count, obeyed


@asynccontextmanager
async def target_of(kind: str, root: Path, accounts: bool) -> AsyncIterator[Target]:
    secret = root / "secret"
    secret.write_text(f"{SECRET}\n{GONE_SECRET}\n")
    # Each member has its own: one that is behind would write an older text over a new one.
    stores = [root / f"n{number}" / "config" for number in range(MEMBERS)]
    acls = [place / ACL_FILE for place in ([root] if kind != "raft member" else stores)]
    for acl in acls:
        acl.parent.mkdir(parents=True, exist_ok=True)
        acl.write_text(ACCOUNTS + _ACCOUNT.format(GONE.access_key))
    settings: dict[str, Any] = {"cluster_secret_file": str(secret), "acl_enable": accounts}
    if kind != "raft member":
        settings["acl_file"] = str(acls[0])

    async def forget(target: Target) -> Target:
        async with STRANGERS["expired"].at(target.address) as client:
            code = Code.PUT_KV_CONFIG if target.port is Port.NAMESRV else Code.UPDATE_BROKER_CONFIG
            assert not is_rejection(await client.request(RemotingCommand(code)))
        secret.write_text(f"{SECRET}\n")
        for acl in acls:
            acl.write_text(ACCOUNTS)
        await target.until_forgotten()
        return target

    if kind == "name server":
        async with live_namesrv(root, **settings) as (nursery, address):
            yield await forget(Target(address, Port.NAMESRV, accounts))
            nursery.cancel_scope.cancel()
    elif kind == "broker":
        async with live_set(root, **settings) as set_:
            broker = await set_.add(BrokerRole.SYNC_MASTER)
            yield await forget(Target(broker.address, Port.BROKER, accounts))
            await broker.stop()
    else:
        async with live_group(root, MEMBERS, **settings) as group:
            await group.start()
            target = Target(group[0].address, Port.BROKER, accounts)
            await target.until_sent()
            yield await forget(target)
            for member in group.members:
                await member.break_off()


@pytest.mark.parametrize("accounts", [True, False], ids=["accounts", "secret alone"])
@pytest.mark.parametrize("kind", ["broker", "name server", "raft member"])
async def test_no_stranger_is_obeyed(
    tmp_path: Path, kind: str, accounts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_files, "LOOK_S", 0.02)
    monkeypatch.setattr(secret_files, "_LOOK_INTERVAL_S", 0)
    async with target_of(kind, tmp_path, accounts) as target:
        before = await target.state()
        asked, obeyed = await check_strangers(target)
        assert await target.state() == before
        replayed, obeyed_again = await check_replays(target)
        assert obeyed + obeyed_again == []
        print(
            f"{kind}, {'accounts' if accounts else 'secret alone'}: {asked} + {replayed}, 0 obeyed"
        )
        assert asked >= 3 * (8 if target.port is Port.NAMESRV else 19)
        assert replayed >= 2
