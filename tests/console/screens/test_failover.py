"""The wizard before nodes that answer what a test wants; the whole way on real ones is in
tests/console/test_terminal.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest
from support.fakes.raw_answers import NAMESRV, RawCluster
from support.screens.screens import LARGE, SMALL, Console, check_snapshot, open_console
from trioha_console.link import NotConnected
from trioha_console.screens.failover import FailoverScreen, FailoverStage

from trioha.errors import Unreachable
from trioha.failover.outcome import Result
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

SIZES = pytest.mark.parametrize("size", [SMALL, LARGE])


class FakeSet:
    """A set that can be failed over: its nodes keep a term each and do as they are told."""

    def __init__(self, cluster: RawCluster, name: str = "broker-a") -> None:
        self.cluster = cluster
        self.name = name
        self.asked: list[tuple[str, int]] = []
        self.dead: set[str] = set()
        self.refuses: dict[int, str] = {}
        """Remarks of refusals, by request code."""
        self.gate: asyncio.Event | None = None
        """Event that a promotion waits for."""
        self.records: list[dict[str, Any]] = []

    async def __call__(self, address: str, command: RemotingCommand) -> RemotingCommand:
        self.asked.append((address, command.code))
        if address in self.dead:
            raise NotConnected(f"{address}: Connection refused")
        if command.code in self.refuses:
            return command.response(ResponseCode.SYSTEM_ERROR, self.refuses[command.code])
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            if address != NAMESRV:
                raise AssertionError(f"{address} is no name server")
            return command.response(body=self._listed())
        status = self.cluster.statuses[address]
        if command.code == RequestCode.PROMOTE:
            if self.gate is not None:
                await self.gate.wait()
            self._promote(address)
        elif command.code == RequestCode.HAND_OVER:
            status.update(standing="FENCED")
        elif command.code == RequestCode.FOLLOW:
            status.update(standing="SLAVE", epoch=status["epoch"] + 1)
        elif command.code == RequestCode.RELEASE:
            body = msgpack.unpackb(command.body_bytes())
            if body.get("audit"):
                self.records = [body["audit"]]
        elif command.code == RequestCode.FAILOVER_AUDIT:
            return command.response(body=msgpack.packb({"records": self.records}))
        return command.response(body=msgpack.packb(status | {"metadata_position": 0}))

    def _promote(self, address: str) -> None:
        for other, member in self.cluster.members.items():
            if member["name"] == self.name:
                member["id"] = 0 if other == address else max(1, member["id"])
        status = self.cluster.statuses[address]
        status.update(standing="MASTER", epoch=status["epoch"] + 1, slave=None)

    def _listed(self) -> bytes:
        addresses = {
            member["id"]: address
            for address, member in self.cluster.members.items()
            if member["name"] == self.name and member["registered"]
        }
        data = BrokerData("DefaultCluster", self.name, addresses)
        return ClusterInfo({self.name: data}, {"DefaultCluster": (self.name,)}).encode()


@asynccontextmanager
async def wizard(
    size: tuple[int, int] = SMALL, *, armed: bool = True, slaves: int = 2
) -> AsyncIterator[tuple[Console, FakeSet, FailoverScreen]]:
    cluster = RawCluster()
    cluster.add_set("broker-a", slaves)
    for status in cluster.statuses.values():
        status.update(sync=True)
        if status["slave"] is not None:
            status["slave"]["announced_offset"] = status["max_phy_offset"]
    async with open_console(cluster, size, armed=armed) as console:
        nodes = FakeSet(cluster)
        console.source.answer = nodes
        await console.press("F")
        screen = console.app.screen
        assert isinstance(screen, FailoverScreen)
        yield console, nodes, screen


async def reached(console: Console, screen: FailoverScreen, stage: FailoverStage) -> None:
    await console.until(stage.name, lambda: screen.stage is stage)


async def type_name(console: Console, name: str = "broker-a") -> None:
    await console.press("c", *("minus" if one == "-" else one for one in name), "enter")


def may_run(screen: FailoverScreen) -> bool:
    return screen.plan is not None and screen.plan.may_run


@SIZES
async def test_the_plan_of_a_switch_with_both_ends_alive(size: tuple[int, int]) -> None:
    async with wizard(size) as (console, _, screen):
        await reached(console, screen, FailoverStage.PLAN)
        check_snapshot(f"failover-plan-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_the_plan_when_the_master_is_dead(size: tuple[int, int]) -> None:
    async with wizard(size) as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        master = next(iter(nodes.cluster.statuses))
        nodes.dead.add(master)
        nodes.cluster.statuses["10.0.1.2:10911"]["follows"] = master
        await console.press("r")
        await reached(console, screen, FailoverStage.PLAN)
        check_snapshot(f"failover-forced-{size[0]}x{size[1]}", console.text)


async def test_the_whole_way_to_the_audit_record() -> None:
    async with wizard(LARGE) as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        await type_name(console)
        await reached(console, screen, FailoverStage.END)
        assert "done: 1 (10.0.1.2:10911) is master of broker-a since epoch 2" in console.text
        assert nodes.records[0]["result"] == Result.DONE.value
        assert "audit      done" in console.text
        codes = [code for _, code in nodes.asked]
        assert codes.index(RequestCode.PAUSE_WRITES) < codes.index(RequestCode.HAND_OVER)
        assert codes.index(RequestCode.HAND_OVER) < codes.index(RequestCode.PROMOTE)


async def test_nothing_is_done_under_another_name() -> None:
    async with wizard() as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        await type_name(console, "broker-b")
        assert "broker-b is not broker-a; nothing has been done" in console.text
        # The name stays to be mended, and letters are letters.
        await console.press("backspace", "r", "f")
        assert "broker-rf" in console.text
        assert screen.stage is FailoverStage.PLAN
        assert RequestCode.FAILOVER_TICKET not in [code for _, code in nodes.asked]


async def test_a_console_that_is_not_armed_only_looks() -> None:
    async with wizard(armed=False) as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        assert "start it with --write" in console.text
        await type_name(console)
        assert screen.stage is FailoverStage.PLAN
        asked = {code for _, code in nodes.asked}
        assert asked <= {RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.TRIOHA_NODE_STATUS}


async def test_another_candidate_is_chosen_with_enter() -> None:
    async with wizard() as (console, _, screen):
        await reached(console, screen, FailoverStage.PLAN)
        assert screen.plan is not None
        assert screen.plan.target is not None
        assert screen.plan.target.home_id == 1
        await console.press("down", "down", "enter")
        assert screen.plan.target.home_id == 2


async def test_what_forbids_the_plan_is_said_with_its_cure_and_f_accepts_a_risk() -> None:
    async with wizard(LARGE) as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        nodes.dead.update({"10.0.1.1:10911", "10.0.1.3:10911"})
        await console.press("r")
        await reached(console, screen, FailoverStage.PLAN)
        assert not may_run(screen)
        assert "2 (10.0.1.3:10911) does not answer and may hold more" in console.text
        assert "f accepts that risk" in console.text
        await console.press("f")
        assert may_run(screen)
        assert "the risk is accepted" in console.text


async def test_a_node_that_says_no_ends_it_with_everything_given_back() -> None:
    async with wizard(LARGE) as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        nodes.refuses[RequestCode.PAUSE_WRITES] = "the disk is full"
        await type_name(console)
        await reached(console, screen, FailoverStage.END)
        assert "✖ refused" in console.text
        assert "the disk is full" in console.text


async def test_while_it_runs_the_screen_stays_and_the_program_too() -> None:
    async with wizard() as (console, nodes, screen):
        await reached(console, screen, FailoverStage.PLAN)
        nodes.gate = asyncio.Event()
        await type_name(console)
        await console.press("escape", "q")
        assert console.app.screen is screen
        assert console.app.is_running
        nodes.gate.set()
        await reached(console, screen, FailoverStage.END)
        await console.press("escape")
        assert console.app.screen is console.app.main


async def test_no_name_server_answers() -> None:
    async with wizard(LARGE) as (console, _, screen):
        await reached(console, screen, FailoverStage.PLAN)

        async def silence(address: str, command: RemotingCommand) -> RemotingCommand:
            raise Unreachable(f"{address} did not answer within 3 s")

        console.source.answer = silence
        await console.press("r")
        await reached(console, screen, FailoverStage.PLAN)
        assert not may_run(screen)
        assert "10.0.0.9:9876 did not answer within 3 s" in console.text
        await console.press("escape")
        assert console.app.screen is console.app.main
