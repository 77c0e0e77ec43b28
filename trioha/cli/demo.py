"""`trioha demo`: a replicated pair of real processes, and what it does when its master dies."""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from trioha.cli.demo_load import PRODUCER, SENDERS, TOPIC
from trioha.cli.demo_telling import (
    SMALL_SETTINGS,
    STEP_PATIENCE_S,
    Demonstration,
    indented,
    step,
)
from trioha.cli.failover import plan_in_words, step_in_words
from trioha.cli.ha import cluster_status, status_in_words
from trioha.cli.output import size_in_words
from trioha.client import Producer, open_admin, open_producer
from trioha.client.cluster import open_cluster
from trioha.client.failover import new_order, plan_failover, run_failover
from trioha.credentials import set_tls_source
from trioha.failover.outcome import Result
from trioha.layouts import LayoutMember, broker_arguments, namesrv_arguments
from trioha.store.inspect import diff_logs
from trioha.supervisor import Node, Supervisor

LOAD_BEFORE_KILL = 500
LOAD_AFTER_FAILOVER = 500
_HOST = "127.0.0.1:0"
_MASTER = LayoutMember("broker-a", 0, "SYNC_MASTER")
_SLAVE = LayoutMember("broker-a", 1, "SLAVE")
_SETTINGS = (
    *SMALL_SETTINGS,
    # And a slave finds its master again sooner than after 5 s.
    "haReconnectInterval=200",
)


@click.command("demo")
@click.option("--raft", is_flag=True, help="Three brokers that elect their master themselves.")
@click.option("--keep", is_flag=True, help="Leave the cluster running and print its addresses.")
@click.option(
    "--count", type=click.IntRange(10, 200_000), default=3000, show_default=True, metavar="N"
)
@click.pass_context
def command(ctx: click.Context, raft: bool, keep: bool, count: int) -> None:
    """Show on this machine what trioha promises, with real processes on free loopback ports.

    Starts a name server, a SYNC_MASTER and its slave in a temporary directory, sends and consumes
    messages, kills the master with SIGKILL while senders are at it, fails over to the slave, lets
    the old master return, and accounts for every acknowledged message. Takes about 10 s. Exit code
    0 only if every check held.

    With --raft the same with a DLEDGER group of three: the leader is killed, and nobody gives a
    command; the other two elect one of themselves. Takes about 15 s.

    \b
    trioha demo
    trioha demo --raft
    trioha demo --keep
    """
    from trioha.cli.demo_raft import RaftDemo

    directory = Path(tempfile.mkdtemp(prefix="trioha-demo-"))
    demo = (RaftDemo if raft else Demo)(directory, count, keep)
    # Its nodes get no settings of other nodes (`environment`), so they speak no TLS.
    set_tls_source(lambda: None)
    try:
        trio.run(demo.run)
    finally:
        if not (keep and demo.all_held):
            shutil.rmtree(directory, ignore_errors=True)
    ctx.exit(0 if demo.all_held else 1)


@attrs.define(eq=False)
class Demo(Demonstration):
    """The steps, in the order they are told."""

    killed_s: float = 0.0

    async def _tell(self, supervisor: Supervisor) -> None:
        click.echo(f"A name server, a SYNC_MASTER and its slave, in {self.directory}")
        async with step("Start them, a process each"):
            namesrv = await self._start(
                supervisor, "namesrv", namesrv_arguments(_HOST, self.directory / "namesrv")
            )
            self.namesrv = namesrv.address
            master = await self._start_broker(supervisor, _MASTER, _HOST)
            slave = await self._start_broker(supervisor, _SLAVE, _HOST)
            await self._wait_in_sync()
            self._held("the slave follows the master")
        async with open_producer(self.namesrv, group="demo-senders", config=PRODUCER) as producer:
            async with step(f"Send {self.count} messages; each OK waits until the slave has it"):
                await self._send(producer)
            await self._consume_half()
            master = await self._lose_the_master(supervisor, producer, master)
        async with step("Look at both (trioha ha status)"):
            await self._wait_in_sync()
            brokers, _ = await cluster_status(self.namesrv, STEP_PATIENCE_S)
            click.echo(indented(status_in_words(brokers)))
        await self._account(master, slave)
        self.all_held = True
        self._say_what_happened([namesrv, master, slave])

    async def _lose_the_master(
        self, supervisor: Supervisor, producer: Producer, master: Node
    ) -> Node:
        """Under load from here to the end; returns the old master as it came back."""
        async with self.ledger.senders_at_it(producer):
            async with step(f"{SENDERS} senders at it: kill the master (SIGKILL)"):
                await self.ledger.wait_acknowledged(LOAD_BEFORE_KILL)
                await supervisor.kill(master)
                self.killed_s = time.monotonic()
                self._held(f"pid {master.pid} is dead, in the middle of its work")
            async with step("Fail over to the slave (trioha failover broker-a)"):
                await self._fail_over()
            async with step("The old master comes back"):
                address = str(master.facts["listen"])
                ha_port = str(master.facts["ha"]).rpartition(":")[2]
                master = await self._start_broker(
                    supervisor, _MASTER, address, f"haListenPort={ha_port}"
                )
                await self._wait_in_sync()
                self._held("it found out that it is not master any more, and follows")
                await self.ledger.wait_acknowledged(LOAD_AFTER_FAILOVER)
                self._held("senders hear OK again: there are two copies of each")
        return master

    async def _fail_over(self) -> None:
        began_s = time.monotonic()
        async with open_cluster(self.namesrv) as cluster:
            plan = await plan_failover(cluster, new_order(cluster, _MASTER.name))
            click.echo(indented(plan_in_words(plan)))
            outcome = await run_failover(
                cluster,
                new_order(cluster, _MASTER.name, confirmed=plan),
                lambda step: click.echo(f"   {step_in_words(step)}"),
            )
        self._held(outcome.message, outcome.result is Result.DONE, outcome.result.value)
        await self.ledger.wait_stored(LOAD_AFTER_FAILOVER)
        first_s = next(moment for moment in self.ledger.stored_times_s if moment > began_s)
        self._held(
            f"senders are served again {1000 * (first_s - began_s):.0f} ms after the command; "
            "they hear SLAVE_NOT_AVAILABLE, for there is none"
        )

    async def _account(self, master: Node, slave: Node) -> None:
        ledger = self.ledger
        async with self._account_step():
            await self._wait_in_sync()
            stores = [Path(str(node.facts["store"])) / "commitlog" for node in (master, slave)]
            report = await trio.to_thread.run_sync(partial(diff_logs, *stores))
            size = size_in_words(report.end_a - report.begin_a)
            self._held(f"both logs are equal, byte for byte: {size}", report.equal, str(report))
            faults = await trio.to_thread.run_sync(ledger.faults_of, stores[1])
            self._held(
                "each is where its sender was told, and no queue offset is missing or there twice",
                not faults,
                "; ".join(faults[:3]),
            )
            self._say_rest()

    async def _start_broker(
        self, supervisor: Supervisor, member: LayoutMember, listen: str, *settings: str
    ) -> Node:
        arguments = broker_arguments(
            member, listen, self.namesrv, self.directory, [*_SETTINGS, *settings]
        )
        return await self._start(supervisor, member.label, arguments)

    async def _wait_in_sync(self) -> None:
        """Wait until the slave is in sync. It asks again and again: no node tells a client."""
        async with open_admin(self.namesrv) as admin:
            while True:
                info = await admin.cluster_info()
                data = info.broker_addr_table.get(_MASTER.name)
                addresses = dict(data.broker_addrs) if data is not None else {}
                if len(addresses) == 2 and 0 in addresses:
                    master = await admin.node_status(addresses.pop(0))
                    slave = await admin.node_status(*addresses.values())
                    links = master.get("connections")
                    if (
                        isinstance(links, list)
                        and any(link["in_sync"] for link in links)
                        and slave["epoch"] == master["epoch"]
                    ):
                        return
                await trio.sleep(0.02)

    def _say_what_happened(self, nodes: list[Node]) -> None:
        elapsed = time.monotonic() - self.began
        gap_s = self.ledger.longest_gap_s(self.killed_s)
        click.echo(
            f"\nAll {self.checks_held} checks held, in {elapsed:.1f} s.\n\n"
            "What you saw: every message was in the slave's log before its sender got OK, so the\n"
            "death of the master lost none that was acknowledged. One command made the slave\n"
            f"master; senders and readers went on by themselves, {gap_s:.1f} s after the kill, a\n"
            f"person's reaction time not included. {_cut_in_words(nodes[1])}\n"
        )
        if not self.keep:
            click.echo("Try it with your own client: trioha demo --keep leaves a cluster running.")
            return
        at = self.namesrv
        stop = " ".join(str(node.pid) for node in reversed(nodes))
        click.echo(
            f"The cluster is up. Name server: {at}\nStores and logs: {self.directory}\n\n"
            f"  trioha ha status -n {at}\n"
            f"  trioha failover broker-a -n {at}         and back again, planned this time\n"
            f"  echo hello | trioha produce -n {at} -t {TOPIC}\n"
            f"  trioha consume -n {at} -t {TOPIC} -g mine --count 1\n\n"
            f'  C++    producer.set_name_server_address("{at}")      (pip install rocketmq)\n'
            f'  Node   new Producer({{ nameSrv: "{at}", producerGroup: "g" }})   (npm ali-ons)\n'
            f'  Java   producer.setNamesrvAddr("{at}");\n'
            f'  Go     producer.WithNameServer([]string{{"{at}"}})\n\n'
            f"Stop it:  kill {stop}  &&  rm -r {self.directory}"
        )


def _cut_in_words(node: Node) -> str:
    """Return in words what the old master cut from its log to follow the new one."""
    cuts = [path.name for path in (Path(str(node.facts["store"])) / "cut").glob("*-*")]
    sizes = [int(end) - int(begin) for begin, end, *_ in (name.split("-") for name in cuts)]
    if not sizes:
        return "The old master had nothing\nthat the new one lacked, and follows it."
    return (
        f"The old master cut {size_in_words(sum(sizes))}\n"
        "that nobody else had (kept below `cut` in its store), and follows."
    )
