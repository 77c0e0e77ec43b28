"""Tasks and settings that nodes report: brokers and name servers alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio

from trioha.config import HIDDEN, BrokerConfig, NamesrvConfig, is_secret
from trioha.journal.file import JournalFile
from trioha.services.admin import task_tree
from trioha.services.admin.introspection import NodeProcess
from trioha.services.broker import serve_broker
from trioha.services.loop.clock import Clock
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand


async def ask(client: RemotingClient, code: RequestCode) -> dict[str, Any]:
    answer = await client.request(RemotingCommand(code))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    told: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
    return told


def broker_config(root: Path) -> BrokerConfig:
    return BrokerConfig(
        store_path_root_dir=str(root / "store"),
        store_path_commit_log=str(root / "store" / "commitlog"),
        mapped_file_size_commit_log=1 << 20,
        max_message_size=1 << 16,
        max_hash_slot_num=100,
        max_index_num=400,
        bind_address="127.0.0.1",
        listen_port=0,
        ha_listen_port=0,
        vip_channel=False,
        admin_http_enable=False,
        ha_secret="hush",
    )


def task_names(task: dict[str, Any]) -> list[str]:
    names = [task["name"]]
    for nursery in task["nurseries"]:
        for child in nursery["tasks"]:
            names += task_names(child)
    return names


async def test_a_broker_tells_its_tasks_its_settings_and_its_journal(tmp_path: Path) -> None:
    shutdown = trio.Event()
    journal = JournalFile(tmp_path / "journal", "n", lambda: 0, bytes_max=1 << 20)
    process = NodeProcess(journal, {"haSecret": "broker.conf:7", "listenPort": "--listen"})
    journal.event("node_started", node="broker-a:0")
    serve = partial(serve_broker, broker_config(tmp_path), shutdown, RecordedEvents())
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(partial(serve, process=process))
            async with open_remoting_client(*parse_address(addresses.listen), Clock()) as client:
                tree = await ask(client, RequestCode.TRIOHA_NODE_TASKS)
                names = task_names(tree["root"])
                assert tree["count"] == len(names)
                for name in ("commitlog_flush", "ha.accept", "journal_stream", "pull_hold"):
                    assert name in names
                settings = (await ask(client, RequestCode.TRIOHA_NODE_CONFIG))["settings"]
                by_key = {row["key"]: row for row in settings}
                assert by_key["haSecret"]["value"] == HIDDEN
                assert by_key["haSecret"]["origin"] == "broker.conf:7"
                assert by_key["brokerRole"]["value"] == "ASYNC_MASTER"
                assert b"hush" not in msgpack.packb(settings)
                changed = RemotingCommand(
                    RequestCode.UPDATE_BROKER_CONFIG, body=b"slaveReadEnable=true\n"
                )
                assert (await client.request(changed)).code == ResponseCode.SUCCESS
                settings = (await ask(client, RequestCode.TRIOHA_NODE_CONFIG))["settings"]
                (row,) = [row for row in settings if row["key"] == "slaveReadEnable"]
                assert row["value"] is True
                assert "request 25" in row["origin"]
                request = RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM, {"last": 1})
                answer = await client.request(request)
                ((_, _, name, fields),) = msgpack.unpackb(answer.body_bytes())["events"]
                assert (name, fields) == ("node_started", {"node": "broker-a:0"})
            shutdown.set()
    journal.close()


async def test_a_name_server_tells_the_same(tmp_path: Path) -> None:
    shutdown = trio.Event()
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv.json"),
        admin_http_enable=False,
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(
                partial(serve_namesrv, config, shutdown, RecordedEvents())
            )
            async with open_remoting_client(*parse_address(addresses.listen), Clock()) as client:
                tree = await ask(client, RequestCode.TRIOHA_NODE_TASKS)
                assert "namesrv.accept" in task_names(tree["root"])
                settings = (await ask(client, RequestCode.TRIOHA_NODE_CONFIG))["settings"]
                assert {"listenPort", "kvConfigPath"} <= {row["key"] for row in settings}
                answer = await client.request(RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM))
                assert "keeps no journal" in (answer.remark or "")
            shutdown.set()


async def test_a_tree_of_very_many_tasks_is_cut_at_its_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_tree, "CHILDREN_MAX", 5)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(trio.sleep_forever, name=f"leaf[{number:02d}]")
        tree = task_tree.task_tree()
        leaves = [name for name in task_names(tree["root"]) if name.startswith("leaf")]
        assert leaves == [f"leaf[{number:02d}]" for number in range(5)]
        monkeypatch.setattr(task_tree, "TASKS_MAX", 3)
        assert task_tree.task_tree()["count"] == 3
        nursery.cancel_scope.cancel()


def test_every_key_that_sounds_secret_is_one() -> None:
    assert [is_secret(key) for key in ("haSecret", "tlsKeyPassword", "accessKey")] == [True] * 3
    assert not is_secret("listenPort")
