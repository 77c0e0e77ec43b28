"""`trioha demo`: a replicated pair as real processes, and what it does when its master stops."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from trioha.cli.cluster import Member, broker_arguments
from trioha.cli.ha import cluster_status, status_in_words
from trioha.cli.output import size_in_words
from trioha.client import (
    ConsumeFrom,
    Message,
    PushConsumerConfig,
    SendStatus,
    open_admin,
    open_producer,
    open_push_consumer,
)
from trioha.errors import TriohaError
from trioha.services.signals import watch_signals
from trioha.store.inspect import diff_logs
from trioha.supervisor import Node, Supervisor, open_supervisor

TOPIC = "demo"
GROUP = "demo-readers"
BODY_BYTES = 128
SENDERS = 32
QUEUES = 4
STEP_PATIENCE_S = 30.0
"""For each step. All of them together take some seconds; a loaded machine gets more."""
SYNC_INTERVAL_MS = 300
_HOST = "127.0.0.1:0"
_MASTER = Member("broker-a", 0, "SYNC_MASTER")
_SLAVE = Member("broker-a", 1, "SLAVE")
_SETTINGS = (
    # Small files, and no opinion on how full this machine's disk is.
    *("mappedFileSizeCommitLog=64MiB", "maxHashSlotNum=50000", "maxIndexNum=200000"),
    *("diskMaxUsedSpaceRatio=99", "diskSpaceWarningLevelRatio=99"),
    # Consumer progress reaches the slave sooner than after RocketMQ's 10 s.
    *(f"slaveSyncInterval={SYNC_INTERVAL_MS}", "flushConsumerOffsetInterval=500"),
    # And the slave finds its master again sooner than after 5 s (--keep).
    "haReconnectInterval=500",
)


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave the cluster running and print its addresses.")
@click.option(
    "--count", type=click.IntRange(10, 200_000), default=3000, show_default=True, metavar="N"
)
@click.pass_context
def command(ctx: click.Context, keep: bool, count: int) -> None:
    """Show on this machine what trioha promises, with real processes on free loopback ports.

    Starts a name server, a SYNC_MASTER and its slave in a temporary directory, sends and consumes
    messages, compares the two logs, stops the master and consumes on from the slave. Takes under
    10 s. Exit code 0 only if every check held.

    \b
    trioha demo
    trioha demo --keep
    """
    directory = Path(tempfile.mkdtemp(prefix="trioha-demo-"))
    demo = Demo(directory, count, keep)
    try:
        trio.run(demo.run)
    finally:
        if not (keep and demo.all_held):
            shutil.rmtree(directory, ignore_errors=True)
    ctx.exit(0 if demo.all_held else 1)


@attrs.define(eq=False)
class Demo:
    """The steps, in the order they are told."""

    directory: Path
    count: int
    keep: bool
    namesrv: str = ""
    sent: set[str] = attrs.Factory(set)
    received: set[str] = attrs.Factory(set)
    received_twice: int = 0
    checks_held: int = 0
    all_held: bool = False
    began: float = attrs.field(factory=time.monotonic)

    async def run(self) -> None:
        """Errors: TriohaError of the first step that did not hold; all processes are stopped."""
        shutdown = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, shutdown, name="signals")
            nursery.start_soon(_interrupt_on, shutdown, name="interrupt")
            async with open_supervisor(on_death=_say_death) as supervisor:
                await self._tell(supervisor)
            nursery.cancel_scope.cancel()

    async def _tell(self, supervisor: Supervisor) -> None:
        click.echo(f"A name server, a SYNC_MASTER and its slave, in {self.directory}")
        async with _step("Start them, a process each"):
            namesrv = await self._start(
                supervisor,
                "namesrv",
                [
                    *("namesrv", "--listen", _HOST),
                    *("--set", f"kvConfigPath={self.directory / 'namesrv' / 'kvConfig.json'}"),
                ],
            )
            self.namesrv = namesrv.address
            master = await self._start_broker(supervisor, _MASTER, _HOST)
            slave = await self._start_broker(supervisor, _SLAVE, _HOST)
            await self._wait_in_sync()
            self._held("the slave follows the master")
        async with _step(f"Send {self.count} messages; each OK waits until the slave has it"):
            await self._send()
        async with _step("Consume half of them from the master"):
            await self._consume(self.count // 2)
            self._held(f"{len(self.received)} arrived; the group's progress is stored")
        async with _step("Look at the replication link (trioha ha status)"):
            await self._wait_in_sync()
            brokers, _ = await cluster_status(self.namesrv, STEP_PATIENCE_S)
            click.echo(_indented(status_in_words(brokers)))
        async with _step("Compare the two logs on disk (trioha log diff)"):
            await self._compare(master, slave)
        async with _step("Stop the master"):
            # Progress is copied by interval: let one pass.
            await trio.sleep(2 * SYNC_INTERVAL_MS / 1000)
            code = await supervisor.stop(master)
            self._held(f"it stopped in order, exit code {code}", code == 0)
        async with _step("Consume on from the slave"):
            await self._consume(self.count)
            self._held(
                f"all {self.count} messages arrived, {self.received_twice} of them twice",
                self.received >= self.sent,
            )
        if self.keep:
            async with _step("Start the master again, and leave all three running"):
                address = str(master.facts["listen"])
                ha_port = str(master.facts["ha"]).rpartition(":")[2]
                master = await self._start_broker(
                    supervisor, _MASTER, address, f"haListenPort={ha_port}"
                )
                await self._wait_in_sync()
                self._held("the slave follows it again")
        self.all_held = True
        self._say_what_happened([namesrv, master, slave])

    async def _start_broker(
        self, supervisor: Supervisor, member: Member, listen: str, *settings: str
    ) -> Node:
        arguments = broker_arguments(
            member, listen, self.namesrv, self.directory, [*_SETTINGS, *settings]
        )
        return await self._start(supervisor, member.label, arguments)

    async def _start(self, supervisor: Supervisor, name: str, arguments: list[str]) -> Node:
        node = await supervisor.start(
            name,
            arguments,
            log=self.directory / f"{name}.log",
            environment=_environment(),
            detached=self.keep,
        )
        click.echo(f"   {name:<12} {node.address:<21} pid {node.pid}")
        return node

    async def _wait_in_sync(self) -> None:
        """Not ideal: nobody tells a client when a slave is in sync, so this asks again."""
        async with open_admin(self.namesrv) as admin:
            while True:
                info = await admin.cluster_info()
                addresses = dict(info.broker_addr_table[_MASTER.name].broker_addrs)
                if set(addresses) == {0, 1}:
                    status = await admin.node_status(addresses[0])
                    slave = await admin.node_status(addresses[1])
                    links = status.get("connections")
                    if (
                        isinstance(links, list)
                        and any(link["in_sync"] and not link["gap_bytes"] for link in links)
                        and slave["max_phy_offset"] == status["max_phy_offset"]
                    ):
                        return
                await trio.sleep(0.02)

    async def _send(self) -> None:
        async with open_admin(self.namesrv) as admin:
            await admin.create_topic(TOPIC, queue_nums=QUEUES)
            await admin.wait_route(TOPIC, QUEUES)
        numbers = iter(range(self.count))
        statuses: dict[SendStatus, int] = {}
        began = time.perf_counter()
        async with open_producer(self.namesrv, group="demo-senders") as producer:

            async def send() -> None:
                for number in numbers:
                    body = b"message %d " % number
                    result = await producer.send(Message(TOPIC, body.ljust(BODY_BYTES, b".")))
                    statuses[result.status] = statuses.get(result.status, 0) + 1
                    self.sent.add(result.msg_id)

            async with trio.open_nursery() as nursery:
                for _ in range(SENDERS):
                    nursery.start_soon(send)
        elapsed = time.perf_counter() - began
        self._held(
            f"{len(self.sent)} acknowledged in {elapsed:.1f} s, {len(self.sent) / elapsed:.0f}/s",
            statuses == {SendStatus.SEND_OK: self.count},
            ", ".join(f"{number} {status.name}" for status, number in statuses.items()),
        )

    async def _consume(self, until_count: int) -> None:
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
        async with open_push_consumer(self.namesrv, GROUP, {TOPIC: "*"}, config=config) as consumer:
            async for message in consumer:
                if message.msg_id in self.received:
                    self.received_twice += 1
                self.received.add(message.msg_id)
                if len(self.received) >= until_count:
                    consumer.ack(message)
                    break

    async def _compare(self, master: Node, slave: Node) -> None:
        stores = [Path(str(node.facts["store"])) / "commitlog" for node in (master, slave)]
        report = await trio.to_thread.run_sync(partial(diff_logs, *stores))
        size = size_in_words(report.end_a - report.begin_a)
        self._held(f"equal, byte for byte: {size}", report.equal, str(report))

    def _held(self, what: str, ok: bool = True, details: str = "") -> None:
        if not ok:
            raise TriohaError(f"this did not hold: {what}{f' ({details})' if details else ''}")
        self.checks_held += 1
        click.echo(f"   ok: {what}")

    def _say_what_happened(self, nodes: list[Node]) -> None:
        elapsed = time.monotonic() - self.began
        click.echo(
            f"\nAll {self.checks_held} checks held, in {elapsed:.1f} s.\n\n"
            "What you saw: every message was in the slave's log before its sender got OK, so\n"
            "losing the master lost nothing. Readers went on from the slave without being told;\n"
            "nothing can be sent until a master is back.\n"
        )
        if not self.keep:
            click.echo("Try it with your own client: trioha demo --keep leaves a cluster running.")
            return
        at = self.namesrv
        stop = " ".join(str(node.pid) for node in reversed(nodes))
        click.echo(
            f"The cluster is up. Name server: {at}\nStores and logs: {self.directory}\n\n"
            f"  trioha ha status -n {at}\n"
            f"  echo hello | trioha produce -n {at} -t {TOPIC}\n"
            f"  trioha consume -n {at} -t {TOPIC} -g mine --count 1\n\n"
            f'  C++    producer.set_name_server_address("{at}")      (pip install rocketmq)\n'
            f'  Node   new Producer({{ nameSrv: "{at}", producerGroup: "g" }})   (npm ali-ons)\n'
            f'  Java   producer.setNamesrvAddr("{at}");\n'
            f'  Go     producer.WithNameServer([]string{{"{at}"}})\n\n'
            f"Stop it:  kill {stop}  &&  rm -r {self.directory}"
        )


def _environment() -> dict[str, str]:
    """Ours, without settings meant for other nodes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRIOHA_")}


@asynccontextmanager
async def _step(title: str) -> AsyncIterator[None]:
    click.echo(f"\n{title}")
    try:
        with trio.fail_after(STEP_PATIENCE_S):
            yield
    except trio.TooSlowError:
        raise TriohaError(f"not done within {STEP_PATIENCE_S:g} s: {title}") from None


async def _interrupt_on(shutdown: trio.Event) -> None:
    await shutdown.wait()
    raise KeyboardInterrupt


def _say_death(node: Node) -> None:
    click.echo(f"   {node.name} died, exit code {node.process.returncode}; it said last:", err=True)
    click.echo(_indented("\n".join(node.tail())), err=True)


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
