"""Whole brokers of one set: who is master after what, and what becomes of the logs."""

from __future__ import annotations

from pathlib import Path

import attrs
import trio
import trio.testing
from support.live_set import SUCCESS, Broker, LiveSet, follows, level, live_set, send_request

from trioha.client import open_admin
from trioha.config import BrokerRole
from trioha.errors import Unreachable
from trioha.failover.outcome import Result
from trioha.store.inspect import diff_logs

MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE


async def pair(set_: LiveSet) -> tuple[Broker, Broker]:
    a = await set_.add(MASTER)
    b = await set_.add()
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
        assert status["slave"]["level_since_start"] is True


async def test_d4_the_old_master_of_the_first_failover_acknowledges_nothing_when_it_returns(
    tmp_path: Path,
) -> None:
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


async def test_d3_a_planned_switch_there_and_back_leaves_one_history(tmp_path: Path) -> None:
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
    """Its name server, too, knows nothing: the old master asks the members it knows."""
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
        a, b = await pair(set_)
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
