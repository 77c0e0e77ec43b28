"""Target of a benchmark: a cluster given by its name server, or one of its own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioha.client import Admin, MessageQueue, open_admin
from trioha.errors import TriohaError
from trioha.layouts import START_PATIENCE_S, LayoutMember, broker_arguments, namesrv_arguments
from trioha.supervisor import Node, Supervisor, open_supervisor

ResultT = TypeVar("ResultT")

_BROKER = "bench-a"
_READY_S = 30.0
_LOOK_EVERY_S = 0.05
_ANY_PORT = "127.0.0.1:0"


@attrs.define(eq=False)
class BenchTarget:
    """A cluster under test."""

    namesrv: str
    admin: Admin
    supervisor: Supervisor | None
    """Supervisor of a cluster of our own; None for a given one."""
    directory: Path
    settings: Sequence[str]
    slaves: int = 0

    async def prepare_topic(self, topic: str, queues: int) -> list[tuple[MessageQueue, str]]:
        """Each queue of the topic with its master's address; creates the topic if it is new.

        Errors: TriohaError when the name server does not tell the route in time.
        """
        if topic not in await self.admin.topics():
            await self.admin.create_topic(topic, queue_nums=queues)
        with trio.move_on_after(_READY_S):
            route = await self.admin.wait_route(topic)
            masters = {queue: route.master(queue.broker_name) for queue in route.write_queues}
            return [(queue, address) for queue, address in masters.items() if address is not None]
        raise TriohaError(f"topic {topic} got no route within {_READY_S:g} s")

    async def start_slave(self) -> Node:
        """Start an empty slave of our own master and wait until it says it is ready."""
        assert self.supervisor is not None, "only a cluster of our own gets slaves"
        self.slaves += 1
        member = LayoutMember(_BROKER, self.slaves, "SLAVE")
        return await start_broker(
            self.supervisor, member, self.namesrv, self.directory, self.settings
        )

    async def wait_in_sync(self, master: str) -> None:
        """Wait until the master counts a slave as in sync.

        Errors: TriohaError when none is in time.
        """
        with trio.move_on_after(_READY_S):
            while True:
                links = (await self.admin.node_status(master)).get("connections")
                if isinstance(links, list) and any(link.get("in_sync") for link in links):
                    return
                await trio.sleep(_LOOK_EVERY_S)
        raise TriohaError(f"no slave of {master} was in sync within {_READY_S:g} s")


@asynccontextmanager
async def open_target(
    namesrv: str | None, *, role: str, slaves: int, settings: Sequence[str]
) -> AsyncIterator[BenchTarget]:
    """The cluster of `namesrv`; without one, processes in a temporary directory.

    Our own has a name server, one master of `role` and so many slaves, all on loopback.
    Errors: TriohaError when a node does not start.
    """
    if namesrv is not None:
        async with open_admin(namesrv) as admin:
            yield BenchTarget(namesrv, admin, None, Path(), settings)
        return
    with tempfile.TemporaryDirectory(prefix="trioha-bench-") as name:
        directory = Path(name)
        async with open_supervisor(on_death=_report_death) as supervisor:
            arguments = namesrv_arguments(_ANY_PORT, directory)
            with trio.fail_after(START_PATIENCE_S):
                node = await supervisor.start("namesrv", arguments, log=directory / "namesrv.log")
            master = LayoutMember(_BROKER, 0, role)
            broker = await start_broker(supervisor, master, node.address, directory, settings)
            async with open_admin(node.address) as admin:
                target = BenchTarget(node.address, admin, supervisor, directory, settings)
                for _ in range(slaves):
                    await target.start_slave()
                if slaves:
                    await target.wait_in_sync(broker.address)
                yield target


async def start_broker(
    supervisor: Supervisor,
    member: LayoutMember,
    namesrv: str,
    directory: Path,
    settings: Sequence[str],
) -> Node:
    """Start one broker process and wait for its ready line."""
    arguments = broker_arguments(member, _ANY_PORT, namesrv, directory, settings)
    with trio.fail_after(START_PATIENCE_S):
        return await supervisor.start(
            member.label, arguments, log=directory / f"{member.label}.log"
        )


async def run_load(run: Callable[[], ResultT], stop: Callable[[], None]) -> ResultT:
    """Run a load in a thread, with the collector off and Trio's loop asleep.

    Cancellation: the load is told to stop and left to do so within a second.
    """
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True)
    finally:
        stop()
        gc.enable()


def _report_death(node: Node) -> None:
    died = f"trioha: {node.name} died with exit code {node.process.returncode}"
    print(died, *(f"    {line}" for line in node.tail()), sep="\n", file=sys.stderr)
