"""Nodes that are forked behave as nodes that are started."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from trioha.layouts import namesrv_arguments
from trioha.supervisor import NodeFailed, open_supervisor
from trioha.testing.fork_server import ForkedProcess, ForkServer, fork_server

pytestmark = [pytest.mark.slow, pytest.mark.trio]


async def test_a_forked_node_serves_and_ends_as_it_is_told(tmp_path: Path) -> None:
    arguments = namesrv_arguments("127.0.0.1:0", tmp_path)
    environment = {**os.environ, "TRIOHA_BROKER_CHANNEL_EXPIRED_TIME": "60s"}
    with trio.fail_after(60):
        async with open_supervisor(spawn=fork_server().spawn) as supervisor:
            first, second, third = [
                await supervisor.start(
                    f"n{number}", arguments, log=tmp_path / f"{number}.log", environment=environment
                )
                for number in range(3)
            ]
            assert first.pid == os.getpgid(first.pid)
            assert await supervisor.stop(first) == 0
            await supervisor.kill(second)
            assert second.process.returncode == -signal.SIGKILL
        assert third.process.returncode == 0
    assert "node_started" in (tmp_path / "0.log").read_text()


async def test_a_forked_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with trio.fail_after(60), pytest.raises(NodeFailed, match="exit code 2 before it served"):
        async with open_supervisor(spawn=fork_server().spawn) as supervisor:
            arguments = ["namesrv", "--set", "listenPort=-5"]
            await supervisor.start("n", arguments, log=tmp_path / "n.log")


async def test_whoever_reads_the_exit_code_first_the_one_who_waits_gets_it() -> None:
    """Seen as a hang at the end of one cluster in hundreds."""
    status, told = os.pipe()
    os.set_blocking(status, False)
    ours_in, ours_out = os.pipe()
    streams = (trio.lowlevel.FdStream(ours_out), trio.lowlevel.FdStream(ours_in))
    async with streams[0], streams[1]:
        process = ForkedProcess(os.getpid(), *streams, status)
        codes = []

        async def wait() -> None:
            codes.append(await process.wait())

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                os.write(told, b"7")
                assert process.returncode == 7
        os.close(told)
        assert codes == [7, 7]


async def test_nodes_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    server = ForkServer()
    with trio.fail_after(60):
        words = ["run", *namesrv_arguments("127.0.0.1:0", tmp_path), "--until-stdin-ends"]
        node = await server.spawn(words, tmp_path / "log", None)
        await trio.to_thread.run_sync(server.close)
        assert not server.is_running
        # The server no longer reports its end; a process that has ended makes its pidfd readable.
        pidfd = os.pidfd_open(node.pid)
        assert isinstance(node, ForkedProcess)
        await node.stdin.aclose()
        await trio.lowlevel.wait_readable(pidfd)
        os.close(pidfd)
