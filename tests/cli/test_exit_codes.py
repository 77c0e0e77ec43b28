"""Every command of a noun, and what becomes of it when names are wrong or nodes do not answer."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import click
import pytest
from support.clusters.operated import Operated, operate

from trioha.cli import cli
from trioha.cli.failures import ExitCode
from trioha.client import driving
from trioha.client.cluster import Cluster
from trioha.failover.asking import Ask, Reply
from trioha.jobs import resend
from trioha.jobs.documents import DOCUMENTS
from trioha.services.remoting.client import RemotingClient
from trioha.testing import TriohaCluster
from trioha.wire.codes import RequestCode

ID = "AC11000100002A9F00000000000004D2"
COMMANDS: dict[str, list[str]] = {
    "topic list": [],
    "topic describe": ["T"],
    "topic create": ["New"],
    "topic alter": ["T", "--queues", "3"],
    "topic delete": ["T", "--yes"],
    "topic stats": ["T"],
    "group list": [],
    "group describe": ["G"],
    "group history": ["G"],
    "group create": ["New"],
    "group alter": ["G", "--consume"],
    "group delete": ["G", "--yes"],
    "group clone-offsets": ["G", "H", "--yes"],
    "group reset-offsets": ["G", "-t", "T", "--to", "earliest", "--yes"],
    "group skip": ["G", "-t", "T", "--yes"],
    "message get": ["-t", "T", "--key", "k"],
    "message browse": ["T"],
    "message tail": ["T", "--count", "1"],
    "message send": ["T", "x", "--queue", "broker-b:0"],
    "message resend": ["-t", "T", "--all", "--yes"],
    "message trace": [ID, "-t", "T"],
    "dlq list": [],
    "dlq browse": ["G"],
    "dlq resend": ["G", "--yes"],
    "dlq purge": ["G", "--yes"],
    "broker list": [],
    "broker describe": ["broker-b"],
    "broker stats": ["broker-b"],
    "broker config get": ["broker-b"],
    "broker config set": ["broker-b", "shortPollingTimeMills", "700"],
    "broker drain": ["broker-b", "--yes", "--wait", "0"],
    "broker clean": [],
    "cluster describe": [],
    "cluster health": [],
    "cluster top": ["--once"],
    "namesrv list": [],
    "namesrv config": [],
    "namesrv kv list": ["N"],
    "namesrv kv get": ["N", "k"],
    "namesrv kv put": ["N", "k", "v"],
    "namesrv kv delete": ["N", "k", "--yes"],
    "client list": [],
    "client describe": ["G"],
    "client consume-directly": ["G", ID, "-t", "T"],
    "user list": [],
    "user describe": ["anna"],
    "user create": ["anna"],
    "user alter": ["anna", "--status", "disable"],
    "user delete": ["anna", "--yes"],
    "user grant": ["anna", "Topic:T", "--action", "Pub"],
    "user revoke": ["anna", "Topic:T", "--yes"],
}


NAMES = {
    "T": "nosuch",
    "G": "nosuch",
    "broker-b": "broker-x",
    "broker-b:0": "broker-x:0",
    "New": "bad name",
}
WITHOUT_NAMES = {
    *("topic list", "group list", "dlq list", "broker list", "broker clean", "client list"),
    *("cluster describe", "cluster health", "cluster top", "namesrv list", "namesrv config"),
    *("namesrv kv list", "namesrv kv put"),
}
ASKS_NO_BROKER = {name for name in COMMANDS if name.startswith("namesrv")} | {"topic list"}
PARTIAL = {
    *("topic describe", "topic stats", "group list", "group describe", "group history"),
    *("dlq list", "broker list", "cluster describe", "cluster top", "client list"),
    *("message browse", "message get", "dlq browse"),
}
"""Commands that print what the other broker knows."""
WITHOUT_USERS = {name for name in COMMANDS if name.startswith("user")}
PATIENCE = ("--timeout", "0.5")
LONG_PATIENCE = ("--timeout", "30")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Operated]:
    with operate("2m-noslave") as operated:
        yield operated


@pytest.fixture
def operator(
    cluster: Operated, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Operated:
    monkeypatch.setenv("TRIOHA_NEW_SECRET_KEY", "anna-secret")
    return cluster.listen(capsys, monkeypatch)


def prepare(operator: Operated, command: str, test: str) -> list[str]:
    """Make a topic, a group that has read it, and dead letters of the group.

    Return the command with these in place of T and G: what hung may still do its change later.
    """
    own = f"{test}-{command.replace(' ', '-')}"
    names = {"T": f"T-{own}", "G": f"G-{own}", "H": f"H-{own}", "New": f"N-{own}"}
    for topic in (names["T"], f"%DLQ%{names['G']}"):
        operator.ok("topic", "create", topic, "--queues", "1")
        operator.send(topic, 4, keys="k")
    operator.consume(names["T"], names["G"])
    return [*command.split(), *(names.get(one, one) for one in COMMANDS[command])]


def test_the_table_has_every_command_of_a_noun() -> None:
    assert COMMANDS.keys() == DOCUMENTS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_malformed_name_server_is_2(operator: Operated, command: str) -> None:
    said = operator.refused(2, *command.split(), *COMMANDS[command], "-n", "nonsense")
    assert "-n: 'nonsense' is not an address; write HOST:PORT" in said


def test_a_name_server_that_hangs_is_4(operator: Operated) -> None:
    async def cut(cluster: TriohaCluster) -> None:
        cluster.cut("namesrv", "clients")

    async def heal(cluster: TriohaCluster) -> None:
        cluster.heal()

    operator.call(cut)
    try:
        for command, arguments in COMMANDS.items():
            done = operator.trioha(*command.split(), *arguments, "--timeout", "0.1")
            # The rules of `cluster health` call it critical.
            assert done.code == (1 if command == "cluster health" else 4), (command, done)
            assert "no connection in 0.1 s" in done.err + done.out
    finally:
        operator.call(heal)


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - WITHOUT_NAMES))
def test_a_wrong_name_is_1_and_one_that_cannot_be_is_2(operator: Operated, command: str) -> None:
    arguments = [NAMES.get(one, one) for one in COMMANDS[command]]
    expected = ExitCode.USAGE if "bad name" in arguments else ExitCode.FAILED
    operator.refused(expected, *command.split(), *arguments)


def test_a_broker_that_hangs_is_4_and_nothing_has_changed(operator: Operated) -> None:
    operator.ok("topic", "create", "T", "--queues", "1")
    operator.ok("topic", "create", "%DLQ%G", "--queues", "1")
    operator.send("T", 4, keys="k")
    operator.consume("T", "G")
    topics = operator.json("topic", "list", "--all")
    groups = operator.json("group", "list")
    operator.call(lambda cluster: cluster.broker("broker-b", 0).pause())
    try:
        for command, arguments in COMMANDS.items():
            if command in ASKS_NO_BROKER | WITHOUT_USERS | {"cluster health", "broker clean"}:
                continue
            done = operator.trioha(*command.split(), *arguments, *PATIENCE)
            assert done.code == ExitCode.UNREACHABLE, (command, done)
            assert "10.0.0.2:10911: no connection in 0.5 s" in done.out + done.err
            assert (done.out == "", done.err == "") == (
                command not in PARTIAL,
                command in PARTIAL,
            ), (command, done)
            assert "done before" not in done.err
        named = ("message", "browse", "T", "--queue", "broker-b:0", *PATIENCE)
        said = operator.refused(ExitCode.UNREACHABLE, *named)
        assert "T has no queue broker-b:0" in said
        assert "no connection in 0.5 s" in said
    finally:
        operator.call(lambda cluster: cluster.broker("broker-b", 0).resume())
    assert operator.json("topic", "list", "--all") == topics
    assert operator.json("group", "list") == groups


CHANGES = {
    "topic create": RequestCode.UPDATE_AND_CREATE_TOPIC,
    "topic alter": RequestCode.UPDATE_AND_CREATE_TOPIC,
    "topic delete": RequestCode.DELETE_TOPIC_IN_BROKER,
    "group create": RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    "group alter": RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    "group delete": RequestCode.DELETE_SUBSCRIPTIONGROUP,
    "group clone-offsets": RequestCode.CLONE_GROUP_OFFSET,
    "group reset-offsets": RequestCode.UPDATE_CONSUMER_OFFSET,
    "group skip": RequestCode.UPDATE_CONSUMER_OFFSET,
    "message send": RequestCode.SEND_MESSAGE_V2,
    "message resend": RequestCode.SEND_MESSAGE_V2,
    "dlq resend": RequestCode.SEND_MESSAGE_V2,
    "dlq purge": RequestCode.DELETE_TOPIC_IN_BROKER,
    "broker config set": RequestCode.UPDATE_BROKER_CONFIG,
    "broker clean": RequestCode.CLEAN_UNUSED_TOPIC,
}


@pytest.mark.parametrize("command", CHANGES)
def test_a_broker_that_hangs_at_the_change_is_3(
    operator: Operated, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The broker's connection is open: the request may have arrived."""
    monkeypatch.setattr(resend, "_LOOK_ROUNDS", 1)
    arguments = prepare(operator, command, "hangs")
    broker = operator.cluster.broker("broker-b", 0)
    ask = driving._ask

    paused: list[str] = []

    async def hang(client: RemotingClient, request: Ask) -> Reply:
        if (request.address, request.code) == (broker.address, CHANGES[command]):
            await broker.pause()
            paused.append(broker.address)
        if request.address in paused:  # all others may take their time
            request = attrs.evolve(request, patience_s=0.5)
        return await ask(client, request)

    monkeypatch.setattr(driving, "_ask", hang)
    done = operator.trioha(*arguments, *LONG_PATIENCE)
    operator.call(lambda cluster: broker.resume())
    assert done.code == ExitCode.UNKNOWN, done
    assert "it is not known whether" in done.out + done.err
    if command.endswith("resend"):
        assert "run the same command again to go on" in done.out
    elif command not in ("message send", "broker config set"):  # of one broker
        assert "done before: broker-a" in done.err


@pytest.mark.parametrize("command", ["topic alter", "group alter", "broker clean"])
def test_a_broker_that_dies_between_two_changes_is_4_and_names_what_was_done(
    operator: Operated, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    arguments = prepare(operator, command, "dies")
    broker = operator.cluster.broker("broker-b", 0)
    ask_all = driving._ask_all

    async def die(cluster: Cluster, asks: tuple[Ask, ...]) -> list[Reply]:
        if (asks[0].address, asks[0].code) == (broker.address, CHANGES[command]):
            await broker.kill()
        return await ask_all(cluster, asks)

    with monkeypatch.context() as patch:
        patch.setattr(driving, "_ask_all", die)
        done = operator.trioha(*arguments, *LONG_PATIENCE)
    assert done.code == ExitCode.UNREACHABLE, done
    assert "done before: broker-a" in done.err
    operator.call(lambda cluster: broker.start())


def test_a_broker_that_says_no_is_5(operator: Operated) -> None:
    arguments = ("broker", "config", "set", "broker-b", "brokerName", "x")
    assert "can not be set remotely" in operator.refused(ExitCode.REFUSED, *arguments)


def test_c_has_the_two_meanings_that_others_gave_it() -> None:
    """docs/cli.md: mqbroker's file, and a monitoring plugin's threshold; one command has one."""
    found: dict[str, set[str]] = {}

    def look(name: str, command: click.Command) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for verb in command.list_commands(context):
                child = command.get_command(context, verb)
                assert child is not None
                look(f"{name} {verb}".strip(), child)
        for one in command.params:
            if "-c" in one.opts:
                found.setdefault(max(one.opts, key=len), set()).add(name.split()[0])

    look("", cli)
    assert found == {"--config": {"run", "config"}, "--critical": {"check"}}
