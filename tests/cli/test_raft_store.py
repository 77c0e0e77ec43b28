"""`trioha raft convert|repair`: a pair becomes a group and back, a damaged log is set aside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner, Result
from support.nodes.live_node import NAME, SUCCESS
from support.nodes.live_set import Broker, LiveSet, live_set

from trioha.cli import cli
from trioha.config import BrokerRole
from trioha.errors import StoreError
from trioha.store.store_mode import BASE_STEM, VOTE_STEM, has_slots
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SIZES = (
    *("--set", "mappedFileSizeCommitLog=1MiB", "--set", "maxHashSlotNum=100"),
    *("--set", "maxIndexNum=400", "--set", "maxMessageSize=64KiB"),
)


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(CliRunner().invoke, cli, ["raft", *arguments, *SIZES])


async def max_offset(broker: Broker, topic: str = "T") -> int:
    answer = await broker.ask(
        RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})
    )
    assert answer.code == SUCCESS, answer.remark
    return answer.ext_int("offset")


def progress(offset: int | None = None) -> RemotingCommand:
    """A group's offset in queue 0 of T: set, or asked for."""
    fields: dict[str, ExtValue] = {"consumerGroup": "readers", "topic": "T", "queueId": 0}
    if offset is None:
        return RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": offset})


def serves(status: Mapping[str, Any]) -> bool:
    return bool(status["raft"]["is_serving"])


async def become_member(broker: Broker) -> None:
    """Start the node as the only founder of a group."""
    config = broker.config
    broker.config = attrs.evolve(
        config,
        enable_d_leger_commit_log=True,
        d_leger_peers=f"n0-{broker.address}",
        d_leger_self_id="n0",
        broker_role=BrokerRole.ASYNC_MASTER,
        broker_id=0,
    )
    await broker.start()
    await broker.wait(serves)


async def a_master(set_: LiveSet, messages: int = 5) -> Broker:
    broker = await set_.add(BrokerRole.ASYNC_MASTER)
    for number in range(messages):
        assert await broker.send(f"message {number}".encode()) == SUCCESS
    assert (await broker.ask(progress(3))).code == SUCCESS
    return broker


async def test_there_and_back_with_every_message_offset_and_topic(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        broker = await a_master(set_)
        await broker.stop()
        store = str(broker.root)

        looked = await run("convert", store, "--dry-run")
        assert looked.exit_code == 0, looked.output
        assert "epoch    1 is the newest of its set" in looked.output
        assert "all it holds is of term 1" in looked.output
        assert not has_slots(broker.root, BASE_STEM)

        done = await run("convert", store, "--yes")
        assert done.exit_code == 0, done.output
        assert "enableDLegerCommitLog=true" in done.output
        again = await run("convert", store, "--yes")
        assert "belongs to a DLEDGER group already" in str(again.exception)
        refused = broker.config
        with pytest.raises(BaseExceptionGroup) as told:
            async with trio.open_nursery() as nursery:
                await attrs.evolve(broker, nursery=nursery).start()
        assert told.group_contains(StoreError, match="raft convert", depth=None)
        assert broker.config is refused

        await become_member(broker)
        assert await max_offset(broker) == 5
        assert (await broker.ask(progress())).ext_int("offset") == 3
        assert await broker.send(b"in a term") == SUCCESS
        assert (await broker.ask(progress(4))).code == SUCCESS
        term = (await broker.status())["raft"]["term"]
        assert term >= 2
        await broker.stop()

        back = await run("convert", store, "--back", "--dry-run", "-o", "json")
        assert back.exit_code == 0, back.output
        told_plan = json.loads(back.stdout)
        assert (told_plan["term"], told_plan["epoch"]) == (term, term + 1)
        assert has_slots(broker.root, BASE_STEM)
        back = await run("convert", store, "--back", "--yes")
        assert back.exit_code == 0, back.output
        assert not has_slots(broker.root, BASE_STEM)
        assert not has_slots(broker.root, VOTE_STEM)

        broker.config = attrs.evolve(broker.config, enable_d_leger_commit_log=False)
        await broker.start()
        status = await broker.wait(lambda one: one["standing"] == "MASTER")
        assert status["epoch"] == term + 1
        assert await max_offset(broker) == 6
        assert (await broker.ask(progress())).ext_int("offset") == 4
        assert await broker.send(b"back again") == SUCCESS
        await broker.stop()


async def test_a_second_group_begins_with_what_was_changed_since_the_first(tmp_path: Path) -> None:
    """The log still holds what the first group said of its tables; the master knew better."""
    async with live_set(tmp_path) as set_:
        broker = await a_master(set_)
        store = str(broker.root)
        await broker.stop()
        assert (await run("convert", store, "--yes")).exit_code == 0
        await become_member(broker)
        assert (await broker.ask(progress(4))).code == SUCCESS
        await broker.stop()
        assert (await run("convert", store, "--back", "--yes")).exit_code == 0
        broker.config = attrs.evolve(broker.config, enable_d_leger_commit_log=False)
        await broker.start()
        assert (await broker.ask(progress(5))).code == SUCCESS
        await broker.stop()
        assert (await run("convert", store, "--yes")).exit_code == 0
        await become_member(broker)
        assert (await broker.ask(progress())).ext_int("offset") == 5
        await broker.stop()


async def test_a_slave_s_store_is_not_what_a_group_begins_with(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        master = await a_master(set_)
        slave = await set_.add()
        await slave.wait(lambda one: bool(one["slave"] and one["slave"]["state"] == "TRANSFER"))
        await slave.stop()
        await master.stop()
        refused = await run("convert", str(slave.root), "--yes")
        assert refused.exit_code == 1
        assert "is the store of a slave in epoch 1" in str(refused.exception)
        assert not has_slots(slave.root, BASE_STEM)


async def test_a_running_node_s_store_is_left_alone(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        broker = await a_master(set_)
        refused = await run("convert", str(broker.root), "--yes")
        assert "is in use" in str(refused.exception)
        assert not has_slots(broker.root, BASE_STEM)


@pytest.mark.parametrize("command", ["convert", "repair"])
def test_a_folder_that_is_no_such_store_is_named(tmp_path: Path, command: str) -> None:
    more = ("--back",) if command == "convert" else ()
    told = CliRunner().invoke(cli, ["raft", command, str(tmp_path), "--dry-run", *more])
    assert told.exit_code == 1
    assert f"{tmp_path} belongs to no DLEDGER group" in str(told.exception)


@pytest.mark.parametrize("command", ["convert", "repair"])
@pytest.mark.parametrize("more", [(), ("-o", "json")])
def test_without_anybody_to_ask_it_wants_yes(
    tmp_path: Path, command: str, more: tuple[str, ...]
) -> None:
    told = CliRunner().invoke(cli, ["raft", command, str(tmp_path), *more])
    assert told.exit_code == 2
    assert "give --yes or --dry-run" in told.output


def damage(root: Path, offset: int) -> None:
    path = next(iter(sorted((root / "commitlog").iterdir())))
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 64)


async def a_member(set_: LiveSet) -> Broker:
    broker = await a_master(set_)
    await broker.stop()
    assert (await run("convert", str(broker.root), "--yes")).exit_code == 0
    await become_member(broker)
    for number in range(5):
        assert await broker.send(f"in a term {number}".encode()) == SUCCESS
    return broker


async def test_a_damaged_log_is_set_aside_and_its_vote_is_given_up(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        broker = await a_member(set_)
        await broker.stop()
        store = str(broker.root)
        sound = await run("repair", store, "--yes")
        assert (sound.exit_code, "! nothing is damaged" in sound.output) == (1, True), sound.output

        damage(broker.root, 100)
        looked = await run("repair", store, "--dry-run")
        assert looked.exit_code == 0, looked.output
        assert f"the store of n0 of group {NAME}" in looked.output
        assert "damaged  offsets " in looked.output
        assert (broker.root / "commitlog").exists()

        done = await run("repair", store, "--yes")
        assert done.exit_code == 0, done.output
        assert f"trioha raft remove {NAME} n0" in done.output
        (aside,) = broker.root.glob("repair-*")
        assert (aside / "commitlog").is_dir()
        assert not (broker.root / "commitlog").exists()
        again = await run("repair", store, "--yes")
        assert "it has given up its vote already" in again.output

        await broker.start()
        status = await broker.wait(lambda one: one["raft"]["impaired"])
        assert not status["raft"]["is_serving"]
        await broker.stop()

        renewed = await run("repair", store, "--new-id", "--yes", "-o", "json")
        assert json.loads(renewed.stdout)["result"] == "done"
        assert not has_slots(broker.root, VOTE_STEM)


async def test_a_whole_vote_is_not_forgotten(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        broker = await a_member(set_)
        await broker.stop()
        refused = await run("repair", str(broker.root), "--new-id", "--yes")
        assert refused.exit_code == 1
        assert "lets this disk vote twice" in refused.output
        assert has_slots(broker.root, VOTE_STEM)


@pytest.mark.parametrize("name", ["convert", "repair"])
def test_help_teaches(name: str) -> None:
    shown = CliRunner().invoke(cli, ["raft", name, "--help"])
    assert f"trioha raft {name} /var/lib/trioha/a --dry-run" in shown.output
    assert "Exit codes: 0 done" in shown.output
