"""Arguments, output and exit codes of a failover. The nodes and the network are pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
import trio
from click.testing import CliRunner, Result
from support.nodes.failover_set import BROKER, NAMESRV, FakeSet, Fault

from trioha.cli import cli, confirmation
from trioha.client import failover as driver
from trioha.failover.asking import Flow
from trioha.wire.codes import RequestCode

Invoke = Callable[..., Result]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> FakeSet:
    """A set of three that the command talks to instead of the network."""
    nodes = FakeSet(3)

    async def drive(flow: Flow[object], _: object) -> object:
        await trio.lowlevel.checkpoint()
        return nodes.drive(flow)

    monkeypatch.setattr(driver, "drive", drive)
    return nodes


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "is_somebody_there", lambda: True)


def invoke(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, ["failover", *arguments, "-n", NAMESRV], input=typed)


def test_a_dry_run_prints_the_plan_that_is_carried_out_and_changes_nothing(
    nodes: FakeSet,
) -> None:
    dry = invoke(BROKER, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert nodes.masters == [0]
    assert "planned switch; epoch 2 would begin" in dry.output
    assert "new master    1 (10.0.0.1:10911), epoch 1, log to 1000" in dry.output
    assert "no acknowledged message" in dry.output
    done = invoke(BROKER, "--yes")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(dry.output)
    assert "promote    1 (10.0.0.1:10911): ok" in done.output
    assert done.output.endswith("1 (10.0.0.1:10911) is master of broker-a since epoch 2\n")
    assert nodes.masters == [1]


def test_json_is_one_document_with_plan_steps_and_result(nodes: FakeSet) -> None:
    dry = json.loads(invoke(BROKER, "--dry-run", "-o", "json").output)
    assert (dry["result"], dry["steps"], dry["plan"]["target"]["home_id"]) == ("dry-run", [], 1)
    told = json.loads(invoke(BROKER, "--to", "2", "--yes", "-o", "json").output)
    assert told["result"] == "done"
    assert told["plan"]["target"]["home_id"] == 2
    assert [step["name"] for step in told["steps"]][:3] == ["ticket", "ticket", "ticket"]
    assert set(told["steps"][0]) == {
        *("name", "node", "started_wall_ms", "elapsed_ms", "result", "ok")
    }


@pytest.mark.usefixtures("at_terminal")
def test_the_broker_s_name_has_to_be_typed(nodes: FakeSet) -> None:
    wrong = invoke(BROKER, typed="broker-b\n")
    assert wrong.exit_code == 1
    assert "nothing has been done" in wrong.output
    assert nodes.masters == [0]
    right = invoke(BROKER, typed=f"{BROKER}\n")
    assert right.exit_code == 0, right.output
    assert nodes.masters == [1]


@pytest.mark.parametrize("arguments", [(), ("-o", "json")])
def test_without_anybody_to_ask_it_wants_yes(nodes: FakeSet, arguments: Sequence[str]) -> None:
    refused = invoke(BROKER, *arguments)
    assert refused.exit_code == 2
    assert "give --yes or --dry-run" in refused.output
    assert nodes.asked == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("broker-x",), "no broker named broker-x is registered"),
        ((BROKER, "--to", "7"), "there is no id 7 in broker-a; there are 0, 1, 2"),
        ((BROKER, "--to", "0"), "0 (10.0.0.0:10911) is the master; name another id"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_exit_code_1(
    nodes: FakeSet, arguments: Sequence[str], text: str
) -> None:
    for mode in ("--yes", "--dry-run"):
        refused = invoke(*arguments, mode)
        assert refused.exit_code == 1
        assert f"! {text}" in refused.output
    assert nodes.masters == [0]


def test_a_loss_is_stated_and_wants_force(nodes: FakeSet) -> None:
    nodes.node(0).alive = nodes.node(2).alive = False
    refused = invoke(BROKER, "--yes")
    assert refused.exit_code == 1
    assert "2 (10.0.0.2:10911) does not answer and may hold more" in refused.output
    done = invoke(BROKER, "--yes", "--force")
    assert done.exit_code == 0, done.output
    assert nodes.masters == [1]


@pytest.mark.parametrize("arguments", [(), ("--force",)])
def test_without_a_name_server_nothing_is_known_and_the_exit_code_is_4(
    nodes: FakeSet, arguments: Sequence[str]
) -> None:
    nodes.namesrv_alive = False
    silent = invoke(BROKER, "--yes", *arguments)
    assert silent.exit_code == 4
    assert "! no name server answers: 10.0.0.9:9876: connection refused" in silent.output
    told = json.loads(invoke(BROKER, "--dry-run", "-o", "json", *arguments).output)
    assert told["result"] == "unreachable"


def test_what_is_not_known_is_exit_code_5_and_says_what_to_look_at(nodes: FakeSet) -> None:
    nodes.faults = [Fault(1, RequestCode.PROMOTE, "dies before")]
    unknown = invoke(BROKER, "--to", "1", "--yes")
    assert unknown.exit_code == 5, unknown.output
    assert "! it is not known whether 1 (10.0.0.1:10911) is master of epoch 2" in unknown.output
    assert "asks it by itself" in unknown.output


def test_past_failovers_are_told_with_who_when_and_how(nodes: FakeSet) -> None:
    assert "No node of broker-a remembers a failover." in invoke(BROKER, "--audit").output
    invoke(BROKER, "--yes")
    shown = invoke(BROKER, "--audit")
    assert shown.exit_code == 0
    assert "planned  0 → 1  epoch 2" in shown.output
    told = json.loads(invoke(BROKER, "--audit", "-o", "json").output)
    assert [one["result"] for one in told["failovers"]] == ["done"]


def test_its_help_teaches() -> None:
    shown = CliRunner().invoke(cli, ["failover", "--help"])
    assert "trioha failover broker-a --dry-run" in shown.output
    assert "Exit codes" in shown.output
