"""Java's transactional producer and ours at both makes: the same messages and checks."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
import trio
from support.clusters.meeting import wait_for_brokers
from support.clusters.pair import SMALL_FILES, Make
from support.handlers.transactions import half
from support.peers.clients import Clients, Received
from support.peers.java import java_broker
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.admin import put_topic, request
from support.processes.rig import (
    Node,
    Processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.suite.ports import free_ports
from support.suite.sizes import drawn_cases

from trioha.client import (
    Message,
    ReceivedMessage,
    SendResult,
    TransactionState,
    open_transactional_producer,
)
from trioha.store.inspect import verify_store
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.remoting_command import RemotingCommand

PATIENT: Mapping[str, object] = {
    **SMALL_FILES,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 3000,
}
SETTINGS: Mapping[str, object] = {
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 2000,
    "transactionCheckMax": 3,
}
BROKERS = {"trioha": trioha_broker, "java": java_broker}
MAKES: tuple[Make, ...] = ("trioha", "java")
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKED_S = 60.0
# Java's broker keeps WAIT in half messages alone; the last one is in our copies alone.
VOLATILE = (
    *("MIN_OFFSET", "MAX_OFFSET", "UNIQ_KEY", "CLUSTER", "CONSUME_START_TIME", "WAIT"),
    "TRAN_PREPARED_QUEUE_OFFSET",
)


@pytest.fixture(scope="module")
def brokers(shared_processes: Processes) -> dict[Make, tuple[Node, Node]]:
    """Start a name server and a broker of each make, with short times; return them by make."""
    namesrvs = {"trioha": trioha_namesrv(shared_processes, name="transactions")}
    start_all(namesrvs.values())
    address = namesrvs["trioha"].address
    made = {
        make: BROKERS[make](shared_processes, address, name=f"tx-{make}", settings=SETTINGS)
        for make in MAKES
    }
    start_all(made.values())
    return {make: (namesrvs["trioha"], broker) for make, broker in made.items()}


def told(message: Received) -> tuple[object, ...]:
    properties = {k: v for k, v in message.properties.items() if k not in VOLATILE}
    return (
        message.topic,
        message.body,
        message.queue_id,
        message.tags,
        tuple(sorted(properties.items())),
    )


def drive(
    clients: Clients, namesrv: Node, broker: Node, topic: str
) -> tuple[set[tuple[object, ...]], list[tuple[object, ...]]]:
    """Send every outcome once; return what consumers got, and what the producer was asked."""
    put_topic(broker.address, topic, 1)
    wait_for_brokers(namesrv.address, topic, {f"tx-{broker_make(broker)}"})
    group = f"{topic}-producers"
    producer = clients.transactional_producer("java", namesrv.address, group)
    consumer = clients.consumer("java", namesrv.address, f"{topic}-c", topic, **QUICK_CONSUMER)
    outcomes = {
        f"{topic} committed": ("commit", "unknown"),
        f"{topic} rolled back": ("rollback", "commit"),
        f"{topic} committed when asked": ("unknown", "commit"),
        f"{topic} rolled back when asked": ("unknown", "rollback"),
        f"{topic} never known": ("unknown", "unknown"),
    }
    for body, (local, checked) in outcomes.items():
        sent = producer.send(
            topic, body, local=local, checked=checked, tags="A", keys="k", properties={"p": "q"}
        )
        assert sent.status == "SEND_OK"
    consumer.wait_for_bodies({f"{topic} committed", f"{topic} committed when asked"}, CHECKED_S)
    # Three checks of the last, one of each of the two others that were open.
    asked = producer.wait_for_checks(5, CHECKED_S)
    consumer_of_discarded = clients.consumer(
        "java", namesrv.address, f"{topic}-d", DISCARDED, **QUICK_CONSUMER
    )
    consumer_of_discarded.wait_for_bodies({f"{topic} never known"}, CHECKED_S)
    received = sorted(map(told, consumer.messages), key=str)
    assert len(consumer.messages) == 2, consumer.bodies
    (discarded,) = [
        one for one in consumer_of_discarded.messages if one.body == f"{topic} never known"
    ]
    shown = [
        (
            one["body"],
            one["topic"],
            one["queue_id"],
            one["transaction_id"] == one["properties"]["UNIQ_KEY"],
            tuple(sorted((k, v) for k, v in one["properties"].items() if k not in VOLATILE)),
        )
        for one in asked
    ]
    for client in (producer, consumer, consumer_of_discarded):
        client.stop()
    return {*received, told(discarded)}, sorted(shown, key=str)


def broker_make(broker: Node) -> str:
    return "java" if "java" in broker.process.name else "trioha"


def without_topic(found: object, topic: str) -> str:
    return str(found).replace(topic, "TOPIC")


def test_both_makes_deliver_and_ask_the_same(
    brokers: dict[Make, tuple[Node, Node]], clients: Clients
) -> None:
    told_by = {}
    for make in MAKES:
        topic = f"every-outcome-{make}"
        told_by[make] = [
            sorted(without_topic(one, topic) for one in part)
            for part in drive(clients, *brokers[make], topic)
        ]
    for ours, theirs in zip(told_by["trioha"], told_by["java"], strict=True):
        assert "\n".join(ours) == "\n".join(theirs)


@pytest.mark.parametrize("make", MAKES)
def test_another_producer_of_the_group_answers_for_one_that_died(
    make: Make, brokers: dict[Make, tuple[Node, Node]], clients: Clients
) -> None:
    namesrv, broker = brokers[make]
    topic, group = f"heirs-{make}", f"heirs-{make}-producers"
    put_topic(broker.address, topic, 1)
    wait_for_brokers(namesrv.address, topic, {f"tx-{make}"})
    first = clients.transactional_producer("java", namesrv.address, group)
    first.send(topic, "left behind", local="unknown")
    first.kill()
    heir = clients.transactional_producer(
        "java", namesrv.address, group, answer="commit", heartbeat_ms=500
    )
    # A producer connects to brokers with its first message.
    heir.send(topic, "its own", local="commit")
    consumer = clients.consumer("java", namesrv.address, f"{topic}-c", topic, **QUICK_CONSUMER)
    consumer.wait_for_bodies({"left behind", "its own"}, CHECKED_S)
    for client in (heir, consumer):
        client.stop()


@pytest.mark.parametrize("make", MAKES)
def test_requests_that_end_nothing(
    make: Make, brokers: dict[Make, tuple[Node, Node]], clients: Clients
) -> None:
    namesrv, broker = brokers[make]
    topic, group = f"bad-ends-{make}", f"bad-ends-{make}-producers"
    put_topic(broker.address, topic, 2)
    wait_for_brokers(namesrv.address, topic, {f"tx-{make}"})
    now_ms = int(time.time() * 1000)
    sent = request(broker.address, half(group=group, topic=topic, born_ms=now_ms))
    assert sent.code == 0

    def ended(**fields: str) -> int:
        right = {
            "producerGroup": group,
            "tranStateTableOffset": sent.ext_str("queueOffset"),
            "commitLogOffset": str(decode_message_id(sent.ext_str("msgId"))[2]),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "K1",
        }
        command = RemotingCommand(RequestCode.END_TRANSACTION, {**right, **fields})
        return request(broker.address, command).code

    error = ResponseCode.SYSTEM_ERROR
    assert ended(commitLogOffset="99999999") == error
    assert ended(tranStateTableOffset="77") == error
    assert ended(producerGroup="another") == error
    assert ended(commitOrRollback="5") == error
    assert ended() == ResponseCode.SUCCESS
    # Fault A15: Java's broker delivers the message as often as it is asked to.
    assert ended() == {"java": ResponseCode.SUCCESS, "trioha": error}[make]
    consumer = clients.consumer("java", namesrv.address, f"{topic}-c", topic, **QUICK_CONSUMER)
    consumer.wait_for_count({"java": 2, "trioha": 1}[make])
    consumer.stop()


@pytest.mark.parametrize("end", [pytest.param("stopped", marks=pytest.mark.release), "killed"])
@pytest.mark.parametrize(
    ("writer_make", "taker_make"),
    drawn_cases("open transactions", [("trioha", "java"), ("java", "trioha")]),
)
def test_a_broker_of_the_other_make_finishes_open_transactions(
    writer_make: Make,
    taker_make: Make,
    end: str,
    brokers: dict[Make, tuple[Node, Node]],
    processes: Processes,
    clients: Clients,
) -> None:
    namesrv = brokers["trioha"][0].address
    topic = f"open-of-{writer_make}-{end}"
    name, port, store = f"broker-{topic}", free_ports(), processes.root / "store"

    def broker(make: Make) -> Node:
        return BROKERS[make](
            processes, namesrv, name=name, port=port, store=store, settings=PATIENT
        )

    writer = broker(writer_make).start()
    put_topic(writer.address, topic, 1)
    wait_for_brokers(namesrv, topic, {name})
    producer = clients.transactional_producer(
        "java", namesrv, f"{topic}-p", heartbeat_ms=500, poll_ms=500
    )
    wanted = set()
    for number in range(6):
        for local, checked in (
            ("commit", "unknown"),
            ("rollback", "commit"),
            ("unknown", "commit"),
            ("unknown", "rollback"),
        ):
            body = f"{local} {checked} {number}"
            # The second half of the open ones is checked for the first time by the taker.
            late = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"} if number % 2 else {}
            producer.answer("unknown")
            assert (
                producer.send(topic, body, local=local, checked=checked, properties=late).status
                == "SEND_OK"
            )
            if local == "commit" or (local == "unknown" and checked == "commit"):
                wanted.add(body)
    # One round of checks without an answer: copies of half messages are in the store.
    producer.wait_for_checks(6, CHECKED_S)
    if end == "stopped":
        writer.stop()
    else:
        writer.kill()
    taker = broker(taker_make).start()
    wait_for_brokers(namesrv, topic, {name})
    producer.answer("")
    consumer = clients.consumer("java", namesrv, f"{topic}-c", topic, **QUICK_CONSUMER)
    consumer.wait_for_bodies(wanted, CHECKED_S)
    # Two more rounds find nothing to ask for.
    producer.send(topic, "last", local="unknown", checked="unknown")
    producer.wait_until(
        lambda: sum(one["body"] == "last" for one in producer.checks) >= 2, "checks", CHECKED_S
    )
    assert sorted(body or "" for body in consumer.bodies) == sorted(wanted)
    for client in (producer, consumer):
        client.stop()
    taker.stop()
    assert verify_store(store).damage == []


@pytest.mark.parametrize("make", MAKES)
def test_our_producer_ends_transactions_and_answers_checks(
    make: Make, brokers: dict[Make, tuple[Node, Node]], clients: Clients
) -> None:
    namesrv, broker = brokers[make]
    topic = f"our-transactions-{make}"
    put_topic(broker.address, topic, 1)
    wait_for_brokers(namesrv.address, topic, {f"tx-{make}"})
    consumer = clients.consumer("java", namesrv.address, f"{topic}-c", topic, **QUICK_CONSUMER)
    local = {
        b"committed": TransactionState.COMMIT,
        b"rolled back": TransactionState.ROLLBACK,
        b"committed when asked": TransactionState.UNKNOWN,
        b"rolled back when asked": TransactionState.UNKNOWN,
    }
    asked: set[bytes] = set()
    all_asked = trio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        assert (message.topic, message.tags, message.keys) == (topic, "A", ("k",))
        asked.add(message.body)
        if len(asked) == 2:
            all_asked.set()
        return (
            TransactionState.COMMIT
            if message.body.startswith(b"committed")
            else TransactionState.ROLLBACK
        )

    async def drive_ours() -> None:
        async with open_transactional_producer(
            namesrv.address, check, group=f"{topic}-p"
        ) as producer:
            for body, outcome in local.items():

                async def execute(
                    _: SendResult, outcome: TransactionState = outcome
                ) -> TransactionState:
                    return outcome

                result = await producer.send_in_transaction(Message(topic, body, "A", "k"), execute)
                assert bool(result.reason) is (outcome is TransactionState.UNKNOWN), result.reason
            with trio.fail_after(CHECKED_S):
                await all_asked.wait()
            # The answer to the last check is on its way.
            await trio.to_thread.run_sync(
                consumer.wait_for_bodies, {"committed", "committed when asked"}, CHECKED_S
            )

    trio.run(drive_ours)
    assert asked == {b"committed when asked", b"rolled back when asked"}
    assert sorted(map(str, consumer.bodies)) == ["committed", "committed when asked"]
    consumer.stop()
