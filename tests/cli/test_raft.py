"""`trioha raft status|transfer|add|promote|remove`: what is typed, shown, asked, answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest
import trio
from click.testing import CliRunner, Result
from support.fakes.raft_status import GROUP, MEMBERS, RawGroup, address_of, raft_status
from support.fakes.raw_answers import NAMESRV, RawCluster

from trioha.cli import cli, confirmation
from trioha.cli import raft_change as command
from trioha.cli.failures import report
from trioha.cli.ha import status_in_words
from trioha.client import raft as client
from trioha.errors import CommandError, OutcomeUnknown, Unreachable
from trioha.journal import NullSink
from trioha.remoting.channel import Channel, Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import open_listener
from trioha.services.remoting.server import RemotingServer
from trioha.watch.raft_change import ChangePlan, Do, plan_change
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand


class Asked:
    """Stands for the network: answers looks from raw answers, and changes as a test wants."""

    def __init__(self, group: RawGroup) -> None:
        self.group = group
        self.changes: list[ChangePlan] = []
        self.outcome: str | Exception = "it is so"

    async def look_once(self, *_: object, **__: object) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        self.group.cluster.tick()
        return self.group.cluster.raw()

    async def run_change(self, namesrv: str, timeout_s: float, plan: ChangePlan) -> str:
        await trio.lowlevel.checkpoint()
        self.changes.append(plan)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(RawGroup(RawCluster(), learner=True))
    monkeypatch.setattr(client, "look_once", asked.look_once)
    monkeypatch.setattr(command, "run_change", asked.run_change)
    return asked


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "is_somebody_there", lambda: True)


def invoke(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, ["raft", *arguments, "-n", NAMESRV], input=typed)


# Status.


@pytest.mark.usefixtures("asked")
def test_a_group_that_is_well_is_two_tables_and_a_word() -> None:
    shown = invoke("status")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].split("  ")[0] == "GROUP"
    assert lines[1].split() == [*(GROUP, "n0", "4", "yes", "4096", "3", "of", "3", "n3")]
    (follower,) = (line for line in lines if " n1 " in line)
    assert follower.split()[:4] == [GROUP, "n1", "FOLLOWER", "in"]
    assert follower.endswith("0 B  0.1 s")
    assert lines[-1] == "All is well."


def test_json_has_what_was_understood_and_what_each_member_said(asked: Asked) -> None:
    shown = invoke("status", GROUP, "-o", "json")
    (told,) = json.loads(shown.output)["groups"]
    assert (told["leader"], told["term"], told["serving"]) == ("n0", 4, True)
    assert (told["voters"], told["learners"]) == (list(MEMBERS), ["n3"])
    assert [one["member"] for one in told["members"]] == [*MEMBERS, "n3"]
    assert told["members"][1]["raft"] == asked.group.raft("n1")


def test_a_member_that_is_not_well_is_exit_code_1_and_a_sentence(asked: Asked) -> None:
    asked.group.raft("n2")["impaired"] = True
    shown = invoke("status")
    assert shown.exit_code == 1
    assert (
        f"! {GROUP} n2 at {address_of('n2')}: a copy that neither votes nor stands; remove it and"
        " add it again, empty, under a new dLegerSelfId" in shown.output
    )


def test_a_member_that_does_not_answer_is_exit_code_4(asked: Asked) -> None:
    asked.group.kill("n2")
    shown = invoke("status")
    assert shown.exit_code == 4
    assert "no answer for 0.0 s: Connection refused" in shown.output


def test_a_cluster_without_a_group_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_group(namesrv: str, timeout_s: float) -> tuple[()]:
        return ()

    monkeypatch.setattr("trioha.cli.raft.look_at_groups", no_group)
    shown = invoke("status")
    assert shown.exit_code == 1
    assert str(shown.exception) == "no DLEDGER group is registered with these name servers"


def test_without_a_leader_the_exit_code_is_1_whoever_is_silent(asked: Asked) -> None:
    asked.group.kill("n0")
    for member in ("n1", "n2"):
        asked.group.raft(member).update(role="PRE_CANDIDATE", leader_id="")
    shown = invoke("status")
    assert shown.exit_code == 1
    assert f"! {GROUP}: nothing can be sent to it until one is elected" in shown.output


def test_a_silent_name_server_is_exit_code_4(asked: Asked) -> None:
    asked.group.cluster.silent[NAMESRV] = "Connection refused"
    shown = invoke("status")
    assert report(shown.exception or Exception()) == 4
    assert "no name server answers" in str(shown.exception)


@pytest.mark.usefixtures("asked")
def test_a_group_that_is_not_known_is_named_beside_those_that_are() -> None:
    shown = invoke("status", "broker-x")
    assert str(shown.exception) == (f"no DLEDGER group broker-x is registered; known are: {GROUP}")


def test_a_cluster_of_pairs_has_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = RawCluster()
    cluster.add_set("broker-b")

    async def look_once(*_: object, **__: object) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return cluster.raw()

    monkeypatch.setattr(client, "look_once", look_once)
    shown = invoke("status")
    assert (shown.exit_code, shown.output) == (1, "")
    assert "no DLEDGER group is registered with these name servers" in str(shown.exception)


def test_refused_peers_are_told(asked: Asked) -> None:
    asked.group.raft("n1")["refusals"] = [
        {"peer": "10.0.0.77:4000", "reason": "another peer list", "age_ms": 2000}
    ]
    shown = invoke("status")
    assert "n1 at 10.0.1.2:10911: refused 10.0.0.77:4000 2.0 s ago: another peer list" in (
        shown.output
    )


# Changes.


def test_a_dry_run_shows_the_plan_and_asks_nobody(asked: Asked) -> None:
    shown = invoke("transfer", GROUP, "--dry-run")
    assert shown.exit_code == 0
    assert shown.output == (
        f"{GROUP}: transfer n1\n"
        f"  asks     n0 ({address_of('n0')}), term 4\n"
        "  then     n1 leads in a term of its own, n0 follows; nothing is lost\n"
    )
    assert asked.changes == []


@pytest.mark.parametrize(
    ("arguments", "do", "member", "address"),
    [
        (("transfer", GROUP, "--to", "n2"), Do.TRANSFER, "n2", ""),
        (("add", GROUP, "n4", "10.0.1.9:10911"), Do.ADD, "n4", "10.0.1.9:10911"),
        (("promote", GROUP, "n3"), Do.PROMOTE, "n3", ""),
        (("remove", GROUP, "n2", "--yes"), Do.REMOVE, "n2", ""),
    ],
)
def test_the_leader_is_asked_for_what_was_typed(
    asked: Asked, arguments: tuple[str, ...], do: Do, member: str, address: str
) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    (plan,) = asked.changes
    assert (plan.do, plan.member, plan.address) == (do, member, address)
    assert plan.leader_address == address_of("n0")
    assert msgpack.unpackb(plan.command().body_bytes()) == {
        "do": do.value,
        "member": member,
        "address": address,
    }
    assert "it is so (" in done.output.splitlines()[-1]


def test_json_is_one_document(asked: Asked) -> None:
    dry = json.loads(invoke("transfer", GROUP, "--dry-run", "-o", "json").output)
    assert (dry["result"], dry["plan"]["member"], dry["elapsed_ms"]) == ("dry-run", "n1", None)
    done = json.loads(invoke("transfer", GROUP, "-o", "json").output)
    assert (done["result"], done["message"]) == ("done", "it is so")
    refused = json.loads(invoke("transfer", GROUP, "--to", "n0", "-o", "json").output)
    assert (refused["result"], refused["plan"]["refusals"]) == ("refused", ["n0 leads already"])


def test_what_cannot_be_asked_for_is_exit_code_1(asked: Asked) -> None:
    refused = invoke("promote", GROUP, "n1")
    assert refused.exit_code == 1
    assert "! n1 is a voter already" in refused.output
    assert asked.changes == []


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (CommandError(ResponseCode.NO_PERMISSION, "a transfer runs"), 5),
        (OutcomeUnknown("it is not known"), 3),
        (Unreachable("connection refused"), 4),
    ],
)
def test_no_and_not_known_and_nobody_there_are_different(
    asked: Asked, outcome: Exception, code: int
) -> None:
    asked.outcome = outcome
    ended = invoke("transfer", GROUP)
    assert report(ended.exception or Exception()) == code


@pytest.mark.usefixtures("at_terminal")
def test_a_removal_wants_the_group_s_name(asked: Asked) -> None:
    wrong = invoke("remove", GROUP, "n2", typed="other\n")
    assert wrong.exit_code == 1
    assert "costs    the group survives the loss of 0, not 1" in wrong.output
    assert asked.changes == []
    assert invoke("remove", GROUP, "n2", typed=f"{GROUP}\n").exit_code == 0
    assert len(asked.changes) == 1


@pytest.mark.parametrize("more", [(), ("-o", "json")])
def test_a_removal_without_anybody_to_ask_wants_yes(asked: Asked, more: tuple[str, ...]) -> None:
    refused = invoke("remove", GROUP, "n2", *more)
    assert refused.exit_code == 2
    assert "give --yes or --dry-run" in refused.output
    assert asked.changes == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("promote", GROUP, "3"), "'3' is no dLegerSelfId; those are n0, n1, n2"),
        (("add", GROUP, "n4", "somewhere"), "somewhere"),
    ],
)
def test_words_that_mean_nothing_are_usage(arguments: tuple[str, ...], says: str) -> None:
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert says in refused.output


@pytest.mark.parametrize("name", ["status", "transfer", "add", "promote", "remove"])
def test_help_teaches(name: str) -> None:
    shown = CliRunner().invoke(cli, ["raft", name, "--help"])
    assert f"trioha raft {name}" in shown.output.split("Usage", 1)[1]
    assert "Exit codes: 0" in shown.output


# At real sockets.


@asynccontextmanager
async def leader(
    answer: Callable[[RemotingCommand], RemotingCommand | None],
) -> AsyncIterator[str]:
    def handle(_: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand | None:
        return answer(request)

    server = RemotingServer(handle, Clock(), NullSink())
    listener = open_listener("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.accept, listener, nursery)
        yield listener.address
        nursery.cancel_scope.cancel()
    listener.close()


def plan_at(address: str) -> ChangePlan:
    group = RawGroup(RawCluster())
    one = ClusterSnapshot.of(group.cluster.raw()).set_of(GROUP)
    assert one is not None
    plan = plan_change(one, Do.TRANSFER, "n1")
    return ChangePlan(
        broker_name=plan.broker_name,
        do=plan.do,
        member=plan.member,
        address="",
        leader=plan.leader,
        leader_address=address,
        would="",
        costs="",
        refusals=(),
    )


async def test_a_leader_s_answer_is_told_in_its_words() -> None:
    def yes(request: RemotingCommand) -> RemotingCommand:
        asked = msgpack.unpackb(request.body_bytes())
        assert asked == {"do": "transfer", "member": "n1", "address": ""}
        return request.response(body=msgpack.packb({"leader": "n1", "term": 5}))

    async with leader(yes) as address:
        assert (
            await client.run_change(address, 2.0, plan_at(address))
            == f"n1 leads {GROUP} since term 5"
        )
    async with leader(lambda request: request.response()) as address:
        assert await client.run_change(address, 2.0, plan_at(address)) == f"n1 leads {GROUP}"


async def test_a_leader_that_says_no_and_one_that_is_not_there() -> None:
    def no(request: RemotingCommand) -> RemotingCommand:
        return request.response(ResponseCode.NO_PERMISSION, "n1 is behind")

    async with leader(no) as address:
        with pytest.raises(CommandError, match="n1 is behind"):
            await client.run_change(address, 2.0, plan_at(address))
    with pytest.raises(Unreachable):
        await client.run_change("127.0.0.1:1", 2.0, plan_at("127.0.0.1:1"))


async def test_an_answer_that_does_not_come_leaves_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "PATIENCE_S", 0.05)
    async with leader(lambda _: None) as address:
        with pytest.raises(OutcomeUnknown, match="it is not known whether the transfer"):
            await client.run_change(address, 2.0, plan_at(address))


# `ha status` of a group.


def ha_rows(group: RawGroup) -> list[dict[str, Any]]:
    rows = []
    for address, member in group.cluster.members.items():
        status = group.cluster.statuses[address]
        rows.append({**status, "id": member["id"], "address": address})
    return rows


def test_ha_status_shows_members_and_calls_nothing_wrong_that_is_not() -> None:
    text = status_in_words(ha_rows(RawGroup(RawCluster())))
    assert "LEADER" in text
    assert "FOLLOWER" in text
    assert "LINK TO SLAVE" not in text
    assert "SLAVE_NOT_AVAILABLE" not in text
    assert text.endswith("All is well.")


def test_ha_status_says_what_is_wrong_with_a_group() -> None:
    group = RawGroup(RawCluster())
    group.row("n2")["heard_age_ms"] = 5000
    text = status_in_words(ha_rows(group))
    assert f"! {GROUP}: the loss of one more stops writes" in text
    assert "its leader has not heard it for 5.0 s" in text


def test_ha_status_of_a_group_without_a_leader_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trioha.cli import ha

    group = RawGroup(RawCluster())
    for member in MEMBERS:
        group.raft(member).update(raft_status(member, ""), role="CANDIDATE")

    async def fake(namesrv: str, timeout_s: float) -> tuple[list[dict[str, Any]], bool]:
        await trio.lowlevel.checkpoint()
        return ha_rows(group), True

    monkeypatch.setattr(ha, "cluster_status", fake)
    assert CliRunner().invoke(cli, ["ha", "status", "-n", "h:1"]).exit_code == 1
