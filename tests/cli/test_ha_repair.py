"""`trioha ha resync` and `ha recover`, at a real set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result
from support.nodes.live_node import SUCCESS
from support.nodes.live_set import level, live_set

from trioha.cli import cli
from trioha.client import open_admin
from trioha.config import BrokerRole
from trioha.errors import CommandError


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(CliRunner().invoke, cli, ["ha", *arguments])


async def test_what_a_deposed_master_gave_up_is_sent_again_once(tmp_path: Path) -> None:
    async with live_set(tmp_path) as set_:
        a = await set_.add(BrokerRole.ASYNC_MASTER)
        b = await set_.add()
        assert await a.send(b"first") == SUCCESS
        await a.wait(level)
        await b.stop()
        for number in range(5):
            assert await a.send(f"only on a: {number}".encode(), unique_key=f"U{number}") == SUCCESS
        await a.stop()
        await b.start()
        assert (await set_.fail_over(force=True)).result.value == "done"
        await a.start()
        await b.wait(level)
        shown = await run("status", "-n", set_.namesrv)
        assert shown.exit_code == 0, shown.output
        assert "that it gave up are in" in shown.output
        (cut,) = (await a.status())["cuts"]

        asked = await run("recover", cut["path"], "-n", set_.namesrv)
        assert (asked.exit_code, "--yes or --dry-run" in asked.output) == (2, True)
        looked = await run("recover", cut["path"], "-n", set_.namesrv, "--dry-run")
        assert looked.exit_code == 0
        assert "5 would be sent, 0 were there already" in looked.output
        before = (await b.status())["put_total"]
        sent = await run("recover", cut["path"], "-n", set_.namesrv, "--yes")
        assert sent.exit_code == 0, sent.output
        assert "5 sent (SEND_OK 5)" in sent.output
        await b.wait(lambda it: it["dispatched_offset"] == it["max_phy_offset"])
        again = await run("recover", cut["path"], "-n", set_.namesrv, "--yes", "-o", "json")
        assert json.loads(again.stdout)["present"] == 5
        assert (await b.status())["put_total"] == before + 5


async def test_a_folder_that_is_no_cut_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "1-2-3"):
        path.mkdir(exist_ok=True)
        told = await run("recover", str(path), "-n", "127.0.0.1:1", "--dry-run")
        assert told.exit_code == 1
        assert str(path) in str(told.exception)


async def test_a_slave_copies_its_masters_log_anew_when_an_operator_says_so(
    tmp_path: Path,
) -> None:
    async with live_set(tmp_path) as set_:
        a = await set_.add(BrokerRole.ASYNC_MASTER)
        b = await set_.add()
        assert await a.send(b"first") == SUCCESS
        await a.wait(level)
        arguments = ("resync", "broker-a", "-n", set_.namesrv, "--id")
        planned = await run(*arguments, "1", "--dry-run")
        assert planned.exit_code == 0
        assert "sets aside its log, offsets 0 to" in planned.output
        assert "it does not ask for it" in planned.output
        assert (await b.status())["cuts"] == []
        done = await run(*arguments, "1", "--yes", "-o", "json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["result"] == "done"
        status = await b.status()
        assert len(status["cuts"]) == 1
        assert status["max_phy_offset"] == (await a.status())["max_phy_offset"]
        for broker_id, words in (("0", "is the master"), ("7", "no brokerId 7 registered")):
            refused = await run(*arguments, broker_id, "--yes")
            assert refused.exit_code == 1
            assert words in str(refused.exception)


async def test_the_only_copy_is_not_set_aside_for_a_master_that_lost_its_disk(
    tmp_path: Path,
) -> None:
    async with live_set(tmp_path) as set_:
        a = await set_.add(BrokerRole.ASYNC_MASTER)
        b = await set_.add()
        for number in range(20):
            assert await a.send(b"acknowledged %d" % number) == SUCCESS
        await a.wait(level)
        end = (await b.status())["max_phy_offset"]
        await a.stop()
        shutil.rmtree(a.root)
        await a.start()
        assert await a.send(b"of another log") == SUCCESS
        status = await b.wait(lambda it: bool(it["slave"]["needs_resync"]))
        assert status["slave"]["holds_more"]
        assert "trioha ha resync" not in status["slave"]["last_error"]
        shown = await run("status", "-n", set_.namesrv)
        assert "trioha ha resync" not in shown.output
        assert "make it master with `trioha failover broker-a --to 1`" in shown.output
        arguments = ("resync", "broker-a", "-n", set_.namesrv, "--id", "1")
        planned = await run(*arguments, "--dry-run")
        assert (planned.exit_code, "only copy" in planned.output) == (0, True)
        refused = await run(*arguments, "--yes")
        assert refused.exit_code != 0
        assert "trioha failover broker-a --to 1" in str(refused.exception)
        async with open_admin(set_.namesrv) as admin:
            with pytest.raises(CommandError, match="only copy"):
                await admin.resync(b.address, "broker-a", dry_run=False)
        status = await b.status()
        assert (status["max_phy_offset"], status["cuts"]) == (end, [])

        forced = await run(*arguments, "--yes", "--force")
        assert forced.exit_code == 0, forced.output
        assert len((await b.status())["cuts"]) == 1
