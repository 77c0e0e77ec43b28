"""A DLEDGER group on the screens, and its leadership handed over from there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import pytest
from support.fakes.raft_status import GROUP, RawGroup, address_of
from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, SMALL, Console, check_snapshot, open_console
from trioha_console.link import NotConnected
from trioha_console.screens.failover import FailoverScreen
from trioha_console.screens.transfer import TransferScreen, TransferStage

from trioha.errors import Unreachable
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

SIZES = pytest.mark.parametrize("size", [SMALL, LARGE])


def a_cluster() -> tuple[RawCluster, RawGroup]:
    """A group with a learner that is behind, beside a pair."""
    cluster = RawCluster()
    group = RawGroup(cluster, learner=True)
    group.row("n3").update(gap_bytes=300 << 20, held_offset=1024)
    cluster.add_set("broker-b")
    cluster.tick()
    return cluster, group


@asynccontextmanager
async def transfer(
    size: tuple[int, int] = SMALL, *, armed: bool = True, command: str = ""
) -> AsyncIterator[tuple[Console, RawGroup, TransferScreen]]:
    cluster, group = a_cluster()
    async with open_console(cluster, size, armed=armed) as console:
        if command:
            await console.press("colon", *command, "enter")
        else:
            await console.press("F")
        await console.tick()
        screen = console.app.screen
        assert isinstance(screen, TransferScreen)
        yield console, group, screen


async def type_name(console: Console, name: str = GROUP) -> None:
    await console.press("c", *("minus" if one == "-" else one for one in name), "enter")


async def ended(console: Console, screen: TransferScreen) -> None:
    await console.until("the end", lambda: screen.stage is TransferStage.END)


@SIZES
async def test_the_group_in_the_table_of_replication(size: tuple[int, int]) -> None:
    cluster, _ = a_cluster()
    async with open_console(cluster, size) as console:
        await console.tick(3)
        check_snapshot(f"raft-group-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_a_follower_from_both_ends(size: tuple[int, int]) -> None:
    cluster, group = a_cluster()
    group.row("n1").update(heard_age_ms=4000, gap_bytes=4096)
    async with open_console(cluster, size) as console:
        await console.press("down", "down")
        await console.tick(3)
        check_snapshot(f"raft-follower-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_a_member_s_own_screen(size: tuple[int, int]) -> None:
    cluster, _ = a_cluster()
    async with open_console(cluster, size) as console:
        await console.press("down", "enter")
        await console.tick(2)
        check_snapshot(f"raft-node-{size[0]}x{size[1]}", console.text)


@SIZES
async def test_the_plan_of_a_transfer(size: tuple[int, int]) -> None:
    async with transfer(size) as (console, _, _):
        check_snapshot(f"raft-transfer-{size[0]}x{size[1]}", console.text)


async def test_the_leader_is_asked_once_the_name_was_typed() -> None:
    async with transfer() as (console, group, screen):

        async def answer(address: str, command: RemotingCommand) -> RemotingCommand:
            assert (address, command.code) == (address_of("n0"), RequestCode.TRIOHA_RAFT_ADMIN)
            asked = msgpack.unpackb(command.body_bytes())
            assert asked == {"do": "transfer", "member": "n1", "address": ""}
            group.elect("n1", 5)
            return command.response(body=msgpack.packb({"leader": "n1", "term": 5}))

        console.source.answer = answer
        await type_name(console)
        await ended(console, screen)
        await console.tick()
        assert f"● done: n1 leads {GROUP} since term 5" in console.text
        assert "LEADER" in console.line(address_of("n1"))
        await console.press("escape")
        assert not isinstance(console.app.screen, TransferScreen)


async def test_another_member_is_chosen_by_enter_and_a_learner_is_refused() -> None:
    async with transfer() as (console, _, screen):
        await console.press("down", "down", "enter")
        await console.tick()
        assert screen.plan is not None
        assert (screen.plan.member, screen.plan.may_run) == ("n2", True)
        await console.press("down", "enter")
        await console.tick()
        assert screen.plan.member == "n3"
        assert "n3 is a learner: promote it first" in console.text
        await console.press("c")
        assert console.source.asked == []


async def test_a_wrong_name_does_nothing() -> None:
    async with transfer() as (console, _, screen):
        await type_name(console, "broker-b")
        assert "broker-b is not broker-a; nothing has been done" in console.text
        assert screen.stage is TransferStage.PLAN
        assert console.source.asked == []


async def test_a_console_that_was_not_armed_only_looks() -> None:
    async with transfer(armed=False) as (console, _, screen):
        assert "start it with --write to go on" in console.text
        await console.press("c")
        assert screen.stage is TransferStage.PLAN
        assert console.source.asked == []


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        ("n1 is behind", "✖ refused: n1 is behind"),
        ("outcome unknown: no majority in 5 s", "▲ it is not known what happened: outcome"),
        (Unreachable("the connection closed"), "▲ it is not known what happened: the conn"),
        (NotConnected("Connection refused"), "✖ nothing has happened: Connection refused"),
    ],
)
async def test_no_and_not_known_are_told_apart(outcome: str | Exception, says: str) -> None:
    async with transfer() as (console, _, screen):

        async def answer(_: str, command: RemotingCommand) -> RemotingCommand:
            if isinstance(outcome, Exception):
                raise outcome
            unknown = outcome.startswith("outcome unknown")
            code = ResponseCode.SYSTEM_ERROR if unknown else ResponseCode.NO_PERMISSION
            return command.response(code, outcome)

        console.source.answer = answer
        await type_name(console)
        await ended(console, screen)
        assert says in console.text
        await console.press("r")
        await console.tick()
        assert screen.stage is TransferStage.PLAN
        assert screen.plan is not None


async def test_commands_open_it_and_a_pair_has_its_wizard() -> None:
    async with transfer(command="transfer broker-a n2") as (console, _, screen):
        assert screen.plan is not None
        assert screen.plan.member == "n2"
        await console.press("escape", "colon", *"failover broker-b", "enter")
        assert isinstance(console.app.screen, FailoverScreen)
