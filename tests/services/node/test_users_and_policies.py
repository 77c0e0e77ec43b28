"""Whole brokers with users and policies (ACL 2.0), in the test's own loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
from support.nodes.live_group import LiveGroup, Member, live_group
from support.nodes.live_node import NAME, send_request
from support.nodes.live_set import Broker, LiveSet, follows, level, live_set

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerRole
from trioha.errors import ConfigError
from trioha.failover.outcome import Result
from trioha.security.policies import User, UserType
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signature import Credentials
from trioha.services.loop.clock import Clock
from trioha.services.node import acl_files
from trioha.services.node.acl_files import AuthFiles
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode as C
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

ADMIN, SHOP = Credentials("admin", "admin-secret"), Credentials("shop", "shop-secret")
FORGER, STRANGER = Credentials("admin", "not-the-secret"), Credentials("nobody", "x")
SETTINGS: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": "admin", "password": "admin-secret"}),
    "inner_client_authentication_credentials": json.dumps(
        {"accessKey": "inner", "secretKey": "inner-secret"}
    ),
}
SUCCESS, NO_PERMISSION = int(ResponseCode.SUCCESS), int(ResponseCode.NO_PERMISSION)


async def ask(
    address: str, request: RemotingCommand, by: Credentials | None = ADMIN
) -> RemotingCommand:
    sign = (lambda request: None) if by is None else by.sign
    async with open_remoting_client(*parse_address(address), Clock(), sign=sign) as client:
        return await client.request(request)


async def status_of(broker: Broker) -> dict[str, Any]:
    answer = await ask(broker.address, RemotingCommand(C.TRIOHA_NODE_STATUS))
    assert answer.code == SUCCESS, answer.remark
    status: dict[str, Any] = msgpack.unpackb(answer.body_bytes(), strict_map_key=False)
    return status


async def make_shop(address: str) -> None:
    """A user who may send to `T`."""
    info = {"username": "shop", "password": "shop-secret"}
    entries = [{"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}]
    acl = {"subject": "User:shop", "policies": [{"entries": entries}]}
    for code, fields, body in (
        (C.AUTH_CREATE_USER, {"username": "shop"}, info),
        (C.AUTH_CREATE_ACL, {"subject": "User:shop"}, acl),
    ):
        answer = await ask(address, RemotingCommand(code, dict(fields), json.dumps(body).encode()))
        assert answer.code == SUCCESS, answer.remark


async def send(address: str, by: Credentials | None = SHOP, topic: str = "T") -> int:
    return (await ask(address, send_request(topic=topic), by)).code


PROVEN = SETTINGS | {"ha_secret": "of the set"}
"""Accounts go over links between proven nodes alone."""


@asynccontextmanager
async def set_of_two(
    root: Path, settings: Mapping[str, Any] = SETTINGS
) -> AsyncIterator[tuple[LiveSet, Broker, Broker]]:
    async with live_set(root, **settings) as one:
        master, slave = await one.add(BrokerRole.ASYNC_MASTER), await one.add()
        for broker in (master, slave):
            await make_shop(broker.address)
        assert await send(master.address) == SUCCESS
        while True:
            if level(await status_of(master)) and follows(await status_of(slave)):
                break
            await trio.sleep(0.01)  # it is a real network
        yield one, master, slave


async def test_no_code_of_a_broker_is_carried_out_without_a_right(tmp_path: Path) -> None:
    async with live_set(tmp_path, **SETTINGS) as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        await make_shop(master.address)
        before = await status_of(master)
        rejected = 0
        for by in (None, FORGER, STRANGER, SHOP):
            for code, requirement in REQUIREMENTS[Port.BROKER].items():
                if requirement.by_connection:
                    continue
                fields = {"topic": "U", "b": "U", "group": "g", "consumerGroup": "g"}
                body = (
                    b'{"consumerGroup":"g","group":"g","consumerDataSet":[{"groupName":"g"}],'
                    b'"acks":[{"c":"g","t":"U"}]}'
                )
                answer = await ask(master.address, RemotingCommand(code, dict(fields), body), by)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    continue  # plain accounts, or the other kind of broker
                if by is SHOP and code in (C.VIEW_MESSAGE_BY_ID, C.END_TRANSACTION):
                    continue  # there is no message whose topic could be asked
                assert answer.code == NO_PERMISSION, (by, code, answer.code, answer.remark)
                rejected += 1
        assert rejected > 4 * 60
        after = await status_of(master)
        for key in ("max_phy_offset", "role", "epoch", "topics", "groups"):
            assert before.get(key) == after.get(key), key
        assert master.events.of("acl_denied")


async def test_a_set_replicates_and_is_failed_over_by_a_super_user_alone(tmp_path: Path) -> None:
    async with set_of_two(tmp_path) as (one, _, slave):
        for by in (None, SHOP):
            async with open_cluster(one.namesrv, ClusterConfig(credentials=by)) as cluster:
                outcome = await run_failover(cluster, new_order(cluster, NAME))
                assert outcome.result is not Result.DONE, outcome
        async with open_cluster(one.namesrv, ClusterConfig(credentials=ADMIN)) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, NAME))
            assert outcome.result is Result.DONE, outcome
        assert await send(slave.address) == SUCCESS
        assert await send(slave.address, topic="U") == NO_PERMISSION


async def make_user(address: str, name: str) -> RemotingCommand:
    info = json.dumps({"username": name, "password": f"{name}-secret", "userType": "Super"})
    return await ask(
        address, RemotingCommand(C.AUTH_CREATE_USER, {"username": name}, info.encode())
    )


async def users_at(address: str) -> list[str]:
    answer = await ask(address, RemotingCommand(C.AUTH_LIST_USER))
    assert answer.code == SUCCESS, answer.remark
    return sorted(user["username"] for user in json.loads(answer.body_bytes()))


async def wait_users(address: str, names: list[str]) -> None:
    while True:
        if await users_at(address) == names:
            return
        await trio.sleep(0.01)  # it is a real network, and a file


LATE = Credentials("late", "late-secret")


async def test_users_of_the_master_are_those_of_the_slave_that_takes_over(tmp_path: Path) -> None:
    async with set_of_two(tmp_path, PROVEN) as (one, master, slave):
        assert (await make_user(master.address, "late")).code == SUCCESS
        gone = RemotingCommand(C.AUTH_DELETE_USER, {"username": "shop"})
        assert (await ask(master.address, gone)).code == SUCCESS
        async with open_cluster(one.namesrv, ClusterConfig(credentials=ADMIN)) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, NAME))
            assert outcome.result is Result.DONE, outcome
        with trio.fail_after(60):
            await wait_users(slave.address, ["admin", "inner", "late"])
        assert await send(slave.address, LATE) == SUCCESS
        assert await send(slave.address, SHOP) == NO_PERMISSION
        # The way back: the new master's users are the old master's now.
        assert (await make_user(slave.address, "last")).code == SUCCESS
        with trio.fail_after(60):
            await wait_users(master.address, ["admin", "inner", "last", "late"])


async def test_a_slave_that_comes_later_has_the_masters_users(tmp_path: Path) -> None:
    async with live_set(tmp_path, **PROVEN) as one:
        master = await one.add(BrokerRole.SYNC_MASTER)
        assert (await make_user(master.address, "late")).code == SUCCESS
        slave = await one.add()
        with trio.fail_after(60):
            await wait_users(slave.address, ["admin", "inner", "late"])
        # mqadmin sends a change to every broker: what the master's has done already is done.
        assert (await make_user(slave.address, "late")).code == SUCCESS
        assert (await make_user(master.address, "late")).code != SUCCESS


async def test_no_users_go_to_a_peer_that_proves_nothing(tmp_path: Path) -> None:
    async with set_of_two(tmp_path) as (_, master, slave):
        assert (await make_user(master.address, "late")).code == SUCCESS
        assert await send(master.address) == SUCCESS
        while True:
            if level(await status_of(master)):
                break
            await trio.sleep(0.01)  # it is a real network
        assert await users_at(slave.address) == ["admin", "inner", "shop"]


def rename(path: Path, name: str, new: str) -> None:
    path.with_suffix(".new").write_text(path.read_text().replace(name, new))
    path.with_suffix(".new").replace(path)


async def test_an_edited_file_counts_on_the_slave_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_files, "LOOK_S", 0.05)
    async with set_of_two(tmp_path, PROVEN) as (_, master, slave):
        path = Path(master.config.store_path_root_dir, "config", "auth.json")
        rename(path, "shop", "mall")
        with trio.fail_after(60):
            await wait_users(slave.address, ["admin", "inner", "mall"])


async def code_of(answer: Awaitable[RemotingCommand]) -> int:
    return (await answer).code


async def until(members: Iterable[Member], ask_one: Callable[[str], Awaitable[int]]) -> None:
    """Ask until a leader has been elected that answers SUCCESS."""
    while True:
        for member in members:
            if await ask_one(member.address) == SUCCESS:
                return
        await trio.sleep(0.05)


async def elected(group: LiveGroup) -> Member:
    while True:
        for member in group.members:
            answer = await ask(member.address, RemotingCommand(C.TRIOHA_NODE_STATUS))
            if msgpack.unpackb(answer.body_bytes(), strict_map_key=False)["standing"] == "MASTER":
                return member
        await trio.sleep(0.05)


async def test_a_group_has_the_users_that_its_majority_has_taken(tmp_path: Path) -> None:
    async with live_group(tmp_path, **PROVEN) as group:
        await group.start()
        with trio.fail_after(60):
            await until(group.members, lambda address: code_of(make_user(address, "late")))
            for member in group.members:
                assert (await make_user(member.address, "late")).code == SUCCESS
            for member in group.members:
                await wait_users(member.address, ["admin", "inner", "late"])
            leader = await elected(group)
            await leader.stop()
            others = group.besides(leader)
            await until(others, lambda address: send(address, LATE))


async def test_users_survive_a_restart_in_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    events = RecordedEvents()
    path = tmp_path / "config" / "auth.json"
    first = [User("admin", "admin-secret", UserType.SUPER)]
    files = AuthFiles(path, events, first)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text().replace("admin-secret", "changed-secret"))
    await files.look()
    assert files.rules.accounts["admin"].user.password == "changed-secret"
    again = AuthFiles(path, events, first)
    assert again.rules.accounts["admin"].user.password == "changed-secret"
    kept = files.rules
    path.write_text("{")
    await files.look()
    assert files.rules is kept
    (problem,) = events.of("acl_rejected")
    assert str(problem["reason"]).startswith(f"{path}: not readable as JSON")
    with pytest.raises(ConfigError, match="not readable as JSON"):
        AuthFiles(path, events, first)


async def test_a_broker_that_nobody_could_sign_in_to_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        AuthFiles(tmp_path / "auth.json", RecordedEvents(), [])


async def test_a_raft_group_elects_and_answers_its_users_alone(tmp_path: Path) -> None:
    async with live_group(tmp_path, **SETTINGS) as group:
        await group.start()
        for member in group.members:
            await make_shop(member.address)
        address = group.members[0].address
        while True:
            if await send(address) == SUCCESS:
                break
            await trio.sleep(0.01)  # it is a real network
        for member in group.members:
            for by in (None, FORGER, SHOP):
                hello = RemotingCommand(C.TRIOHA_RAFT_HELLO, {}, b"")
                assert (await ask(member.address, hello, by)).code == NO_PERMISSION
        assert await send(address, topic="U") == NO_PERMISSION
