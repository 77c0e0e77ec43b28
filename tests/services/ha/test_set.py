"""Whole brokers of one set: the master after each event, and the logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from support.nodes.live_node import SUCCESS, send_request
from support.nodes.live_set import Broker, LiveSet, follows, level, live_set

from trioha.client import open_admin
from trioha.config import BrokerRole
from trioha.errors import CommitLogCorrupted, Unreachable
from trioha.failover.outcome import Result
from trioha.journal import NullSink
from trioha.services.ha.open_mastership import is_of_a_set
from trioha.store.accept_loss import accept_loss, is_noted
from trioha.store.inspect import diff_logs
from trioha.store.message_store import FileMessageStore, StoreConfig

MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE


async def pair(set_: LiveSet, role: BrokerRole = MASTER) -> tuple[Broker, Broker]:
    a = await set_.add(role)
    b = await set_.add()
    await a.wait(lambda status: bool(status["connections"]))
    assert await a.send(b"first") == SUCCESS
    await a.wait(level)
    return a, b


def equal(a: Broker, b: Broker) -> bool:
    return diff_logs(a.root / "commitlog", b.root / "commitlog").equal


async def test_a_slave_of_our_kind_follows_on_an_extended_link(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        (link,) = (await a.status())["connections"]
        assert (link["home_id"], link["epoch"]) == (1, 1)
        status = await b.wait(follows)
        assert (status["epoch"], status["follows"]) == (1, a.address)
        assert status["level_since_start"] is True


async def test_the_old_master_of_the_first_failover_acknowledges_nothing_when_it_returns(
    tmp_path: Path,
) -> None:
    """Fault D4."""
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        await a.stop()
        outcome = await set_.fail_over(force=True)
        assert outcome.result is Result.DONE, outcome.message
        assert await b.send(b"second") == SUCCESS
        codes: list[int] = []
        over = trio.Event()

        async def hammer() -> None:
            while not over.is_set():
                try:
                    codes.append(await a.send(b"to the old one"))
                except (Unreachable, OSError):
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hammer)
            await a.start()
            await a.wait(follows)
            over.set()
        assert codes, "it was reached"
        stored = (await b.status())["put_total"]
        # A node that knows its successor may pass a message on to it; itself it stores none.
        assert codes.count(SUCCESS) <= stored - 1
        assert (await a.status())["put_total"] == 0
        await b.wait(level)
        assert equal(a, b)
        assert not list((a.root / "cut").glob("*"))


async def test_a_planned_switch_there_and_back_leaves_one_history(tmp_path: Path) -> None:
    """Fault D3."""
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        offsets = [0]
        for target, other in ((b, a), (a, b), (b, a)):
            outcome = await set_.fail_over()
            assert outcome.result is Result.DONE, outcome.message
            answer = await target.ask(send_request(b"more"))
            offsets.append(answer.ext_int("queueOffset"))
            await other.wait(follows)
            await target.wait(level)
        assert (await a.status())["epochs"] == (await b.status())["epochs"]
        assert [term["home_id"] for term in (await a.status())["epochs"]] == [0, 1, 0, 1]
        assert offsets == [0, 1, 2, 3], "neither a gap nor a repeat"
        assert equal(a, b)


async def test_both_sides_wrote_and_the_returning_one_keeps_what_it_gives_up(
    tmp_path: Path,
) -> None:
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        await b.stop()
        assert await a.send(b"only on a") == SUCCESS
        await a.stop()
        await b.start()
        outcome = await set_.fail_over(force=True)
        assert outcome.result is Result.DONE, outcome.message
        assert await b.send(b"only on b") == SUCCESS
        await a.start()
        await b.wait(level)
        assert equal(a, b)
        status = await a.status()
        (cut,) = status["cuts"]
        assert status["standing"] == "SLAVE"
        assert b"only on a" in b"".join(
            path.read_bytes() for path in (Path(cut["path"]) / "commitlog").iterdir()
        )


async def test_a_whole_set_that_was_stopped_comes_back_without_hand_work(tmp_path: Path) -> None:
    """The name server, too, knows nothing: the old master asks the members it knows."""
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        assert (await set_.fail_over()).result is Result.DONE
        await b.wait(level)
        await b.stop()
        await a.stop()
    async with live_set(tmp_path) as fresh:
        a.nursery = b.nursery = fresh.nursery
        for broker in (a, b):
            broker.config = attrs.evolve(broker.config, namesrv_addr=fresh.namesrv)
        await b.start()
        assert (await b.status())["standing"] == "FENCED", "a may know more"
        await a.start()
        await b.wait(lambda status: status["standing"] == "MASTER")
        await b.wait(level)
        assert await b.send(b"again") == SUCCESS
        assert b.events.of("confirmed")[0]["reason"] == "every member says so"


async def test_a_restarted_master_is_confirmed_by_the_name_servers_memory(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_, BrokerRole.SYNC_MASTER)
        assert (await set_.fail_over()).result is Result.DONE
        await b.wait(level)
        await a.stop()
        await trio.sleep(0.6)  # claims younger than half a second prove nothing
        await b.stop()
        await b.start()
        assert (await b.status())["standing"] == "MASTER"
        assert b.events.of("confirmed")[0]["reason"] == "a name server remembers our claim"


async def test_a_first_master_whose_set_is_silent_goes_on_after_a_moment(tmp_path: Path) -> None:
    async with live_set(tmp_path, ha_restart_patience=50) as set_:
        a, b = await pair(set_)
        await b.stop()
        await a.stop()
        await a.start()
        assert (await a.status())["standing"] == "MASTER"
        assert await a.send(b"on") == SUCCESS


async def test_a_slave_that_fell_behind_waits_until_an_operator_says_resync(
    tmp_path: Path,
) -> None:
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        await b.stop()
        body = bytes(60_000)
        for _ in range(40):
            assert await a.send(body) == SUCCESS
        await a.stop()
        segments = sorted((a.root / "commitlog").iterdir())
        segments[0].unlink()
        await a.start()
        await b.start()
        status = await b.wait(lambda it: bool(it["slave"] and it["slave"]["needs_resync"]))
        assert "trioha ha resync" in status["slave"]["last_error"]
        async with open_admin(set_.namesrv) as admin:
            told = await admin.resync(b.address, "broker-a", dry_run=True)
            assert told["max_phy_offset"] == status["max_phy_offset"]
            await admin.resync(b.address, "broker-a", dry_run=False)
        await a.wait(level)
        status = await b.status()
        assert status["min_phy_offset"] == 1 << 20
        assert len(status["cuts"]) == 1


async def test_a_node_whose_log_is_gone_does_not_start(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        assert await a.send(b"acknowledged") == SUCCESS
        await a.wait(level)
        await a.stop()
        await b.stop()
        for node in (a, b):
            (node.root / "commitlog").rename(node.root.parent / f"unmounted-{node.root.name}")
        for node in (a, b):
            with pytest.raises(CommitLogCorrupted, match="mount its disk or put its files back"):
                FileMessageStore.open(StoreConfig.of(node.config), NullSink(), wall_ms=7)


@pytest.mark.parametrize("home_id", [0, 1])
async def test_a_node_whose_loss_was_accepted_is_filled_and_does_not_lead_before(
    tmp_path: Path, home_id: int
) -> None:
    async with live_set(tmp_path, ha_restart_patience=50) as set_:
        a, b = await pair(set_)
        for number in range(20):
            assert await a.send(b"acknowledged %d" % number) == SUCCESS
        await a.wait(level)
        end = (await b.status())["max_phy_offset"]
        await b.stop()
        await a.stop()
        lost, other = (a, b) if home_id == 0 else (b, a)
        shutil.rmtree(lost.root / "commitlog")
        config = StoreConfig.of(lost.config)
        assert is_of_a_set(config.root)
        assert accept_loss(config, 7, in_set=True) is not None
        for _ in range(2):  # an orderly stop does not make it whole
            await lost.start()
            status = await lost.status()
            assert status["standing"] == ("FENCED" if home_id == 0 else "SLAVE")
            assert status["max_phy_offset"] == 0
            await lost.stop()
        await other.start()
        await lost.start()
        if home_id == 0:
            await lost.wait(lambda it: "trioha failover broker-a --to 1" in it["fenced_by"])
            assert (await set_.fail_over(to=1, force=True)).result.value == "done"
        await other.wait(level)
        assert (await other.status())["standing"] == "MASTER"
        assert (await lost.status())["max_phy_offset"] >= end
        assert not is_noted(config)


async def test_a_slave_of_a_set_that_was_failed_over_asks_nobody_for_tables(tmp_path: Path) -> None:
    """Before its link stands, the node that it would ask may be deposed, and tell older offsets."""
    async with live_set(tmp_path) as set_:
        a, b = await pair(set_)
        assert b.events.of("slave_synchronized"), "of a first master, which may be RocketMQ's"
        assert (await set_.fail_over()).result is Result.DONE
        await b.wait(level)
        assert not a.events.of("slave_synchronized")
        await a.stop()
        await a.start()
        await b.wait(level)
        assert not a.events.of("slave_synchronized")
