"""Changes from the console: what the lines mean, the plan, the name, the end."""

from __future__ import annotations

import pytest
from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_topics
from support.screens.screens import Console, open_console
from trioha_console.operation_lines import parse_operation
from trioha_console.planned import Done, Planned, PlannedOperation, Say
from trioha_console.screens.operation import OperationScreen, OperationStage

from trioha.errors import OutcomeUnknown, TriohaError
from trioha.failover.asking import Answer, Flow
from trioha.jobs.telling import JobScope, NotThere
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, encode_topic_list, group_table_to_dict
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

NOW_MS = 1_760_000_000_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("create-topic", "write `:create-topic NAME"),
        ("create-topic orders 0", "1 to 16384 queues per broker, not 0"),
        ("create-topic orders rx", "rx is no permission; there are rw, r, w, none"),
        ("alter-topic orders queues", "write `:alter-topic NAME"),
        ("alter-topic orders queues 8 perm", "perm has no value"),
        ("alter-topic orders colour red", "colour red is not understood"),
        ("reset-offsets billing orders", "write `:reset-offsets GROUP TOPIC"),
        ("reset-offsets billing orders yesterday", 'invalid time "yesterday"'),
        ("resend", "write `:resend GROUP"),
        ("set broker-a key", "write `:set BROKER KEY VALUE"),
        ("drain broker-a x", "an id is a number, not x"),
    ],
)
def test_a_line_that_is_not_understood_is_answered_in_a_sentence(line: str, said: str) -> None:
    command, _, rest = line.partition(" ")
    with pytest.raises(TriohaError) as caught:
        parse_operation(command, rest, NOW_MS)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "create-topic orders 4 r",
        "alter-topic orders queues 8 perm r order no",
        "delete-topic orders",
        "delete-group orders",
        "reset-offsets orders t 1h",
        "reset-offsets orders t offset 7",
        "resend orders 0A",
        "purge orders",
        "set orders key a value",
        "drain orders 1",
        "undrain orders",
    ],
)
def test_the_name_that_is_typed_is_that_of_the_thing(line: str) -> None:
    command, _, rest = line.partition(" ")
    assert parse_operation(command, rest, NOW_MS).name == "orders"


class Change:
    """An operation that a test looks into."""

    def __init__(self, *, loses: str = "", refusal: str = "", end: Done | Exception) -> None:
        self.runs = 0
        self._loses, self._refusals, self._end = (
            [loses] * bool(loses),
            [refusal] * bool(refusal),
            end,
        )

    def operation(self) -> PlannedOperation:
        return PlannedOperation("delete topic", "orders", self._plan)

    def _plan(self, scope: JobScope) -> Flow[Planned]:
        yield from ()
        return Planned(["broker-a: deleted"], self._loses, self._refusals, self._run)

    def _run(self, scope: JobScope, say: Say) -> Flow[Done]:
        yield from ()
        self.runs += 1
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


async def reached(console: Console, stage: OperationStage) -> None:
    screen = console.app.screen
    assert isinstance(screen, OperationScreen)
    await console.until(stage.name, lambda: screen.stage is stage)


def a_cluster() -> RawCluster:
    cluster = RawCluster()
    add_topics(cluster, cluster.add_set("broker-a")[0])
    return cluster


async def test_where_something_is_lost_the_name_is_typed() -> None:
    change = Change(loses="12 messages", end=Done(["topic orders is deleted"]))
    async with open_console(a_cluster(), armed=True) as console:
        console.app.open_operation(change.operation(), "delete-topic orders")
        await console.settled()
        await reached(console, OperationStage.PLAN)
        assert "data loss  12 messages" in console.text
        await console.press("c", *"ordres", "enter")
        assert "ordres is not orders; nothing has been done" in console.text
        assert change.runs == 0
        await console.press("ctrl+u", *"orders", "enter")
        await reached(console, OperationStage.END)
        assert change.runs == 1
        assert "● topic orders is deleted" in console.text
        assert console.source.interest.changes == 0
        await console.press("escape")
        assert console.app.screen is console.app.main
        assert console.source.interest.changes == 1, "tables show it at once"


async def test_where_nothing_is_lost_a_key_is_enough() -> None:
    change = Change(end=OutcomeUnknown("broker-a did not answer"))
    async with open_console(a_cluster(), armed=True) as console:
        console.app.open_operation(change.operation(), "")
        await console.settled()
        await reached(console, OperationStage.PLAN)
        await console.press("c")
        await reached(console, OperationStage.END)
        assert "▲ it is not known what happened: broker-a did not answer" in console.text


@pytest.mark.parametrize(("armed", "refusal"), [(False, ""), (True, "group billing reads it")])
async def test_what_may_not_be_done_is_not_offered(armed: bool, refusal: str) -> None:
    change = Change(refusal=refusal, end=Done([""]))
    async with open_console(a_cluster(), armed=armed) as console:
        console.app.open_operation(change.operation(), "")
        await console.settled()
        await reached(console, OperationStage.PLAN)
        assert (refusal or "start it with --write") in console.text
        assert "Go on" not in console.text
        await console.press("c")
        assert change.runs == 0


async def test_a_name_that_does_not_exist_goes_back_into_the_prompt() -> None:
    def plan(scope: JobScope) -> Flow[Planned]:
        yield from ()
        raise NotThere("no topic ordres; did you mean orders?")

    async with open_console(a_cluster(), armed=True) as console:
        console.app.open_operation(
            PlannedOperation("delete topic", "ordres", plan), "delete-topic ordres"
        )
        await console.until("the prompt", lambda: console.app.screen is console.app.main)
        assert "did you mean orders?" in console.text
        assert ":delete-topic ordres" in console.text


@pytest.mark.parametrize(("key", "words"), [("3", "Alter"), ("5", "Reset"), ("2", "Drain")])
async def test_keys_that_change_are_offered_to_who_may(key: str, words: str) -> None:
    for armed in (False, True):
        async with open_console(a_cluster(), armed=armed) as console:
            await console.press(key)
            assert (words in console.text.splitlines()[-1]) is armed
    async with open_console(a_cluster(), armed=True) as console:
        console.source.live = False
        await console.press(*":delete-topic orders", "enter")
        assert "this is a recording: nothing can be changed" in console.text


class OneTopic:
    """A cluster that has the topic `orders` and no group; it tells names and nothing else."""

    async def __call__(self, _: str, command: RemotingCommand) -> RemotingCommand:
        match command.code:
            case RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
                return command.response(body=encode_topic_list(["orders", "%RETRY%billing"]))
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                brokers = {"broker-a": BrokerData("c", "broker-a", {0: "10.0.1.1:10911"})}
                return command.response(body=ClusterInfo(brokers, {"c": ("broker-a",)}).encode())
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return command.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                groups = group_table_to_dict(DataVersion(timestamp=0, counter=0), {})
                return command.response(body=fastjson.dumps(groups))
        raise AssertionError(f"asked {command}")


@pytest.mark.parametrize(
    ("keys", "typed", "line", "reason"),
    [
        ("R", "ordres earliest", "reset-offsets billing ordres earliest", "did you mean orders?"),
        ("R", "orders yesterday", "reset-offsets billing orders yesterday", "invalid time"),
        (":", "alter-group biling retry 3", "alter-group biling retry 3", "did you mean billing?"),
    ],
)
async def test_a_wrong_name_of_a_group_s_line_stays_to_be_mended(
    keys: str, typed: str, line: str, reason: str
) -> None:
    async with open_console(a_cluster(), armed=True) as console:
        console.source.answer = OneTopic()
        await console.press("5")
        await console.tick()
        await console.press(keys, *typed, "enter")
        await console.shows(reason)
        assert f":{line}" in console.text
        # Letters are letters: q does not leave, D deletes nothing.
        await console.press("q", "D", "backspace")
        assert f":{line}q" in console.text
        assert console.app.screen is console.app.main
        await console.press("escape")
        assert f":{line}" not in console.text
        assert console.app.view.NAME == "groups"


async def test_an_answer_that_cannot_be_read_goes_back_into_the_prompt() -> None:
    def plan(scope: JobScope) -> Flow[Planned]:
        (reply,) = yield (scope.ask("10.0.0.1:10911", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),)
        assert isinstance(reply, Answer)
        return Planned([str(int(reply.ext_fields["offset"]))], [], [], Change(end=Done([]))._run)

    async def without_offset(_: str, command: RemotingCommand) -> RemotingCommand:
        return command.response()

    async with open_console(a_cluster(), armed=True) as console:
        console.source.answer = without_offset
        console.app.open_operation(PlannedOperation("reset offsets of", "billing", plan), "x")
        await console.shows("10.0.0.1:10911 answered cannot be read (KeyError: 'offset')")


async def test_a_slave_s_row_drains_the_slave() -> None:
    async with open_console(a_cluster(), armed=True) as console:
        asked: list[str] = []
        console.app.operate = lambda command, rest: asked.append(f"{command} {rest}")  # type: ignore[method-assign]
        await console.press("2", "D", "down", "D", "U")
        assert asked == ["drain broker-a 0", "drain broker-a 1", "undrain broker-a"]
