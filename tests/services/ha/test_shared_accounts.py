"""Accounts of a set: changes during a switch, and the modes of a whole node's requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from support.handlers.sending import FakeChannel
from support.nodes.virtual_set import VirtualBroker, VirtualSet, virtual_set, without_waits

from trioha.broker.set_modes import SERVING
from trioha.failover.outcome import Result
from trioha.security.signature import Credentials
from trioha.services.loop.host import run_blocking
from trioha.services.node import acl_files
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand

T = TypeVar("T")
OPERATOR = Credentials("operator", "12345678")
ADMIN = Credentials("admin", "admin-secret")
SHARED: dict[str, Any] = {
    "authentication_enabled": True,
    "init_authentication_user": json.dumps({"username": "admin", "password": "admin-secret"}),
    "inner_client_authentication_credentials": json.dumps(
        {"accessKey": "inner", "secretKey": "inner-secret"}
    ),
    "ha_secret": "of the set",
}
"""Settings of nodes that prove themselves to each other, and so share their accounts."""
OWN = {**SHARED, "ha_secret": ""}


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waits(monkeypatch)


class HeldChanges:
    """Changes of files that wait in their thread until `let_go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.came, self._go = trio.Event(), trio.Event()

        async def hold(function: Callable[[], T]) -> T:
            if getattr(function, "func", None) is acl_files._carry_out:
                self.came.set()
                await self._go.wait()
            return await run_blocking(function)

        monkeypatch.setattr(acl_files, "run_blocking", hold)

    def let_go(self) -> None:
        self._go.set()


def create(name: str, flag: int = 0) -> RemotingCommand:
    info = json.dumps({"username": name, "password": "secret"}).encode()
    return RemotingCommand(RequestCode.AUTH_CREATE_USER, {"username": name}, info, flag=flag)


async def users(broker: VirtualBroker) -> list[str]:
    answer = await broker.ask(RemotingCommand(RequestCode.AUTH_LIST_USER))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return sorted(user["username"] for user in json.loads(answer.body_bytes()))


async def wait_users(set_: VirtualSet, *names: str) -> None:
    """Wait until every node knows these beside the first two."""
    with trio.fail_after(60):
        for broker in set_.brokers:
            while await users(broker) != sorted(("admin", "inner", *names)):  # noqa: ASYNC110
                await trio.sleep(0.1)


class Asked:
    """A request that is asked in the background."""

    def __init__(self, nursery: trio.Nursery, broker: VirtualBroker, name: str = "late") -> None:
        self.answer: RemotingCommand | None = None
        self.answered = trio.Event()

        async def ask() -> None:
            self.answer = await broker.ask(create(name))
            self.answered.set()

        nursery.start_soon(ask)

    async def code(self) -> tuple[int, str]:
        with trio.fail_after(60):
            await self.answered.wait()
        assert self.answer is not None
        return self.answer.code, self.answer.remark or ""


async def test_every_request_of_a_node_of_a_set_has_its_modes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    codes: set[int] = set()
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: operator\n  secretKey: 12345678\n  admin: true\n")
    plain: dict[str, Any] = {"acl_enable": True, "acl_file": str(accounts)}
    for number, (settings, by) in enumerate((({}, None), (SHARED, ADMIN), (plain, OPERATOR))):
        async with virtual_set(tmp_path / str(number), 2, by, **settings) as set_:
            codes |= set_[0].node.gate.handlers.keys()
    assert sorted(codes - SERVING.keys()) == sorted(SERVING.keys() - codes)


async def test_a_change_in_a_pause_waits_and_is_made_at_the_new_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_set(tmp_path, 2, ADMIN, **SHARED) as set_, trio.open_nursery() as nursery:
        await wait_users(set_)
        set_[0].replication.roles.pause()
        asked = Asked(nursery, set_[0])
        await trio.sleep(1)
        assert not asked.answered.is_set()
        assert set_[0].node.gate.parked_count == 1
        assert (await set_.fail_over()).result is Result.DONE
        # The remark may say that no slave is near yet.
        assert (await asked.code())[0] == ResponseCode.SUCCESS
        await wait_users(set_, "late")
        # A client with the old route: the change is the new master's as well.
        assert await Asked(nursery, set_[0], "later").code() == (ResponseCode.SUCCESS, "")
        await wait_users(set_, "late", "later")


async def test_a_change_in_a_pause_is_made_here_if_the_switch_is_given_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_set(tmp_path, 2, ADMIN, **SHARED) as set_, trio.open_nursery() as nursery:
        await wait_users(set_)
        set_[0].replication.roles.pause()
        asked = Asked(nursery, set_[0])
        await trio.sleep(1)
        set_[0].replication.roles.resume()
        assert await asked.code() == (ResponseCode.SUCCESS, "")
        await wait_users(set_, "late")


@pytest.mark.parametrize("switched", [False, True])
async def test_a_change_that_a_switch_overtakes_is_never_called_done(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    switched: bool,
) -> None:
    """It was once answered SUCCESS, though the new master's text took its place."""
    held = HeldChanges(monkeypatch)
    async with virtual_set(tmp_path, 2, ADMIN, **SHARED) as set_, trio.open_nursery() as nursery:
        await wait_users(set_)
        asked = Asked(nursery, set_[0])
        await held.came.wait()
        if switched:
            assert (await set_.fail_over()).result is Result.DONE
        else:
            set_[0].replication.roles.pause()
        held.let_go()
        code, remark = await asked.code()
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark.startswith(OUTCOME_UNKNOWN)


async def test_accounts_that_are_not_shared_are_changed_at_any_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_set(tmp_path, 2, ADMIN, **OWN) as set_, trio.open_nursery() as nursery:
        set_[0].replication.roles.pause()
        assert await Asked(nursery, set_[0]).code() == (ResponseCode.SUCCESS, "")
        assert (await users(set_[0]), await users(set_[1])) == (
            ["admin", "inner", "late"],
            ["admin", "inner"],
        )


async def test_a_oneway_change_is_made_and_not_answered(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_set(tmp_path, 2, ADMIN, **OWN) as set_:
        node, channel, request = set_[0].node, FakeChannel(), create("late", ONEWAY_FLAG)
        ADMIN.sign(request)
        assert node.gate.handle(channel, request, node.clock.instant()) is None
        with trio.fail_after(60):
            while "late" not in await users(set_[0]):  # noqa: ASYNC110
                await trio.sleep(0.1)
        assert channel.sent == []
