"""An answer that no node should give ends a job in a sentence, whichever answer of it that is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

import pytest

from trioha.client import Message
from trioha.client.driving import drive
from trioha.errors import TriohaError
from trioha.failover.asking import Answer, Flow, Wait
from trioha.jobs.brokers import broker_stats, list_brokers, plan_setting
from trioha.jobs.clients import list_clients
from trioha.jobs.drain import DrainOrder, plan_drain
from trioha.jobs.group_changes import plan_delete_group
from trioha.jobs.groups import describe_group, list_groups
from trioha.jobs.offsets import Goal, To, plan_offsets
from trioha.jobs.telling import JobScope
from trioha.jobs.topic_changes import carry_out, plan_alter, plan_create, plan_delete
from trioha.testing import TriohaCluster, open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.fastjson import dumps

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

T = TypeVar("T")
ORDER = DrainOrder(
    ticket_id="0123456789abcdef",
    operator="anna@ops-1",
    wait_s=1.0,
    now_ms=lambda: 0,
    wall_ms=lambda: 1_700_000_000_000,
)
ODD = (
    Answer(0),
    Answer(0, "", b"{}", {"offset": "x"}),
    Answer(0, "", b"[]", {"offset": "1e9"}),
    Answer(0, "", b"\xff\x00\xc1"),
    Answer(0, "", b"\x81\xa4raft\x93\x01\x02\x03"),
    Answer(0, "", dumps({"table": {"a": 1}, "offsetTable": {"a": []}, "queueDatas": 7})),
    Answer(0, "", b"putTps=a b\ncommitLogMaxOffset=x\nmsgPutTotalTodayNow=\n="),
)
JOBS: dict[str, Callable[[JobScope], Flow[object]]] = {
    "list brokers": list_brokers,
    "stats": lambda scope: broker_stats(scope, "broker-a"),
    "setting": lambda scope: plan_setting(scope, "broker-a", None, "fileReservedTime", "48"),
    "drain": lambda scope: plan_drain(scope, "broker-a", None, ORDER),
    "list groups": list_groups,
    "describe group": lambda scope: describe_group(scope, "G"),
    "delete group": lambda scope: plan_delete_group(scope, "G"),
    "reset by time": lambda scope: plan_offsets(scope, "G", "T", Goal(To.TIME, 1_700_000_000_000)),
    "reset to the end": lambda scope: plan_offsets(scope, "G", "T", Goal(To.LATEST)),
    "alter topic": lambda scope: plan_alter(
        scope, "T", read_queues=8, write_queues=8, perm=None, order=None
    ),
    "delete topic": lambda scope: plan_delete(scope, "T"),
    "clients": list_clients,
}


def with_odd(flow: Flow[T], number: int, odd: Answer, seen: list[int]) -> Flow[T]:
    """Return the same flow, but with `odd` as the answer of this number."""
    effect = next(flow)
    while True:
        replies = yield effect
        if not isinstance(effect, Wait):
            for index in range(len(replies)):
                if len(seen) == number:
                    replies[index] = odd
                seen.append(0)
        try:
            effect = flow.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
async def test_no_odd_answer_breaks_a_job(job: Callable[[JobScope], Flow[object]]) -> None:
    async with open_cluster("2m-2s-sync") as cluster:
        await _lived_in(cluster)
        scope = JobScope((cluster.namesrv,), 1.0)
        for number in count():
            seen: list[int] = []
            for odd in ODD:
                seen = []
                with suppress(TriohaError):
                    await drive(with_odd(job(scope), number, odd, seen), cluster.operator)
            if len(seen) <= number:
                assert number, "it asked nothing"
                break


async def _lived_in(cluster: TriohaCluster) -> None:
    scope = JobScope((cluster.namesrv,), 1.0)
    topic = plan_create(scope, "T", read_queues=2, write_queues=2, perm="rw", order=False)
    await drive(carry_out(scope, await drive(topic, cluster.operator)), cluster.operator)
    async with cluster.producer() as producer:
        for _ in range(4):
            await producer.send(Message("T", b"x"))
    await cluster.consume("T", group="G")
