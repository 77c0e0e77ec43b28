"""The client's transactional producer against real brokers, on virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from trioha.client import Message, ReceivedMessage, SendResult, TransactionState
from trioha.client.transactions import Execute
from trioha.errors import TriohaError
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

CHECKS = {"transactionTimeOut": 1_000, "transactionCheckInterval": 2_000}


def ends(outcome: TransactionState) -> Execute:
    async def execute(_: SendResult) -> TransactionState:
        return outcome

    return execute


async def never(_: ReceivedMessage) -> TransactionState:
    raise AssertionError("nobody should ask")


class Asked:
    """Answers checks, and counts them."""

    def __init__(self, *answers: TransactionState) -> None:
        self.bodies: list[bytes] = []
        self._answers = list(answers)

    async def __call__(self, message: ReceivedMessage) -> TransactionState:
        self.bodies.append(message.body)
        assert message.topic == "T"
        return self._answers.pop(0)


async def consumed(cluster: TriohaCluster) -> Counter[bytes]:
    return Counter(message.body for message in await cluster.consume("T", group="readers"))


async def test_consumers_get_what_is_committed() -> None:
    async with (
        open_cluster("single") as cluster,
        cluster.transactional_producer(never) as producer,
    ):
        kept = await producer.send_in_transaction(
            Message("T", b"kept", "A", "k"), ends(TransactionState.COMMIT)
        )
        gone = await producer.send_in_transaction(
            Message("T", b"gone"), ends(TransactionState.ROLLBACK)
        )
        assert (kept.reason, gone.reason) == ("", "")
        assert (kept.outcome, gone.outcome) == (TransactionState.COMMIT, TransactionState.ROLLBACK)
        (message,) = await cluster.consume("T", group="readers")
        assert (message.body, message.tags, message.keys) == (b"kept", "A", ("k",))
        assert message.msg_id == kept.sent.msg_id


async def test_the_local_transaction_runs_behind_the_half_message() -> None:
    async with (
        open_cluster("single") as cluster,
        cluster.transactional_producer(never) as producer,
    ):

        async def execute(sent: SendResult) -> TransactionState:
            assert sent.queue_offset == 0
            assert not await consumed(cluster)
            return TransactionState.COMMIT

        await producer.send_in_transaction(Message("T", b"one"), execute)
        assert await consumed(cluster) == {b"one": 1}


async def test_an_unknown_outcome_is_asked_for_until_it_is_known() -> None:
    asked = Asked(TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK)
    async with (
        open_cluster("single", settings=CHECKS) as cluster,
        cluster.transactional_producer(asked) as producer,
    ):
        result = await producer.send_in_transaction(
            Message("T", b"one"), ends(TransactionState.UNKNOWN)
        )
        assert result.reason
        await trio.sleep(20)
        await producer.send_in_transaction(Message("T", b"two"), ends(TransactionState.UNKNOWN))
        await trio.sleep(20)
        assert asked.bodies == [b"one", b"one", b"two"]
        assert await consumed(cluster) == {b"one": 1}


async def test_an_exception_leaves_the_transaction_open() -> None:
    async with open_cluster("single", settings=CHECKS) as cluster:
        asked = Asked(TransactionState.COMMIT)
        async with cluster.transactional_producer(asked) as producer:

            async def execute(_: SendResult) -> TransactionState:
                raise KeyError("database")

            with pytest.raises(KeyError, match="database"):
                await producer.send_in_transaction(Message("T", b"one"), execute)
            await trio.sleep(20)
        assert asked.bodies == [b"one"]
        assert await consumed(cluster) == {b"one": 1}


async def test_a_check_that_fails_is_repeated() -> None:
    calls = 0

    async def check(_: ReceivedMessage) -> TransactionState:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("the database is away")
        return TransactionState.COMMIT

    async with (
        open_cluster("single", settings=CHECKS) as cluster,
        cluster.transactional_producer(check) as producer,
    ):
        await producer.send_in_transaction(Message("T", b"one"), ends(TransactionState.UNKNOWN))
        await trio.sleep(20)
        assert calls == 2
        assert await consumed(cluster) == {b"one": 1}


async def test_another_member_answers_for_one_that_is_gone() -> None:
    async with open_cluster("single", settings=CHECKS) as cluster:
        async with cluster.transactional_producer(never) as producer:
            await producer.send_in_transaction(Message("T", b"one"), ends(TransactionState.UNKNOWN))
        asked = Asked(TransactionState.COMMIT)
        async with cluster.transactional_producer(asked, topics=["T"]):
            await trio.sleep(20)
        assert asked.bodies == [b"one"]
        assert await consumed(cluster) == {b"one": 1}


@pytest.mark.parametrize("layout", ["pair", "raft"])
async def test_transactions_outlive_their_master(layout: str) -> None:
    """One transaction is open when the master dies; the next loses its master before its commit."""
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    async with (
        # A producer finds the new master within half a minute: checks must last longer.
        open_cluster(layout, seed=3, settings={"transactionCheckInterval": 10_000}) as cluster,
        cluster.transactional_producer(check) as producer,
    ):

        async def lose_the_master(_: SendResult) -> TransactionState:
            await (await cluster.master_of("broker-a")).kill()
            if layout == "pair":
                await cluster.fail_over(force=True)
            return TransactionState.COMMIT

        await producer.send_in_transaction(Message("T", b"open"), ends(TransactionState.UNKNOWN))
        result = await producer.send_in_transaction(Message("T", b"late"), lose_the_master)
        await trio.sleep(120)
        # The commit reaches the new master. That of a pair has no slave to wait for, and says so.
        if layout == "pair":
            assert "stored, but no slave" in result.reason
        else:
            assert result.reason == ""
        assert set(asked) == {b"open"}
        assert await consumed(cluster) == {b"open": 1, b"late": 1}


async def test_a_delayed_message_is_no_transaction() -> None:
    async with (
        open_cluster("single") as cluster,
        cluster.transactional_producer(never) as producer,
    ):
        with pytest.raises(TriohaError, match="cannot be delayed"):
            await producer.send_in_transaction(
                Message("T", b"one", delay_s=1), ends(TransactionState.COMMIT)
            )
