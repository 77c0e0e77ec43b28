"""Whole nodes with access control, in the test's own loop: sets, Raft groups, a name server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
from support.handlers.transactions import COMMIT, half
from support.nodes.live_group import live_group
from support.nodes.live_node import NAME, send_request
from support.nodes.live_set import Broker, LiveSet, follows, level, live_set
from support.nodes.transactions import end_request
from support.stores.records import encode_record
from support.stores.small import message

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerRole, NamesrvConfig
from trioha.errors import ConfigError
from trioha.failover.outcome import Result
from trioha.security.requirement import Right
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signature import Credentials
from trioha.services.loop.clock import Clock
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.node import acl_files
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.record import FIXED_SIZE, SCAN_SIZE
from trioha.wire.remoting_command import ExtValue, RemotingCommand

OPERATOR = Credentials("operator-1", "operator-secret")
FORGER = Credentials("operator-1", "not-the-secret")
OWNER = Credentials("owner-1", "owner-secret")
PRODUCER = Credentials("producer-1", "producer-secret")
ACCOUNTS = """\
accounts:
- accessKey: operator-1
  secretKey: operator-secret
  admin: true
- accessKey: producer-1
  secretKey: producer-secret
  topicPerms: [T=PUB]
"""
SUCCESS = int(ResponseCode.SUCCESS)
JAVA = "org.apache.rocketmq.acl.common.AclException: "


@asynccontextmanager
async def talk_to(address: str, by: Credentials | None) -> AsyncIterator[RemotingClient]:
    sign = (lambda request: None) if by is None else by.sign
    async with open_remoting_client(*parse_address(address), Clock(), sign=sign) as client:
        yield client


async def ask(
    address: str, request: RemotingCommand, by: Credentials | None = OPERATOR
) -> RemotingCommand:
    async with talk_to(address, by) as client:
        return await client.request(request)


async def status_of(broker: Broker) -> dict[str, Any]:
    answer = await ask(broker.address, RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
    assert answer.code == SUCCESS, answer.remark
    status: dict[str, Any] = msgpack.unpackb(answer.body_bytes(), strict_map_key=False)
    return status


async def send(address: str, by: Credentials | None = PRODUCER, topic: str = "T") -> str:
    """Send one message; the reason if it is not stored."""
    answer = await ask(address, send_request(topic=topic), by)
    return "" if answer.code == SUCCESS else answer.remark or f"code {answer.code}"


@asynccontextmanager
async def secured_set(
    root: Path, accounts: str = ACCOUNTS, **settings: str
) -> AsyncIterator[LiveSet]:
    path = root / "plain_acl.yml"
    path.write_text(accounts)
    async with live_set(root, acl_enable=True, acl_file=str(path), **settings) as one:
        yield one


async def pair_of(one: LiveSet) -> tuple[Broker, Broker]:
    """A master, and a slave that holds all of its log."""
    master = await one.add(BrokerRole.ASYNC_MASTER)
    slave = await one.add()
    assert await send(master.address, OPERATOR) == ""
    await until_level(master, slave)
    return master, slave


async def until_level(master: Broker, slave: Broker) -> None:
    while True:
        if level(await status_of(master)) and follows(await status_of(slave)):
            return
        await trio.sleep(0.01)  # it is a real network


async def until_sent(address: str) -> None:
    while True:
        if await send(address) == "":
            return
        await trio.sleep(0.01)  # it is a real network


async def until_closed(client: RemotingClient) -> None:
    while True:
        if client.closed:
            return
        await trio.sleep(0.01)  # it is a real network


async def test_no_code_of_a_broker_is_carried_out_for_strangers(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        before = await status_of(master)
        rejected = 0
        for by in (None, FORGER, Credentials("stranger-1", "whatever")):
            async with talk_to(master.address, by) as client:
                for code, requirement in REQUIREMENTS[Port.BROKER].items():
                    request = RemotingCommand(code, {"topic": "T", "b": "T", "group": "g"}, b"{}")
                    if requirement.by_connection:
                        continue  # see the Raft group below
                    answer = await client.request(request)
                    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                        continue  # the other kind of broker serves it
                    assert answer.code == ResponseCode.SYSTEM_ERROR, code
                    assert (answer.remark or "").startswith(JAVA), (code, answer.remark)
                    rejected += 1
        assert rejected > 3 * 60
        after = await status_of(master)
        for key in ("max_phy_offset", "role", "epoch", "topics", "groups"):
            assert before.get(key) == after.get(key), key


async def test_a_producer_sends_to_its_topic_and_to_no_other(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        assert await send(master.address) == ""
        assert await send(master.address, topic="U") == f"{JAVA}No default permission for topic:U"
        assert await send(master.address, None) == f"{JAVA}No accessKey is configured"
        forged = await send(master.address, Credentials("producer-1", "producer-secreT"))
        assert forged == f"{JAVA}Check signature failed for accessKey=producer-1"
        reasons = [str(line["reason"]) for line in master.events.of("acl_denied")]
        assert f"{JAVA}No accessKey is configured" in reasons
        assert f"{JAVA}No default permission for topic:U" in reasons


async def test_a_set_replicates_and_is_failed_over_by_an_operator_alone(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as one:
        master, slave = await pair_of(one)
        for by in (None, PRODUCER):
            config = ClusterConfig(credentials=by)
            async with open_cluster(one.namesrv, config) as cluster:
                outcome = await run_failover(cluster, new_order(cluster, NAME))
                assert outcome.result is not Result.DONE, outcome
        assert (await status_of(master))["role"] == "ASYNC_MASTER"
        async with open_cluster(one.namesrv, ClusterConfig(credentials=OPERATOR)) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, NAME))
            assert outcome.result is Result.DONE, outcome
        assert (await status_of(slave))["role"] == "ASYNC_MASTER"
        # The old master forwards: the client's rights were checked there, and not again.
        assert await send(master.address) == ""
        assert await send(master.address, topic="U") == f"{JAVA}No default permission for topic:U"
        assert await send(master.address, None) == f"{JAVA}No accessKey is configured"


async def test_accounts_of_the_master_are_those_of_the_slave_that_takes_over(
    tmp_path: Path,
) -> None:
    late, key = Credentials("late-producer", "late-secret"), {"accessKey": "late-producer"}
    fields = {**key, "secretKey": "late-secret", "topicPerms": "T=PUB"}
    added = RemotingCommand(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, dict(fields))
    gone = RemotingCommand(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "producer-1"})
    async with secured_set(tmp_path, ha_secret="of the set") as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        own = tmp_path / "slave.yml"
        own.write_text(ACCOUNTS)
        one.settings["acl_file"] = str(own)
        slave = await one.add()
        await until_level(master, slave)
        for change in (added, gone):
            assert (await ask(master.address, change)).code == SUCCESS
        async with open_cluster(one.namesrv, ClusterConfig(credentials=OPERATOR)) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, NAME))
            assert outcome.result is Result.DONE, outcome
        # The slave has the text when the change is answered, and reads it behind.
        with trio.fail_after(60):
            while "producer-1" not in await send(slave.address):
                await trio.lowlevel.checkpoint()
        assert await send(slave.address, late) == ""


async def test_a_forwarded_request_needs_no_account_at_the_new_master(tmp_path: Path) -> None:
    """The client may be on the white list of the node that it is connected to."""
    async with secured_set(tmp_path) as one:
        # Files beside the default one are each node's own.
        listed = tmp_path / "master" / "plain_acl.yml"
        (listed.parent / "acl").mkdir(parents=True)
        listed.write_text(ACCOUNTS)
        white = "globalWhiteRemoteAddresses: [127.0.0.1]\n"
        (listed.parent / "acl" / "white.yml").write_text(white)
        strict, one.settings["acl_file"] = one.settings["acl_file"], str(listed)
        master = await one.add(BrokerRole.ASYNC_MASTER)
        one.settings["acl_file"] = strict
        slave = await one.add()
        await until_level(master, slave)
        async with open_cluster(one.namesrv, ClusterConfig(credentials=OPERATOR)) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, NAME))
            assert outcome.result is Result.DONE, outcome
        assert await send(slave.address, None) == f"{JAVA}No accessKey is configured"
        assert await send(master.address, None) == ""
        assert (await status_of(master))["forwarding"]["forwarded_total"] == 1


async def test_files_are_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    events = RecordedEvents()
    files = acl_files.AclFiles(path, events)
    first = files.rules
    await files.look()
    assert files.rules is first
    path.write_text("accounts: [")
    for _ in range(2):
        await files.look()
        assert files.rules is first
    (problem,) = events.of("acl_rejected")
    assert str(problem["reason"]).startswith(f"{path}:2: ")
    path.write_text(ACCOUNTS.replace("producer-1", "producer-2"))
    await files.look()
    assert set(files.rules.accounts) == {"operator-1", "producer-2"}
    folder = tmp_path / "acl" / "deeper"
    folder.mkdir(parents=True)
    (folder / "more.yml").write_text("accounts:\n- accessKey: third-1\n  secretKey: 12345678\n")
    (tmp_path / "acl" / "tools.yml").write_text("accessKey: tools-1\nsecretKey: 12345678\n")
    await files.look()
    assert set(files.rules.accounts) == {"operator-1", "producer-2", "third-1"}
    (folder / "more.yml").unlink()
    await files.look()
    assert set(files.rules.accounts) == {"operator-1", "producer-2"}
    path.unlink()
    for _ in range(2):
        await files.look()
        assert set(files.rules.accounts) == {"operator-1", "producer-2"}
    assert len(events.of("acl_rejected")) == 2


@pytest.mark.parametrize("text", [None, "accounts: ["])
async def test_a_node_without_a_sound_file_does_not_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "plain_acl.yml"
    if text is not None:
        path.write_text(text)
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(tmp_path / "kv.json"),
        acl_enable=True,
    )
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        await serve_namesrv(config, trio.Event(), RecordedEvents())


async def test_accounts_are_changed_over_the_wire(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        path = tmp_path / "plain_acl.yml"
        path.chmod(0o640)
        change: dict[str, ExtValue] = {
            "accessKey": "second-1",
            "secretKey": "second-secret",
            "admin": "false",
            "defaultTopicPerm": "PUB",
            "topicPerms": "U=DENY,V=PUB|SUB",
        }
        second = Credentials("second-1", "second-secret")
        assert "No acl config" in await send(master.address, second)
        update = RemotingCommand(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)
        assert (await ask(master.address, update)).code == SUCCESS
        assert await send(master.address, second) == ""
        assert "topic:U" in await send(master.address, second, "U")
        assert path.stat().st_mode & 0o777 == 0o640

        shown = await ask(
            master.address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        )
        body: Any = fastjson.loads(shown.body_bytes())
        by_key = {account["accessKey"]: account for account in body["plainAccessConfigs"]}
        assert by_key["second-1"]["topicPerms"] == ["U=DENY", "V=PUB|SUB"]
        assert b"secret" not in shown.body_bytes().replace(b"secretKey", b"")

        version = await ask(
            master.address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        )
        default: Any = fastjson.loads(version.ext_str("version").encode())
        assert default["counter"] == 1
        assert fastjson.loads(version.ext_str("allAclFileVersion").encode()) == {str(path): default}
        assert version.ext_str("brokerName") == NAME

        white = RemotingCommand(
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.0.1,127.0.0.*"}
        )
        assert (await ask(master.address, white)).code == SUCCESS
        assert await send(master.address, None) == ""
        white.ext_fields["globalWhiteAddrs"] = "10.0.0.1"
        assert (await ask(master.address, white)).code == SUCCESS
        assert "No accessKey" in await send(master.address, None)

        delete = RemotingCommand(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "second-1"})
        assert (await ask(master.address, delete)).code == SUCCESS
        assert "No acl config" in await send(master.address, second)


async def test_a_change_that_cannot_be_is_refused_as_java_does(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as one:
        master = await one.add(BrokerRole.ASYNC_MASTER)
        before = (tmp_path / "plain_acl.yml").read_text()

        async def refused(code: RequestCode, fields: dict[str, ExtValue]) -> tuple[int, str]:
            answer = await ask(master.address, RemotingCommand(code, fields))
            return answer.code, answer.remark or ""

        update = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        account: dict[str, ExtValue] = {"accessKey": "second-1", "secretKey": "second-secret"}
        assert await refused(update, {"accessKey": "second-1"}) == (
            209,
            "The accessKey=second-1 and secretKey=****** cannot be null and length should longer"
            " than 6",
        )
        assert await refused(update, account | {"topicPerms": "U"}) == (
            209,
            "Parse Resource format error for U.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        )
        assert await refused(update, account | {"groupPerms": "g=ALL"}) == (
            209,
            "Parse resource permission error for g=ALL.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
        )
        code, words = await refused(update, account | {"whiteRemoteAddress": "here"})
        assert code == 209
        assert "is no address" in words
        assert await refused(RequestCode.DELETE_ACL_CONFIG, {"accessKey": "nobody-1"}) == (
            210,
            "The accesskey[nobody-1] corresponding to accessConfig has been deleted failed.",
        )
        elsewhere: dict[str, ExtValue] = {
            "globalWhiteAddrs": "*",
            "aclFileFullPath": str(tmp_path / "elsewhere.yml"),
        }
        assert await refused(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, elsewhere) == (
            211,
            "The globalWhiteAddresses[*] has been updated failed.",
        )
        assert not (tmp_path / "elsewhere.yml").exists()
        assert (tmp_path / "plain_acl.yml").read_text() == before


async def test_a_name_server_takes_registrations_of_signed_brokers_alone(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        admin_http_enable=False,
        kv_config_path=str(tmp_path / "kv.json"),
        acl_enable=True,
        acl_file=str(path),
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_namesrv, config, trio.Event(), RecordedEvents())
            namesrv = (await nursery.start(serve)).listen
            signed = LiveSet(
                tmp_path / "a", nursery, namesrv, {"acl_enable": True, "acl_file": str(path)}
            )
            stranger = LiveSet(tmp_path / "b", nursery, namesrv, {"broker_name": "broker-b"})
            await signed.add(BrokerRole.ASYNC_MASTER)
            other = await stranger.add(BrokerRole.ASYNC_MASTER)
            answer = await ask(namesrv, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), None)
            assert b"broker-a" in answer.body_bytes()
            assert b"broker-b" not in answer.body_bytes()
            (failure,) = other.events.of("namesrv_failed")
            assert "No accessKey is configured" in str(failure["reason"])
            for code, requirement in REQUIREMENTS[Port.NAMESRV].items():
                if requirement.right is not Right.ANONYMOUS:
                    answer = await ask(namesrv, RemotingCommand(code, {}), FORGER)
                    assert "Check signature failed" in (answer.remark or ""), code
            nursery.cancel_scope.cancel()


async def test_a_raft_group_elects_and_answers_its_clients_alone(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    async with live_group(tmp_path, acl_enable=True, acl_file=str(path)) as group:
        await group.start()
        address = group.members[0].address
        await until_sent(address)
        for member in group.members:
            for by, words in ((None, "No accessKey"), (FORGER, "Check signature failed")):
                async with talk_to(member.address, by) as client:
                    hello = RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, b"")
                    assert words in ((await client.request(hello)).remark or "")
                    for code, requirement in REQUIREMENTS[Port.BROKER].items():
                        if requirement.by_connection:
                            # The first one ends the connection: nothing was greeted on it.
                            client.oneway_nowait(RemotingCommand(code, {}, b""))
                            break
                    await until_closed(client)
        assert await send(address) == ""
        assert "topic:U" in await send(address, topic="U")


async def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(tmp_path: Path) -> None:
    async with secured_set(tmp_path) as set_:
        broker = await set_.add(BrokerRole.ASYNC_MASTER)
        for topic, answered in (("T", ""), ("Foreign", "No default permission for topic:Foreign")):
            sent = await ask(broker.address, half(topic=topic, queue_id=0))
            assert sent.code == SUCCESS, sent.remark
            offset = decode_message_id(sent.ext_str("msgId"))[2]
            request = end_request((sent.ext_int("queueOffset"), offset), COMMIT)
            answer = await ask(broker.address, request, PRODUCER)
            assert (answer.remark or "").removeprefix(JAVA) == answered
        # Without a message there is nothing to check against, and nothing to end.
        answer = await ask(broker.address, end_request((0, 1 << 40), COMMIT), PRODUCER)
        assert "can not find message" in (answer.remark or "")


async def test_a_record_forged_in_own_messages_is_no_message(tmp_path: Path) -> None:
    """Head and end lie in two messages of the owner, with a foreign one in between.

    The owner may send to T. So the head names its own offset and a size up to the end, which names
    T.
    """
    accounts = f"""{ACCOUNTS}
- accessKey: owner-1
  secretKey: owner-secret
  topicPerms: [T=PUB|SUB]
  groupPerms: [g=SUB]
"""
    async with secured_set(tmp_path, accounts) as set_:
        broker = await set_.add(BrokerRole.ASYNC_MASTER)

        async def sent(body: bytes, topic: str = "T", by: Credentials = OWNER) -> int:
            answer = await ask(broker.address, send_request(body.ljust(512, b"."), topic), by)
            assert answer.code == SUCCESS, answer.remark
            return decode_message_id(answer.ext_str("msgId"))[2]

        async def three(head: bytes, end: bytes) -> tuple[int, int, int]:
            head_at = await sent(head)
            return head_at, await sent(b"for operators", "Foreign", OPERATOR), await sent(end)

        own_at, foreign_at, end_at = await three(b"", b"")
        first = end_at + (foreign_at - own_at)
        forged_at = first + SCAN_SIZE
        end = b"\x01T\0\0"
        size = end_at - own_at + len(end)
        forged = message(bytes(size - FIXED_SIZE - 1))
        head = encode_record(forged, 0, forged_at, 1)[:SCAN_SIZE]
        assert await three(head, end) == (
            first,
            *(at - own_at + first for at in (foreign_at, end_at)),
        )

        view = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": forged_at})
        back = RemotingCommand(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": forged_at, "group": "g", "delayLevel": 0},
        )
        for request in (view, back):
            answer = await ask(broker.address, request, OWNER)
            assert b"for operators" not in answer.body_bytes()
            assert f"can not find message by the offset, {forged_at}" in (answer.remark or "")
        view = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": own_at})
        assert (await ask(broker.address, view, OWNER)).code == SUCCESS
