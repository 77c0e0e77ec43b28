"""`trioha demo --raft`: a group of three real processes, and what it does when its leader dies."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from trioha.cli.demo_load import PRODUCER, SENDERS
from trioha.cli.demo_telling import (
    SMALL_SETTINGS,
    Demonstration,
    indented,
    step,
)
from trioha.cli.output import size_in_words
from trioha.cli.raft_words import groups_in_words
from trioha.client import Producer, open_producer
from trioha.client.raft import look_at_groups, run_change
from trioha.layouts import RaftGroup, free_ports, namesrv_arguments
from trioha.services.loop.transport import format_address
from trioha.store.inspect import diff_logs
from trioha.supervisor import Node, Supervisor
from trioha.watch.raft import RaftState
from trioha.watch.raft_change import Do, plan_change
from trioha.watch.replica_set import ReplicaSet

NAME = "broker-a"
MEMBERS = ("n0", "n1", "n2")
LOAD_BEFORE_KILL = 500
LOAD_AFTER_ELECTION = 500
_HOST = "127.0.0.1"
_LOOK_PATIENCE_S = 3.0
_LOOK_AGAIN_S = 0.02


@attrs.define(eq=False)
class RaftDemo(Demonstration):
    """The steps, in the order they are told."""

    election_s: float = 0.0
    outage_s: float = 0.0
    group: RaftGroup = attrs.field(init=False)
    nodes: dict[str, Node] = attrs.Factory(dict)

    async def _tell(self, supervisor: Supervisor) -> None:
        click.echo(f"A name server and three brokers of one DLEDGER group, in {self.directory}")
        async with step("Start them, a process each"):
            namesrv = await self._start_all(supervisor)
            leader = await self._wait_leader()
            self._held(
                f"{leader.member_id} was elected, in term {leader.term}; nobody appointed it"
            )
            await self._wait_level()
            self._held("the other two follow it")
        async with open_producer(self.namesrv, group="demo-senders", config=PRODUCER) as producer:
            async with step(f"Send {self.count}; each OK waits until two of three have it on disk"):
                await self._send(producer)
            await self._consume_half()
            await self._lose_the_leader(supervisor, producer)
        async with step("Look at the group (trioha raft status)"):
            click.echo(indented(groups_in_words((await self._wait_level(),))))
        await self._account()
        self.all_held = True
        self._say_what_happened([namesrv, *self.nodes.values()])

    async def _start_all(self, supervisor: Supervisor) -> Node:
        arguments = namesrv_arguments(f"{_HOST}:0", self.directory / "namesrv")
        namesrv = await self._start(supervisor, "namesrv", arguments)
        self.namesrv = namesrv.address
        ports = free_ports(_HOST, len(MEMBERS))
        self.group = RaftGroup(NAME, {one: format_address(_HOST, next(ports)) for one in MEMBERS})
        async with trio.open_nursery() as nursery:
            for member in MEMBERS:
                nursery.start_soon(self._start_member, supervisor, member)
        return namesrv

    async def _start_member(self, supervisor: Supervisor, member: str) -> None:
        arguments = self.group.arguments(member, self.namesrv, self.directory, SMALL_SETTINGS)
        self.nodes[member] = await self._start(supervisor, self.group.label(member), arguments)

    async def _lose_the_leader(self, supervisor: Supervisor, producer: Producer) -> None:
        """Under load from here to the end."""
        old = await self._wait_leader()
        async with self.ledger.senders_at_it(producer):
            async with step(f"{SENDERS} senders at it: kill the leader {old.member_id} (SIGKILL)"):
                await self.ledger.wait_acknowledged(LOAD_BEFORE_KILL)
                await supervisor.kill(self.nodes[old.member_id])
                killed_s = time.monotonic()
                pid = self.nodes[old.member_id].pid
                self._held(f"pid {pid} is dead, in the middle of its work")
            async with step("Do nothing"):
                new = await self._wait_leader(lambda one: (one.term or 0) > (old.term or 0))
                self.election_s = time.monotonic() - killed_s
                self._held(
                    f"{new.member_id} was elected, in term {new.term},"
                    f" {self.election_s:.1f} s after the kill"
                )
                await self.ledger.wait_acknowledged(LOAD_AFTER_ELECTION)
                first_s = next(one for one in self.ledger.stored_times_s if one > killed_s)
                self.outage_s = first_s - killed_s
                self._held(f"senders hear OK again, {self.outage_s:.1f} s after the kill")
            async with step(f"{old.member_id} comes back"):
                await self._start_member(supervisor, old.member_id)
                await self._wait_level()
                self._held("it follows, gave up what no majority had, and is level")
            async with step(f"Hand over to {old.member_id} (trioha raft transfer {NAME})"):
                await self._hand_over(old.member_id)

    async def _hand_over(self, member: str) -> None:
        plan = plan_change(await self._look(), Do.TRANSFER, member)
        self._held(f"{member} is fit to lead", plan.may_run, "; ".join(plan.refusals))
        asked_s = time.monotonic()
        await run_change(self.namesrv, _LOOK_PATIENCE_S, plan)
        await self.ledger.wait_acknowledged(LOAD_AFTER_ELECTION)
        times = [asked_s, *(one for one in self.ledger.stored_times_s if one > asked_s)]
        gap_s = max(after - before for before, after in itertools.pairwise(times))
        self._held(f"{member} leads; the longest pause of the senders was {1000 * gap_s:.0f} ms")

    async def _account(self) -> None:
        ledger = self.ledger
        async with self._account_step():
            await self._wait_level()
            logs = [Path(str(node.facts["store"])) / "commitlog" for node in self.nodes.values()]
            for other in logs[1:]:
                report = await trio.to_thread.run_sync(partial(diff_logs, logs[0], other))
                self._held("two logs are equal, byte for byte", report.equal, str(report))
            size = size_in_words(report.end_a - report.begin_a)
            faults = await trio.to_thread.run_sync(ledger.faults_of, logs[0])
            self._held(
                f"in their {size} each is where its sender was told, and no queue offset is"
                " missing or there twice",
                not faults,
                "; ".join(faults[:3]),
            )
            self._say_rest()

    async def _look(self) -> ReplicaSet:
        """Return the group once it is registered."""
        while True:
            groups = await look_at_groups(self.namesrv, _LOOK_PATIENCE_S)
            if groups:
                return groups[0]
            await trio.sleep(_LOOK_AGAIN_S)

    async def _wait_leader(
        self, is_it: Callable[[RaftState], bool] = lambda one: True
    ) -> RaftState:
        """Wait for a leader that serves. Not ideal: no node tells a client, so this asks again."""
        while True:
            for state in (await self._look()).raft_states:
                if state.is_leader and state.is_serving and is_it(state):
                    return state
            await trio.sleep(_LOOK_AGAIN_S)

    async def _wait_level(self) -> ReplicaSet:
        """Wait until every member is registered and keeps up with one leader."""
        while True:
            one = await self._look()
            states = one.raft_states
            leaders = [state for state in states if state.is_leader and state.is_serving]
            if (
                len(states) == len(MEMBERS)
                and len(leaders) == 1
                and all(row.keeps_up for row in leaders[0].followers)
                and all(state.term == leaders[0].term for state in states)
                and all(replica.registered for replica in one.replicas)
            ):
                return one
            await trio.sleep(_LOOK_AGAIN_S)

    def _say_what_happened(self, nodes: list[Node]) -> None:
        elapsed = time.monotonic() - self.began
        click.echo(
            f"\nAll {self.checks_held} checks held, in {elapsed:.1f} s.\n\n"
            "What you saw: every message was on the disks of two of three before its sender got\n"
            "OK, so the death of the leader lost none that was acknowledged. The two that were\n"
            f"left elected one of themselves within {self.election_s:.1f} s, and senders and\n"
            "readers went on by themselves; the old leader came back, cut what no majority had,\n"
            "and took the lead again when it was told to.\n"
        )
        if not self.keep:
            click.echo("Try it yourself: trioha demo --raft --keep leaves the group running.")
            return
        at = self.namesrv
        stop = " ".join(str(node.pid) for node in reversed(nodes))
        click.echo(
            f"The group is up. Name server: {at}\nStores and logs: {self.directory}\n\n"
            f"  trioha raft status -n {at}\n"
            f"  trioha raft transfer {NAME} -n {at}\n"
            f"  trioha console --write -n {at}\n"
            f"  kill -9 {nodes[1].pid}                  and look again\n\n"
            f"Stop it:  kill {stop}  &&  rm -r {self.directory}"
        )
