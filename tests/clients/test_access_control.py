"""Stock clients with right, wrong and missing keys, for topics of their own and others'.

`--peer=java` runs the same at RocketMQ's broker with the same accounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.clusters.pair import Cluster, Make
from support.clusters.secured import (
    FOREIGN_TOPIC,
    OWN,
    OWN_GROUP,
    OWN_TOPIC,
    WRONG,
    signed_request,
    start_secured,
)
from support.nodes.live_node import send_request
from support.peers.clients import KINDS, Clients, Kind, SendFailed
from support.processes.rig import running_processes

from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow
EXCEPTION = "org.apache.rocketmq.acl.common.AclException"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, make: Make) -> Iterator[Cluster]:
    with running_processes(tmp_path_factory.mktemp("secured")) as processes:
        yield start_secured(processes, make)


def keys(account: Credentials | None) -> dict[str, Any]:
    """Options of a client that has this account."""
    if account is None:
        return {}
    return {"access_key": account.access_key, "secret_key": account.secret_key}


def messages_in(secured: Cluster, topic: str) -> int:
    """Count of messages in the four queues of a topic."""
    count = 0
    for queue_id in range(4):
        command = RemotingCommand(
            RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}
        )
        count += signed_request(secured.master.address, command).ext_int("offset")
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_with_its_key_uses_its_topic(
    secured: Cluster, clients: Clients, kind: Kind, make: Make
) -> None:
    consumer = clients.consumer(kind, secured.namesrv, OWN_GROUP, OWN_TOPIC, **keys(OWN))
    producer = clients.producer(kind, secured.namesrv, **keys(OWN))
    bodies = [f"{kind} {number}" for number in range(20)]
    sent = producer.send_all(OWN_TOPIC, bodies, keys="k", tags="TagA")
    assert {one.status for one in sent} == {"SEND_OK"}
    consumer.wait_for_bodies(bodies)
    if kind == "cpp" and make == "trioha":
        # Java's broker stores a batch of the C++ client as one message with an empty body.
        assert producer.send(OWN_TOPIC, ["b1", "b2"], mode="batch").status == "SEND_OK"
        consumer.wait_for_bodies(["b1", "b2"])
    # Both say goodbye, and the consumer commits, in their own way.
    producer.stop()
    consumer.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("account", "topic", "words"),
    [
        (OWN, FOREIGN_TOPIC, f"No default permission for topic:{FOREIGN_TOPIC}"),
        (WRONG, OWN_TOPIC, "Check signature failed for accessKey=client-1"),
        (Credentials("stranger-1", "client-secret"), OWN_TOPIC, "No acl config for stranger-1"),
        (None, OWN_TOPIC, "No accessKey is configured"),
    ],
)
def test_a_client_without_the_right_is_told_so(
    secured: Cluster,
    clients: Clients,
    kind: Kind,
    account: Credentials | None,
    topic: str,
    words: str,
) -> None:
    before = messages_in(secured, topic)
    producer = clients.producer(kind, secured.namesrv, timeout_ms=3000, **keys(account))
    with pytest.raises(SendFailed) as failed:
        producer.send(topic, "never stored")
    # Both try again, and then say this in place of what the broker said.
    shown = {"cpp": f"No route info of this topic: {topic}", "js": "Send [4] times, still failed"}
    assert shown[kind] in str(failed.value)
    assert messages_in(secured, topic) == before
    answer = signed_request(secured.master.address, send_request(topic=topic), account)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    # Java adds a line of its own source.
    assert (answer.remark or "").startswith(f"{EXCEPTION}: {words}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_without_the_right_gets_nothing(
    secured: Cluster, clients: Clients, kind: Kind
) -> None:
    producer = clients.producer(kind, secured.namesrv, **keys(OWN))
    foreign_group = f"foreign-{kind}"
    strangers = [
        clients.consumer(kind, secured.namesrv, foreign_group, OWN_TOPIC, wait=False, **keys(OWN)),
        clients.consumer(kind, secured.namesrv, OWN_GROUP, OWN_TOPIC, wait=False, **keys(WRONG)),
        clients.consumer(kind, secured.namesrv, OWN_GROUP, OWN_TOPIC, wait=False),
    ]
    # A consumer with the right, started last, has all before the strangers had time to get any.
    consumer = clients.consumer(kind, secured.namesrv, OWN_GROUP, OWN_TOPIC, **keys(OWN))
    bodies = [f"for {kind} {number}" for number in range(20)]
    producer.send_all(OWN_TOPIC, bodies)
    consumer.wait_for_bodies(bodies)
    assert not any(stranger.messages for stranger in strangers)
