"""POP beside RocketMQ 5.3.3: the same requests to both brokers, and the same answers.

Each scenario runs at both brokers, with a topic and a group of its own, all at the same time.
What differs on purpose stands in DIFFERENCES, each with its reason. Any other difference fails, and
so does one of these that is gone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import SMALL_FILES, Make
from support.handlers.popping import Popped
from support.peers.java import java_broker
from support.processes.popping import LONG_MS, PopClient, Waiting
from support.processes.rig import (
    Node,
    Processes,
    running_processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.processes.status import wait_until
from support.suite.drawn_seed import drawn_seed

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, MessageModel
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.xdist_group("pop beside java")

SHORT_MS = 1_500
"""Invisible time of messages that no step touches until they come again."""
STEADY_MS = 5_000
"""Invisible time of messages of which some are acknowledged first."""
LATER_MS_MAX = 2_000
"""Tolerance beyond the time of RocketMQ's broker, which takes two seconds or more."""
AGAIN_S = 60.0
DRAWN_STEPS = 60
SETTINGS: Mapping[str, object] = {
    **SMALL_FILES,
    "autoCreateTopicEnable": False,
    "autoCreateSubscriptionGroup": False,
    "enablePropertyFilter": True,
}
# One revive queue keeps the order of due times; the intervals make redelivery quick. The last: with
# enableRetryTopicV2 a pop would look into one of the two retry topics, drawn by lot.
QUICK_JAVA: Mapping[str, object] = {
    "reviveQueueNum": 1,
    "reviveInterval": 50,
    "reviveMaxSlow": 1,
    "timerPrecisionMs": 100,
    "retrieveMessageFromPopRetryTopicV1": False,
}

# Java's broker of 5.x keeps the first two in every message; the last is the client's handle.
OF_JAVA_5 = {"MSG_REGION", "TRACE_ON", "POP_CK"}

Scenario = Callable[[PopClient], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(run: Scenario) -> Scenario:
    SCENARIOS[run.__name__] = run
    return run


@scenario
def batches(client: PopClient) -> None:
    """Batches of several sizes from one queue of two, until nothing is left."""
    client.create(queues=2)
    client.pop("empty")
    client.send(*(f"a{i}" for i in range(10)))
    client.send("b0", "b1", "b2", queue=1)
    for step, count in (("one", 1), ("four", 4), ("the rest", 32)):
        client.pop_left(step, maxMsgNums=count)
    client.pop("nothing")
    client.pop("two of the other queue", maxMsgNums=2, queueId=1)
    client.pop_left("any queue", queueId=-1)
    client.pop("any queue, nothing", queueId=-1)
    client.pop("queue -7, nothing", queueId=-7)


@scenario
def every_queue(client: PopClient) -> None:
    """Pops of queue -1, whole and in parts."""
    client.create(queues=4)
    for queue in range(4):
        client.send(f"{queue}-a", f"{queue}-b", queue=queue)
    client.pop("all", queueId=-1)
    client.create_group("another")
    found: list[str] = []
    for step in range(4):
        part = client.popped(
            client.start_pop(queueId=-1, maxMsgNums=3, consumerGroup="another").answer()
        )
        client.tell(f"part {step}", len(part))
        found += [message.body for message in part]
    client.tell("all parts", sorted(found))


@scenario
def where_a_group_begins(client: PopClient) -> None:
    """Init mode 0 begins at the first message; mode 1 does as well, while it is in memory."""
    client.create()
    client.send("a", "b", "c")
    for mode in (0, 1):
        client.create_group(f"mode-{mode}")
        client.pop(f"mode {mode}", consumerGroup=f"mode-{mode}", initMode=mode, maxMsgNums=2)
        client.pop(f"mode {mode} on", consumerGroup=f"mode-{mode}", initMode=mode)


@scenario
def tags(client: PopClient) -> None:
    client.create()
    for body, tag in (("a", "A"), ("b", "B"), ("a2", "A"), ("none", ""), ("b2", "B")):
        client.send(body, tags=tag)
    for group, expression in (("or", "A || B"), ("all", "*"), ("c", "C"), ("b", "B")):
        client.create_group(f"tags-{group}")
        client.pop(expression, consumerGroup=f"tags-{group}", exp=expression, expType="TAG")
        client.pop(f"{expression}, then any", consumerGroup=f"tags-{group}")
    client.pop("one of A", exp="A", maxMsgNums=1)
    client.pop("one more of A", exp="A", maxMsgNums=1)
    client.pop("of B, after A", exp="B")


@scenario
def sql_filters(client: PopClient) -> None:
    client.create()
    for n in range(6):
        client.send(str(n), n=str(n), region=("eu", "us")[n % 2])
    client.pop("two", exp="n > 1 AND region = 'eu'", expType="SQL92")
    client.pop("wrong", exp="n >", expType="SQL92")
    client.pop("no such type", exp="n > 1", expType="GREP")
    client.pop("after them", exp="n IS NOT NULL", expType="SQL92")


@scenario
def parked_pops(client: PopClient) -> None:
    """A message wakes a pop that wants it, and its time ends another."""
    client.create(queues=2)
    client.pop("timed out", pollTime=200)
    client.pop("given up by its client", pollTime=200, bornTime=1_000)
    for step, fields in (
        ("its queue", {"queueId": 1}),
        ("any queue", {"queueId": -1}),
        ("its tag", {"queueId": 1, "exp": "A"}),
        ("its property", {"queueId": 1, "exp": "n > 1", "expType": "SQL92"}),
    ):
        waiting = park(client, **fields)
        if "exp" in fields:
            client.send("of no use", queue=1, tags="B", n="1")
        client.send(step, queue=1, tags="A", n="2")
        client.told_pop(step, waiting)


@scenario
def several_parked_pops(client: PopClient) -> None:
    """One message goes to one pop of each group."""
    client.create()
    client.create_group("another")
    parked = [park(client, pollTime=4_000), park(client, 2, pollTime=4_000)]
    parked.append(park(client, consumerGroup="another"))
    client.send("a")
    answers = [waiting.answer() for waiting in parked]
    client.tell("of one group", sorted(answer.code for answer in answers[:2]))
    client.tell("of another", answers[2].code)


def park(client: PopClient, count: int = 1, **fields: object) -> Waiting:
    """Send a pop, and return when it is the group's parked pop of this number."""
    asked = client.pop_fields({"pollTime": 20_000, **fields})
    waiting = client.start(RequestCode.POP_MESSAGE, asked)

    def is_parked() -> bool:
        return client.ask(RequestCode.POLLING_INFO, asked).ext_int("pollingNum") == count

    wait_until("parked", is_parked)
    return waiting


@scenario
def peeks(client: PopClient) -> None:
    """A peek shows what a pop would take, and takes nothing."""
    client.create(queues=2)
    client.peek("nothing")
    client.send("a", "b", "c")
    client.send("d", queue=1)
    client.peek("two", maxMsgNums=2)
    client.peek("any queue", queueId=-1)
    client.pop("two popped", maxMsgNums=2)
    client.peek("the third")
    client.peek("no topic", topic="unknown")
    client.peek("no group", consumerGroup="unknown")
    client.peek("no such queue", queueId=2)


@scenario
def large_bodies(client: PopClient) -> None:
    """Java's broker may hold the lock of the last pop still, and answers with nothing then."""
    client.create()
    client.send(*(letter * 100_000 for letter in "abcde"))
    parts: list[str] = []
    for _ in range(50):
        messages = client.popped(client.start_pop(pollTime=100).answer())
        if messages:
            parts.append("".join(message.body[0] for message in messages))
        if len("".join(parts)) == 5:
            break
    client.tell("parts", parts)
    client.tell("nothing is left", not client.popped(client.start_pop().answer()))


@scenario
def moved_groups(client: PopClient) -> None:
    """An operator moves the group on and back."""
    client.create()
    client.send(*"abcdefgh")
    client.pop("two", maxMsgNums=2)
    fields = {"consumerGroup": client.group, "topic": client.topic, "queueId": 0}
    answer = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 5})
    client.tell("on to 5", answer.code)
    client.pop("one from there", maxMsgNums=1)
    fields = {"group": client.group, "topic": client.topic, "queueId": 0, "offset": 1}
    back = {**fields, "timestamp": 0, "isForce": True}
    set_mode(client, "the group pops")
    answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, back)
    client.tell("back to 1", answer.code)
    client.pop("all from there")


@scenario
def acknowledgements(client: PopClient) -> None:
    """Messages without an acknowledgement come again alone, and with one never again."""
    client.create()
    client.send(*"abcde")
    a, b, c, d, e = client.pop("all", invisibleTime=STEADY_MS)
    client.ack("one", a)
    client.ack("the same again", a)
    client.batch_ack("two", b, d)
    client.batch_ack("one of them again", b)
    again = client.pop_again("c and e again", c, e)
    client.ack("an old handle", c)
    client.ack("a redelivery", again[0])
    client.batch_ack("another redelivery", again[1])
    client.send("f")
    (f,) = client.pop("a later one", invisibleTime=SHORT_MS)
    client.pop_again("nothing but the later one", f)


@scenario
def reconsume_times(client: PopClient) -> None:
    """A message without an acknowledgement comes again and again, to a pop of any queue."""
    client.create(queues=2)
    client.send("a", queue=1, tags="T", k="v", UNIQ_KEY="unique")
    found = client.pop("first", queueId=1, invisibleTime=SHORT_MS)
    first = found[0].record
    for step in AGAIN:
        found = client.pop_again(step, *found, invisibleTime=SHORT_MS)
        record = found[0].record
        properties = record.properties
        assert int(properties["1ST_POP_TIME"]) < record.store_timestamp
        client.tell(f"{step}: has its topic", record.topic == client.topic)
        client.tell(f"{step}: properties", sorted(properties.keys() - OF_JAVA_5))
        client.tell(f"{step}: born", record.born_timestamp == first.born_timestamp)
        client.tell(f"{step}: born host", record.born_host == first.born_host)
        client.tell(f"{step}: flags", (record.flag, record.sys_flag))


AGAIN = ("again", "once more", "a third time")


@scenario
def retries_and_filters(client: PopClient) -> None:
    """A message that comes again passes the filter of the pop that finds it, or not."""
    client.create()
    client.send("a", "a2", tags="A")
    client.send("b", tags="B")
    found = client.pop("of A", exp="A", maxMsgNums=2, invisibleTime=SHORT_MS)
    client.pop_again("of A again", *found, exp="A", invisibleTime=SHORT_MS)
    client.pop_again("by any", *found)


@scenario
def dead_letters(client: PopClient) -> None:
    """A message becomes a dead letter after `retryMaxTimes` redeliveries."""
    client.create(retryMaxTimes=1)
    client.send("a")
    (first,) = client.pop("first", invisibleTime=SHORT_MS)
    client.pop_again("again", first, invisibleTime=SHORT_MS)
    for _ in range(60):
        found = client.popped(client.start_pop(pollTime=500).answer())
        fields = {"topic": f"%DLQ%{client.group}", "queueId": 0}
        dead = client.ask(RequestCode.GET_MAX_OFFSET, fields)
        if found or (dead.code == 0 and dead.ext_int("offset")):
            break
    client.tell("a third time", [message.body for message in found])


@scenario
def change_invisible(client: PopClient) -> None:
    """Change the time to none, to a shorter one and to a longer one."""
    client.create()
    client.send("shorter", "none", "longer")
    shorter, none = client.pop("two for long", maxMsgNums=2)
    (longer,) = client.pop("one for short", invisibleTime=STEADY_MS)
    hidden = client.hide("longer", longer, LONG_MS)
    none = client.hide("none", none, 0)
    (none,) = client.pop_again("none comes", none)
    client.ack("none, acknowledged", none)
    shorter = client.hide("shorter", shorter, SHORT_MS)
    (shorter,) = client.pop_again("shorter comes", shorter)
    client.ack("shorter, acknowledged", shorter)
    client.hide("by the handle before", longer, LONG_MS)
    client.ack("by the handle before, acknowledged", longer)
    client.ack("longer, acknowledged", hidden)
    client.send("later")
    (later,) = client.pop("later", invisibleTime=STEADY_MS)
    client.pop_again("nothing but later", later)


@scenario
def hidden_redeliveries(client: PopClient) -> None:
    """A change of the invisible time of a message that has come again."""
    client.create()
    client.send("a")
    (a,) = client.pop("first", invisibleTime=SHORT_MS)
    (a,) = client.pop_again("again", a)
    a = client.hide("again, hidden", a, SHORT_MS)
    (a,) = client.pop_again("once more", a)
    client.batch_ack("acknowledged", a)
    client.batch_ack("acknowledged again", a)


@scenario
def acknowledgements_of_all_queues(client: PopClient) -> None:
    """One pop of several queues, of which a filter leaves out some messages."""
    client.create(queues=2)
    for queue in range(2):
        for body, tag in (("b", "B"), ("a", "A"), ("b2", "B"), ("a2", "A"), ("a3", "A")):
            client.send(f"{body}-{queue}", queue=queue, tags=tag)
    found = client.pop("all of A", queueId=-1, exp="A", invisibleTime=STEADY_MS)
    by_body = {message.body: message for message in found}
    client.ack("one", by_body.pop("a2-0"))
    left = by_body.pop("a3-1")
    client.batch_ack("all others", *by_body.values())
    client.send("new", tags="A")
    client.pop("new ones meanwhile", queueId=-1, exp="A")

    def is_back() -> bool:
        answer = client.ask(RequestCode.PEEK_MESSAGE, client.pop_fields({"queueId": 1}))
        return left.body.encode() in answer.body_bytes()

    wait_until("back", is_back, AGAIN_S)
    client.send("newer", queue=1, tags="A")
    found = client.pop("one again and a new one", queueId=1, exp="A")
    client.batch_ack("both", *found)


@scenario
def progress(client: PopClient) -> None:
    """The group's offset follows its pops, not its acknowledgements."""
    client.create()
    client.send(*"abcde")
    client.pop("three", maxMsgNums=3)
    fields = {"consumerGroup": client.group, "topic": client.topic, "queueId": 0}

    def offset() -> int:
        return client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext_int("offset")

    wait_until("committed", lambda: offset() == 3)
    client.pop("the rest")
    wait_until("committed", lambda: offset() == 5)


@scenario
def order(client: PopClient) -> None:
    """An ordered pop blocks its queue until all of the batch is acknowledged."""
    client.create(queues=2, consumeMessageOrderly=True)
    client.send(*"abcde")
    a, b = client.pop("two", order=True, maxMsgNums=2)
    client.pop("blocked", order=True)
    client.pop("blocked, while it waits", order=True, pollTime=200)
    client.ack("the second", b)
    client.pop("blocked still", order=True)
    tell_offset(client, "offset with the second acknowledged")
    client.ack("the first", a)
    client.ack("the first again", a)
    tell_offset(client, "offset with both acknowledged")
    c, d = client.pop("two more", order=True, maxMsgNums=2)
    waiting = client.start_pop(order=True, pollTime=20_000)
    client.batch_ack("both at once", c, d)
    client.told_pop("the last", waiting)
    client.pop("the other queue, nothing", order=True, queueId=1)
    client.send("x", queue=1)
    client.pop("any queue, one is blocked", order=True, queueId=-1)


@scenario
def order_of_every_queue(client: PopClient) -> None:
    client.create(queues=3, consumeMessageOrderly=True)
    for queue in range(2):
        client.send(f"{queue}-a", f"{queue}-b", queue=queue)
    found = client.pop("two of two", order=True, queueId=-1)
    client.pop("all blocked", order=True, queueId=-1)
    by_body = {message.body: message for message in found}
    client.batch_ack("one queue", by_body["0-b"], by_body["0-a"])
    client.send("0-c", "0-d")
    client.pop("that queue", order=True, queueId=-1, maxMsgNums=1)
    for body in ("1-a", "1-b"):
        client.hide(f"{body}, to short", by_body[body], SHORT_MS)
    client.pop("the other, after the time", order=True, queueId=1, pollTime=20_000)


@scenario
def order_in_smaller_batches(client: PopClient) -> None:
    """Acknowledged messages behind the first open one come again with it."""
    client.create(consumeMessageOrderly=True)
    client.send(*"abcd")
    _, b, c, _ = client.pop("four", order=True, invisibleTime=SHORT_MS)
    client.ack("the second", b)
    client.ack("the third", c)
    fields = {"order": True, "pollTime": 20_000, "invisibleTime": SHORT_MS}
    a, b = client.pop("two, after the time", maxMsgNums=2, **fields)
    client.ack("the first", a)
    tell_offset(client, "offset")
    b, c, d = client.pop("the rest, after the time", **fields)
    client.batch_ack("all", b, c, d)
    tell_offset(client, "offset at the end")


@scenario
def order_after_its_time(client: PopClient) -> None:
    """The batch comes again in order with the counts of deliveries; what was acknowledged too."""
    client.create(consumeMessageOrderly=True)
    client.send(*"abc")
    _, b = client.pop("two", order=True, maxMsgNums=2, invisibleTime=SHORT_MS)
    client.ack("the second", b)
    found = client.pop("all, after the time", order=True, pollTime=20_000, invisibleTime=SHORT_MS)
    client.ack("by the old handle", b)
    client.ack("the first", found[0])
    client.pop("the rest, after the time", order=True, pollTime=20_000)
    tell_offset(client, "offset")


@scenario
def order_and_tags(client: PopClient) -> None:
    """The offset passes over what the filter rejects."""
    client.create(consumeMessageOrderly=True)
    for body, tag in (("a", "A"), ("b", "B"), ("a2", "A"), ("b2", "B"), ("a3", "A"), ("b3", "B")):
        client.send(body, tags=tag)
    a, a2 = client.pop("two of A", order=True, exp="A", maxMsgNums=2)
    client.ack("the second", a2)
    client.ack("one between", attrs.evolve(a, handle=a.handle[:-1] + "1"))
    client.ack("the first", a)
    tell_offset(client, "offset after both")
    (a3,) = client.pop("the last of A", order=True, exp="A")
    client.batch_ack("acknowledged", a3)
    tell_offset(client, "offset after all of A")
    client.pop("nothing of A", order=True, exp="A")
    tell_offset(client, "offset at the end")


@scenario
def drawn_orders(client: PopClient) -> None:
    draw_orders(client)


@scenario
def drawn_orders_and_tags(client: PopClient) -> None:
    draw_orders(client, exp="A")


def draw_orders(client: PopClient, **filters: object) -> None:
    """Ordered pops, acknowledgements and changes of the invisible time, drawn from a seed.

    Before the first acknowledgement the group's offset is where RocketMQ's pop began to read, or
    here the first message of the batch: what the filter rejected may be between them.
    A client repeats an attempt whose answer was lost: with the same count, and before it
    acknowledges anything. What other attempts get is told by `order_and_an_attempt_used_again`.
    """
    rng = random.Random(f"{drawn_seed('ordered pops')} {client.topic}")
    client.create(consumeMessageOrderly=True)
    batch: dict[str, Popped] = {}
    sent = acked = 0
    for number in range(DRAWN_STEPS):
        match rng.choice(("send", "pop", "pop", "ack", "ack", "batch", "hide", "hide")):
            case "send":
                for _ in range(rng.randrange(1, 4)):
                    sent += 1
                    client.send(f"m{sent}", tags=rng.choice("AB"))
            case "pop":
                count = rng.randrange(1, 5)
                attempt = {"attemptId": f"{count} after {acked}"} if rng.random() < 0.4 else {}
                fields = {"order": True, "maxMsgNums": count, **attempt, **filters}
                found = client.pop(f"{number} pop {count} {attempt}", **fields)
                batch = {message.body: message for message in found} or batch
            case "ack" if batch:
                body = rng.choice(sorted(batch))
                client.ack(f"{number} ack {body}", batch.pop(body))
                acked += 1
                tell_offset(client, f"{number} offset")
            case "batch" if batch:
                bodies = rng.sample(sorted(batch), rng.randrange(1, len(batch) + 1))
                client.batch_ack(f"{number} ack {bodies}", *map(batch.pop, bodies))
                acked += len(bodies)
                tell_offset(client, f"{number} offset")
            case "hide" if batch:
                body = rng.choice(sorted(batch))
                hidden_ms = rng.choice((0, 0, 0, LONG_MS))
                batch[body] = client.hide(f"{number} {hidden_ms} {body}", batch[body], hidden_ms)


@scenario
def order_and_invisible_time(client: PopClient) -> None:
    client.create(consumeMessageOrderly=True)
    client.send(*"abc")
    a, b = client.pop("two", order=True, maxMsgNums=2)
    b = client.hide("the second, to 0", b, 0)
    client.pop("blocked by the first", order=True)
    a = client.hide("the first, to short", a, SHORT_MS)
    a, b = client.pop("both again", order=True, maxMsgNums=2, pollTime=20_000)
    a = client.hide("the first, to 0", a, 0)
    client.ack("the second", b)
    a, b = client.pop("both once more", order=True, maxMsgNums=2)
    client.ack("the first", a)
    client.hide("an acknowledged one", a, 0)
    client.ack("the second too", b)
    client.pop("the third", order=True)


@scenario
def order_and_attempts(client: PopClient) -> None:
    """A pop with the attempt id of the batch gets it at once."""
    client.create(consumeMessageOrderly=True)
    client.send(*"abc")
    client.pop("two", order=True, maxMsgNums=2, attemptId="x")
    client.pop("another attempt", order=True, maxMsgNums=2, attemptId="y")
    client.pop("no attempt", order=True, maxMsgNums=2)
    a, b = client.pop("the same attempt", order=True, maxMsgNums=2, attemptId="x")
    client.ack("the first", a)
    client.pop("the same attempt, later", order=True, maxMsgNums=2, attemptId="x")
    client.ack("the second, by the handle before", b)


@scenario
def order_and_an_attempt_used_again(client: PopClient) -> None:
    """Reuse it for a part of its batch, and for other messages once the batch is acknowledged."""
    client.create(consumeMessageOrderly=True)
    client.send(*"abcde")
    for message in client.pop("three", order=True, maxMsgNums=3):
        client.hide(f"{message.body}, to 0", message, 0)
    client.pop("three again", order=True, maxMsgNums=3, attemptId="x")
    found = client.pop("two of them", order=True, maxMsgNums=2, attemptId="x")
    client.ack("the first", found[0])
    found = client.pop("two behind it", order=True, maxMsgNums=2, attemptId="x")
    client.batch_ack("both", *found)
    client.pop("two others", order=True, maxMsgNums=2, attemptId="x")


def tell_offset(client: PopClient, step: str) -> None:
    fields = {"consumerGroup": client.group, "topic": client.topic, "queueId": 0}
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    client.tell(step, (answer.code, answer.ext_int("offset", -1)))


@scenario
def notifications(client: PopClient) -> None:
    client.create(queues=2)
    notify(client, "nothing")
    notify(client, "nothing, while it waits", pollTime=200)
    for step, queue in (("its queue", 1), ("any queue", -1)):
        fields = client.pop_fields({"queueId": queue, "pollTime": 20_000})
        waiting = client.start(RequestCode.NOTIFICATION, fields)
        client.send(step, queue=1)
        client.tell(f"woken, {step}", notified(waiting.answer()))
        notify(client, f"at once, {step}", queueId=queue)
        client.pop(f"popped, {step}", queueId=queue)
        notify(client, f"popped, so nothing, {step}", queueId=queue)
    client.send("in order")
    client.pop("an ordered pop", order=True)
    notify(client, "of a blocked queue", order=True)
    notify(client, "unknown topic", topic="unknown")
    notify(client, "unknown group", consumerGroup="unknown")
    notify(client, "no such queue", queueId=2)


def notify(client: PopClient, step: str, **fields: object) -> None:
    answer = client.ask(RequestCode.NOTIFICATION, client.pop_fields(fields))
    client.tell(step, notified(answer))


def notified(answer: RemotingCommand) -> object:
    if answer.code:
        return answer.code
    return answer.ext_str("hasMsg"), answer.ext_str("pollingFull", "false")


@scenario
def assignments(client: PopClient) -> None:
    """Assign in pull and in pop mode, to groups of none, one and three clients."""
    client.create(queues=4)
    assign(client, "a group without clients")
    held = [join(client, client.group, f"client-{i}") for i in range(3)]
    client.create_group("alone")
    held.append(join(client, "alone", "client-9"))
    assign(client, "one client", consumerGroup="alone", clientId="client-9")
    for strategy in ("AVG", "AVG_BY_CIRCLE", "NO_SUCH"):
        for i in range(3):
            fields = {"strategyName": strategy, "clientId": f"client-{i}"}
            assign(client, f"pull {strategy} {i}", **fields)
    assign(client, "a stranger", clientId="client-7")
    assign(client, "broadcast", messageModel="BROADCASTING")
    assign(client, "no such topic", topic="no-such-topic")
    for share in (0, 1, 2, 9, -1):
        set_mode(client, f"pop, share {share}", popShareQueueNum=share)
        for i in range(3):
            assign(client, f"pop, share {share}, {i}", clientId=f"client-{i}")
        assign(client, f"pop, share {share}, a stranger", clientId="client-7")
    set_mode(client, "back to pull", mode="PULL")
    assign(client, "pull again", clientId="client-0")
    set_mode(client, "of no topic", topic="no-such-topic")
    set_mode(client, "of no group", consumerGroup="no-such-group")
    set_mode(client, "of a retry topic", topic=f"%RETRY%{client.group}")
    set_mode(client, "no such mode", mode="PUSH")
    set_mode(client, "share -2", popShareQueueNum=-2)
    for step, body in (("no body", b""), ("no JSON", b"{no"), ("no object", b"5"), ("{}", b"{}")):
        client.tell(step, client.ask(RequestCode.QUERY_ASSIGNMENT, {}, body).code)
        client.tell(
            f"mode, {step}", client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body).code
        )
    for waiting in held:
        waiting.connection.close()


def join(client: PopClient, group: str, client_id: str) -> Waiting:
    """Register a client of a group, for as long as its connection is open."""
    data = HeartbeatData(client_id, consumers=(ConsumerData(group),))
    waiting = client.start(RequestCode.HEART_BEAT, {}, data.encode())
    assert waiting.next_answer().code == ResponseCode.SUCCESS
    return waiting


def assign(client: PopClient, step: str, **fields: object) -> None:
    query = {
        "topic": client.topic,
        "consumerGroup": client.group,
        "clientId": "client-0",
        "messageModel": MessageModel.CLUSTERING,
        "strategyName": "AVG",
        **fields,
    }
    answer = client.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(query).encode())
    if answer.code:
        client.tell(step, answer.code)
        return
    assigned = json.loads(answer.body_bytes()).get("messageQueueAssignments")
    client.tell(
        step,
        assigned
        and sorted(
            (one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"], one["mode"])
            for one in assigned
        ),
    )


def set_mode(client: PopClient, step: str, **fields: object) -> None:
    mode = {"topic": client.topic, "consumerGroup": client.group, "mode": "POP", **fields}
    answer = client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
    client.tell(step, answer.code)


@scenario
def wrong_pops(client: PopClient) -> None:
    """Each wrong pop is of a group of its own, for which there is a message."""
    client.create()
    client.send("a")
    writable = attrs.evolve(client, topic=f"{client.topic}-writable")
    writable.create(perm=2)
    client.create_group("disabled", consumeEnable=False)
    wrong: dict[str, dict[str, object]] = {
        "nothing wrong": {},
        "33 messages": {"maxMsgNums": 33},
        "0 messages": {"maxMsgNums": 0},
        "-1 messages": {"maxMsgNums": -1},
        "no topic": {"topic": "unknown"},
        "no group": {"consumerGroup": "unknown"},
        "an empty group": {"consumerGroup": ""},
        "a topic without read permission": {"topic": writable.topic},
        "a group that may not consume": {"consumerGroup": "disabled"},
        "no such queue": {"queueId": 1},
        "init mode 7": {"initMode": 7},
        "invisible for 0 ms": {"invisibleTime": 0},
        "invisible for -1 ms": {"invisibleTime": -1},
        "invisible for 12 h": {"invisibleTime": 12 * 3_600_000},
        "invisible for 13 h": {"invisibleTime": 13 * 3_600_000},
        **{f"{name} is a word": {name: "word"} for name in POP_NUMBERS},
        **{f"without {name}": {name: None} for name in ("topic", "consumerGroup", *POP_NUMBERS)},
    }
    for number, (step, fields) in enumerate(wrong.items()):
        group = f"{client.group}-{number}"
        client.create_group(group)
        given = client.pop_fields({"consumerGroup": group, **fields})
        asked = {name: value for name, value in given.items() if value is not None}
        client.tell(step, client.ask(RequestCode.POP_MESSAGE, asked).code)
    (a,) = client.pop("after all of these")
    for step, invisible_ms in (("-1 ms", -1), ("12 h", 12 * 3_600_000), ("13 h", 13 * 3_600_000)):
        client.hide(f"changed to {step}", a, invisible_ms)


POP_NUMBERS = ("queueId", "maxMsgNums", "invisibleTime", "initMode", "pollTime", "bornTime")


@scenario
def wrong_handles(client: PopClient) -> None:
    """No wrong handle acknowledges anything: both messages are in flight at the end."""
    client.create()
    client.send("a", "b")
    client.create_group("foreign")
    foreign = attrs.evolve(client, topic=f"{client.topic}-foreign")
    foreign.create()
    a, b = client.pop("two")
    handle = a.handle.split(" ")
    wrong: dict[str, dict[str, object]] = {
        "a word": {"extraInfo": "word"},
        "three parts": {"extraInfo": " ".join(handle[:3])},
        "five parts": {"extraInfo": " ".join(handle[:5])},
        "words for numbers": {"extraInfo": " ".join(["x", *handle[1:]])},
        "another pop": {"extraInfo": " ".join([handle[0], "1000", *handle[2:]])},
        "another start": {"extraInfo": " ".join(["1", *handle[1:]])},
        "a foreign group": {"consumerGroup": "foreign"},
        "an unknown group": {"consumerGroup": "unknown"},
        "a foreign topic": {"topic": foreign.topic},
        "an unknown topic": {"topic": "unknown"},
        "queue 1": {"queueId": 1},
        "queue -1": {"queueId": -1},
        "offset 2, the end": {"offset": 2},
        "offset 3": {"offset": 3},
        "offset -1": {"offset": -1},
        "offset x": {"offset": "x"},
        "ordered": {"extraInfo": " ".join([*handle[:3], "999", *handle[4:]])},
    }
    for step, fields in wrong.items():
        # RocketMQ's broker moves the group on by an ordered acknowledgement of nothing.
        if step != "ordered":
            client.ack(f"ack, {step}", a, **fields)
        client.hide(f"change, {step}", a, LONG_MS, **fields)
    for name in ("extraInfo", "topic", "consumerGroup", "queueId", "offset"):
        fields = client.naming(a)
        del fields[name]
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            answer = client.ask(code, {"invisibleTime": LONG_MS, **fields})
            client.tell(f"{code.name} without {name}", answer.code)
    for message in (a, b):
        client.hide(f"{message.body}, at the end", message, LONG_MS)


@scenario
def wrong_batches(client: PopClient) -> None:
    client.create()
    client.send("a", "b")
    a, b = client.pop("two")
    client.tell("no body", client.ask(RequestCode.BATCH_ACK_MESSAGE, {}).code)
    bad = client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, b"{no json")
    client.tell("no JSON", bad.code)
    client.tell("no acks", client.ask_batch({"brokerName": "broker-a"}).code)
    client.tell("empty acks", client.ask_batch({"acks": []}).code)
    wrong: dict[str, dict[str, object]] = {
        "no bits": {"b": ""},
        "a bit beyond the end": {"so": 7},
        "an unknown topic": {"t": "unknown"},
        "an unknown group": {"c": "unknown"},
        "queue 1": {"q": 1},
        "retry 7": {"r": "7"},
        "another pop": {"pt": 1_000},
    }
    for step, fields in wrong.items():
        client.batch_ack(step, a, **fields)
    entries = [client.batch_entry(a, pt=1_000), client.batch_entry(b)]
    client.tell("one of two is good", client.ask_batch({"acks": entries}).code)
    client.hide("the other", a, LONG_MS)


@attrs.frozen
class Run:
    """A scenario at one broker."""

    client: PopClient
    done: Future[None]

    def told(self) -> dict[str, object]:
        self.done.result()
        return self.client.told


Runs = Mapping[tuple[str, Make], Run]


@pytest.fixture(
    scope="module",
    params=[pytest.param(False, id="v1"), pytest.param(True, id="v2", marks=pytest.mark.release)],
)
def is_v2(request: pytest.FixtureRequest) -> bool:
    """The value of enableRetryTopicV2."""
    return bool(request.param)


@pytest.fixture(scope="module")
def runs(is_v2: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Run all scenarios at both brokers."""
    settings = {**SETTINGS, "enableRetryTopicV2": is_v2}
    with running_processes(tmp_path_factory.mktemp("pops")) as processes:
        brokers = start_brokers(processes, settings)
        with ThreadPoolExecutor(2 * len(SCENARIOS)) as pool:
            yield {
                (name, make): Run(
                    client := PopClient(brokers[make].address, topic, f"{topic}-group"),
                    pool.submit(run, client),
                )
                for name, run in SCENARIOS.items()
                for topic in (name.replace("_", "-"),)
                for make in BOTH
            }


def start_brokers(processes: Processes, settings: Mapping[str, object]) -> dict[Make, Node]:
    """Start a broker of each make, with a name server of its own, so that they are named alike."""
    namesrvs = {make: trioha_namesrv(processes, name=f"{make}-namesrv").start() for make in BOTH}
    java = {**settings, **QUICK_JAVA}
    brokers: dict[Make, Node] = {
        "trioha": trioha_broker(processes, namesrvs["trioha"].address, settings=settings),
        "java": java_broker(processes, namesrvs["java"].address, settings=java, release="5.3"),
    }
    start_all(brokers.values())
    return brokers


@attrs.frozen
class Difference:
    """Steps of one scenario that are answered otherwise on purpose: by RocketMQ, and here."""

    why: str
    scenario: str
    steps: Mapping[str, tuple[object, object]]


def counts(every: int, *offsets: int) -> dict[str, str]:
    """Return the counts of a queue: deliveries that all have had, and offsets with one."""
    return {"0/0": str(every), **{f"0/qo0%{offset}": "1" for offset in offsets}}


NO_MESSAGE = ResponseCode.NO_MESSAGE
INVALID = ResponseCode.INVALID_PARAMETER
HIDDEN = [0, "0", True, str(LONG_MS)]
"""The answer to a change of the invisible time, as `PopClient.hide` tells it."""
STALE = "RocketMQ takes any handle; here it names a message that is in flight for the group."
WORDS = "RocketMQ answers a handle that is none with the SYSTEM_ERROR of an exception."
OUTSIDE = "RocketMQ has a code of its own for what is not in the batch of an ordered queue."
NUMBERS = "RocketMQ reads 0 where a number is missing or is none; here the field is named."
LIMITS = "The limits of docs/pop.md; RocketMQ's broker takes any time, and any number up to 32."
SAME_MESSAGE = "The copy keeps the producer's host, and its own topic; clients read the handle."
DIFFERENCES: Sequence[Difference] = (
    Difference(
        "After retryMaxTimes a message goes to the DLQ; RocketMQ delivers it for ever.",
        "dead_letters",
        {"a third time": (["a"], [])},
    ),
    Difference(STALE, "acknowledgements", {"an old handle": (0, NO_MESSAGE)}),
    Difference(
        STALE,
        "change_invisible",
        {
            "by the handle before": (HIDDEN, NO_MESSAGE),
            "by the handle before, acknowledged": (0, NO_MESSAGE),
        },
    ),
    Difference(STALE, "order_after_its_time", {"by the old handle": (0, NO_MESSAGE)}),
    Difference(STALE, "order_and_attempts", {"the second, by the handle before": (0, NO_MESSAGE)}),
    Difference(
        OUTSIDE, "order_and_tags", {"one between": (ResponseCode.MESSAGE_ILLEGAL, NO_MESSAGE)}
    ),
    Difference(
        "RocketMQ's answer for what is acknowledged has zeros in all fields.",
        "order_and_invisible_time",
        {"an acknowledged one": ([0, "0", False, None], [0, "999", False, None])},
    ),
    Difference(
        "RocketMQ answers the same attempt with the counts of all that it ever brought.",
        "order_and_an_attempt_used_again",
        {
            "two of them: counts": (counts(0, 0, 1, 2), counts(1, 0, 1)),
            "two behind it: counts": (counts(0, 0, 1, 2), counts(1, 1, 2)),
            "two others: counts": (counts(0, 0, 1, 2), counts(0)),
        },
    ),
    Difference(
        SAME_MESSAGE,
        "reconsume_times",
        {
            **{f"{step}: born host": (False, True) for step in AGAIN},
            **{f"{step}: has its topic": (True, False) for step in AGAIN},
        },
    ),
    Difference(
        "RocketMQ keeps a mode that is none.",
        "assignments",
        {"no such mode": (0, INVALID), "share -2": (0, INVALID)},
    ),
    Difference(
        "RocketMQ answers a query without a topic with an exception.", "assignments", {"{}": (1, 0)}
    ),
    Difference(
        LIMITS,
        "wrong_pops",
        {
            "0 messages": (ResponseCode.POLLING_TIMEOUT, INVALID),
            "-1 messages": (1, INVALID),
            "invisible for 0 ms": (0, INVALID),
            "invisible for -1 ms": (0, INVALID),
            "invisible for 13 h": (0, INVALID),
            "changed to -1 ms": ([0, "0", True, "-1"], INVALID),
            "changed to 13 h": ([0, "0", True, str(13 * 3_600_000)], INVALID),
        },
    ),
    Difference(
        NUMBERS,
        "wrong_pops",
        {
            "bornTime is a word": (ResponseCode.POLLING_TIMEOUT, 1),
            "initMode is a word": (0, 1),
            "invisibleTime is a word": (0, 1),
            "maxMsgNums is a word": (ResponseCode.POLLING_TIMEOUT, 1),
            "queueId is a word": (0, 1),
            "without invisibleTime": (0, 1),
            "without maxMsgNums": (ResponseCode.POLLING_TIMEOUT, 1),
            "without queueId": (0, 1),
        },
    ),
    Difference(
        STALE,
        "wrong_handles",
        {
            "ack, another pop": (0, NO_MESSAGE),
            "ack, another start": (0, NO_MESSAGE),
            "ack, a foreign group": (0, NO_MESSAGE),
            "ack, an unknown group": (0, NO_MESSAGE),
            "ack, a foreign topic": (0, NO_MESSAGE),
            "ack, offset 2, the end": (0, NO_MESSAGE),
            "change, another pop": (HIDDEN, NO_MESSAGE),
            "change, another start": (HIDDEN, NO_MESSAGE),
            "change, a foreign group": (HIDDEN, NO_MESSAGE),
            "change, an unknown group": (HIDDEN, NO_MESSAGE),
            "change, ordered": ([0, "0", False, "0"], NO_MESSAGE),
            "ACK_MESSAGE without consumerGroup": (0, 1),
            "CHANGE_MESSAGE_INVISIBLETIME without consumerGroup": (0, 1),
        },
    ),
    Difference(
        WORDS,
        "wrong_handles",
        {
            f"{request}, {step}": (1, INVALID)
            for request in ("ack", "change")
            for step in ("a word", "three parts", "five parts", "words for numbers")
        },
    ),
    Difference(
        STALE,
        "wrong_batches",
        {
            "no bits": (0, NO_MESSAGE),
            "a bit beyond the end": (0, NO_MESSAGE),
            "another pop": (0, NO_MESSAGE),
            "an unknown group": (0, NO_MESSAGE),
            "an unknown topic": (0, ResponseCode.TOPIC_NOT_EXIST),
            "queue 1": (0, ResponseCode.MESSAGE_ILLEGAL),
        },
    ),
    Difference(WORDS, "wrong_batches", {"retry 7": (1, INVALID)}),
)


@pytest.mark.parametrize("name", SCENARIOS)
def test_pops_are_answered_as_by_rocketmq(name: str, runs: Runs) -> None:
    java, trioha = (runs[name, make].told() for make in ("java", "trioha"))
    found = {
        step: (java.get(step), trioha.get(step))
        for step in {**java, **trioha}
        if java.get(step) != trioha.get(step)
    }
    known = [one.steps for one in DIFFERENCES if one.scenario == name]
    assert found == {step: answers for steps in known for step, answers in steps.items()}


def test_messages_come_again_in_their_time(runs: Runs) -> None:
    """Never early, and not later than at RocketMQ's broker."""
    late_ms: dict[Make, list[int]] = {make: [] for make in BOTH}
    for (_, make), run in runs.items():
        run.done.result()
        late_ms[make] += run.client.late_ms
    assert len(late_ms["trioha"]) == len(late_ms["java"]) > 0
    assert min(late_ms["trioha"] + late_ms["java"]) >= 0
    assert max(late_ms["trioha"]) <= max(late_ms["java"]) + LATER_MS_MAX
