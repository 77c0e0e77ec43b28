"""Whole nodes with a cluster's secret: strangers change nothing, holders of it do all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest
import trio
from services.ha.test_numbers_that_lie import STEPS, TICKET, hello_of
from support.handlers.namesrv import register_request
from support.nodes.live_group import live_group
from support.nodes.live_node import NAME, SUCCESS, send_request
from support.nodes.live_set import LiveSet, level, live_set

from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.config import BrokerRole, secret_files
from trioha.config.secret_files import FileKeyring
from trioha.failover.outcome import Outcome, Result
from trioha.namesrv.route_info import BrokerAddress
from trioha.remoting.node_proofs import is_challenge
from trioha.services.loop.clock import Clock
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand

SECRET, OTHER = "the secret of this cluster", "the secret of another one"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.secret"
    path.write_text(f"# of tests\n{SECRET}\n")
    return path


async def fail_over(set_: LiveSet, secret: str, *, to: int, force: bool = False) -> Outcome:
    config = ClusterConfig(keyring=Keyring(secret))
    async with open_cluster(set_.namesrv, config) as cluster:
        return await run_failover(cluster, new_order(cluster, NAME, to=to, force=force))


@pytest.mark.parametrize("secret", ["", OTHER], ids=["none", "another"])
async def test_a_stranger_changes_nothing_on_any_port_of_a_set(
    tmp_path: Path, secret_file: Path, secret: str
) -> None:
    async with live_set(tmp_path, cluster_secret_file=str(secret_file)) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        slave = await set_.add()
        await master.wait(level)
        for broker in (master, slave):
            before = await broker.status()
            async with open_remoting_client(
                *parse_address(broker.address), Clock(), keyring=Keyring(secret)
            ) as client:
                for code, fields in STEPS.items():
                    body = msgpack.packb({"ticket_id": TICKET, **fields})
                    answer = await client.request(RemotingCommand(code, body=body))
                    assert is_challenge(answer), code
                for hello in (hello_of(2), hello_of(0, wants=2)):
                    command = RemotingCommand(RequestCode.HA_HELLO, body=hello.encode())
                    answer = await client.request(command)
                    assert answer.code == ResponseCode.NO_PERMISSION
            after = await broker.status()
            for key in ("standing", "epoch", "promised_epoch", "ticket"):
                assert after.get(key) == before.get(key)
        assert await master.send(b"after") == SUCCESS
        outcome = await fail_over(set_, secret, to=1)
        assert outcome.result is Result.REFUSED
        assert "proof" in outcome.message
        await slave.stop()
        await master.stop()


async def test_a_peer_that_throws_away_what_it_acknowledges_is_no_slave(
    tmp_path: Path, secret_file: Path
) -> None:
    """Such a peer on the HA port would turn SLAVE_NOT_AVAILABLE into SEND_OK."""
    async with live_set(tmp_path, cluster_secret_file=str(secret_file)) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        stream = await trio.open_tcp_stream("127.0.0.1", master.config.ha_listen_port)
        async with stream:
            await stream.send_all(bytes(8))
            assert len(await stream.receive_some()) == 32
            assert await master.send(b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
            await stream.send_all(bytes(100))
            with trio.move_on_after(10):
                while await stream.receive_some():
                    pass
            assert await master.send(b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        await master.stop()


async def test_an_operator_who_knows_the_secret_fails_a_set_over_and_back(
    tmp_path: Path, secret_file: Path
) -> None:
    async with live_set(tmp_path, cluster_secret_file=str(secret_file)) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        slave = await set_.add()
        await master.wait(level)
        for target, broker in ((1, slave), (0, master)):
            outcome = await fail_over(set_, SECRET, to=target)
            assert outcome.result is Result.DONE, outcome.message
            await broker.wait(lambda it: it["standing"] == "MASTER" and level(it))
            assert await broker.send(b"x") == SUCCESS
        await slave.stop()
        await master.stop()


async def test_only_a_broker_that_knows_the_secret_registers_and_unregisters(
    tmp_path: Path, secret_file: Path
) -> None:
    """One registration with epoch 99 took a route over."""
    async with live_set(tmp_path, cluster_secret_file=str(secret_file)) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        real = BrokerAddress("DefaultCluster", NAME, 0, master.address)
        stranger = attrs.evolve(real, address="10.6.6.6:10911")
        fields: dict[str, Any] = {
            **{"clusterName": real.cluster, "brokerName": NAME, "brokerId": 0},
            "brokerAddr": real.address,
        }
        forged = (
            register_request(stranger, epoch=99, nonce="ff" * 8),
            register_request(stranger),
            RemotingCommand(RequestCode.UNREGISTER_BROKER, fields),
        )
        for secret in ("", OTHER):
            async with open_remoting_client(
                *parse_address(set_.namesrv), Clock(), keyring=Keyring(secret)
            ) as client:
                for command in forged:
                    assert is_challenge(await client.request(command))
                route = await client.request(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
                assert master.address.encode() in route.body_bytes()
                assert b"10.6.6.6" not in route.body_bytes()
        assert master.events.of("fenced") == []
        await master.stop()


async def test_a_secret_is_replaced_under_load_without_a_restart(
    tmp_path: Path, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "_LOOK_INTERVAL_S", 0)
    async with live_set(tmp_path, cluster_secret_file=str(secret_file)) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        slave = await set_.add()
        await master.wait(level)
        keyring = FileKeyring(secret_file, "clusterSecretFile")
        for text in (f"{SECRET}\n{OTHER}\n", f"{OTHER}\n{SECRET}\n", f"{OTHER}\n"):
            await trio.Path(secret_file).write_text(text)
            assert await master.send(b"x") == SUCCESS
        assert keyring.secrets == (OTHER,)
        # The old secret is of no use any more; links made with it go on.
        refused = await fail_over(set_, SECRET, to=1)
        assert refused.result is Result.REFUSED
        await slave.stop()
        await slave.start()
        await master.wait(level)
        outcome = await fail_over(set_, OTHER, to=1)
        assert outcome.result is Result.DONE, outcome.message
        await slave.stop()
        await master.stop()


async def test_members_of_a_group_and_its_operators_need_the_secret(
    tmp_path: Path, secret_file: Path
) -> None:
    async with live_group(tmp_path, cluster_secret_file=str(secret_file)) as group:
        await group.start()
        leader = await group.leader()
        assert (await leader.send()).code == SUCCESS
        other = group.besides(leader)[0]
        body = msgpack.packb({"do": "transfer", "member": other.id})
        command = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body)
        assert is_challenge(await leader.ask(command))
        async with open_remoting_client(
            *parse_address(leader.address), Clock(), keyring=Keyring(SECRET)
        ) as client:
            answer = await client.request(RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body))
            assert not is_challenge(answer)
        # A member with another secret is none.
        await other.break_off()
        wrong = tmp_path / "wrong.secret"
        await trio.Path(wrong).write_text(OTHER)
        other.config = attrs.evolve(other.config, cluster_secret_file=str(wrong))
        other.nursery.start_soon(other.start)
        await leader.wait(lambda it: "cannot prove" in str(it["raft"]["refusals"]))
        for member in group.members:
            await member.break_off()


async def test_no_answer_and_no_status_holds_a_secret(tmp_path: Path, secret_file: Path) -> None:
    events = RecordedEvents()
    settings = {"cluster_secret_file": str(secret_file), "ha_secret": "a secret of links"}
    async with live_set(tmp_path, **settings) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        for code in (
            *(RequestCode.TRIOHA_NODE_STATUS, RequestCode.TRIOHA_NODE_CONFIG),
            *(RequestCode.TRIOHA_NODE_TASKS, RequestCode.GET_BROKER_CONFIG),
        ):
            told = (await master.ask(RemotingCommand(code))).body_bytes()
            assert SECRET.encode() not in told
            assert b"a secret of links" not in told
        config = (await master.ask(RemotingCommand(RequestCode.GET_BROKER_CONFIG))).body_bytes()
        assert f"clusterSecretFile={secret_file}".encode() in config
        assert SECRET not in str(master.events.events) + str(events.events)
        assert (await master.ask(send_request())).code == SUCCESS
        await master.stop()
