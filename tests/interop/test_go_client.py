"""The Go client v2 at a trioha broker under a trioha name server."""

from __future__ import annotations

from support.clusters.pair import SMALL_FILES, Cluster
from support.peers.clients import Clients
from support.processes.admin import create_topic, wait_for_progress
from support.processes.rig import Processes

SHARDS = 3
PER_SHARD = 8


def test_go_client_sends_and_consumes(processes: Processes, clients: Clients, topic: str) -> None:
    cluster = Cluster(processes).start()
    namesrv, broker = cluster.namesrv, cluster.master.address
    create_topic(broker, namesrv, topic)
    producer = clients.producer("go", namesrv)
    full = producer.send(
        topic, "with everything", tags="TagA", keys="k1 k2", properties={"colour": "tief-grün"}
    )
    assert full.status == "SEND_OK"
    bodies = ["with everything"]
    for mode in ("sync", "async", "oneway"):
        for number in range(20):
            bodies.append(f"{mode} {number}")
            assert producer.send(topic, bodies[-1], mode).status in ("SEND_OK", "ONEWAY")
    batch = [f"batch {number}" for number in range(10)]
    assert producer.send(topic, batch, "batch", tags="TagB").status == "SEND_OK"
    ordered = [f"ordered {shard} {n}" for n in range(PER_SHARD) for shard in range(SHARDS)]
    for body in ordered:
        shard = int(body.split()[1])
        assert producer.send(topic, body, "ordered", shard=shard, tags="TagC").status == "SEND_OK"
    # Compressed by the client, and larger than what a pull gives at once.
    assert producer.send(topic, "long " * 100_000, tags="TagD").status == "SEND_OK"

    everything = clients.consumer("go", namesrv, f"{topic}-all", topic, wait=False)
    tagged = clients.consumer("go", namesrv, f"{topic}-tag", topic, "TagA || TagB", wait=False)
    orderly = clients.consumer("go", namesrv, f"{topic}-o", topic, "TagC", orderly=True, wait=False)
    for consumer in (everything, tagged, orderly):
        consumer.wait_until_ready()
    messages = everything.wait_for_count(len(bodies) + len(batch) + len(ordered) + 1)
    assert sorted(m.body for m in messages if m.body) == sorted([*bodies, *batch, *ordered])
    assert [m.size for m in messages if m.body is None] == [500_000]
    one = next(message for message in messages if message.body == "with everything")
    assert (one.tags, one.keys, one.properties["colour"]) == ("TagA", "k1 k2", "tief-grün")
    assert (one.offset_msg_id, one.queue_offset) == (full.offset_msg_id, full.queue_offset)
    assert sorted(m.body or "" for m in tagged.wait_for_count(11)) == sorted(
        ["with everything", *batch]
    )
    for shard in range(SHARDS):
        mine = [m.body for m in orderly.wait_for_count(len(ordered))]
        expected = [body for body in ordered if body.split()[1] == str(shard)]
        assert [body for body in mine if body in expected] == expected

    # Progress is told at the end, and an heir goes on from there.
    everything.stop()
    wait_for_progress(broker, f"{topic}-all", topic, 4, 10.0)
    heir = clients.consumer("go", namesrv, f"{topic}-all", topic)
    producer.send(topic, "for the heir")
    assert [m.body for m in heir.wait_for_bodies(["for the heir"])] == ["for the heir"]


def test_go_client_gets_what_its_sql_filter_accepts(
    processes: Processes, clients: Clients, topic: str
) -> None:
    """Also what is delivered again: a filter holds for a message and for its retries."""
    cluster = Cluster(processes, settings={**SMALL_FILES, "enablePropertyFilter": True}).start()
    create_topic(cluster.master.address, cluster.namesrv, topic)
    producer = clients.producer("go", cluster.namesrv)
    for number in range(20):
        properties = {"n": str(number), "region": ("eu", "us")[number % 2]}
        sent = producer.send(topic, f"{number}", tags="TagA", properties=properties)
        assert sent.status == "SEND_OK"
    sql = "n BETWEEN 3 AND 9 AND (region = 'eu' OR n = 7) AND TAGS = 'TagA'"
    group = f"{topic}-sql"
    # A Go client asks every 30 s where a topic is. It asks for its group's retries at once, when
    # the broker has not made that topic yet, and would find it 30 s later.
    create_topic(cluster.master.address, cluster.namesrv, f"%RETRY%{group}", queues=1)
    consumer = clients.consumer("go", cluster.namesrv, group, topic, sql=sql, fail_below=1)
    # Each is refused once, and comes again after 10 s, the first of the levels for retries.
    messages = consumer.wait_for_count(8, within_s=40.0)
    assert sorted(message.body or "" for message in messages) == sorted(["4", "6", "7", "8"] * 2)


def test_go_client_commits_rolls_back_and_answers_checks(
    processes: Processes, clients: Clients, topic: str
) -> None:
    quick = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
    cluster = Cluster(processes, settings={**SMALL_FILES, **quick}).start()
    namesrv, broker = cluster.namesrv, cluster.master.address
    create_topic(broker, namesrv, topic)
    producer = clients.transactional_producer("go", namesrv, f"{topic}-p")
    consumer = clients.consumer("go", namesrv, f"{topic}-c", topic)
    for body, local, checked in (
        ("committed", "commit", "unknown"),
        ("rolled back", "rollback", "commit"),
        ("committed when asked", "unknown", "commit"),
        ("rolled back when asked", "unknown", "rollback"),
    ):
        assert producer.send(topic, body, local=local, checked=checked).status == "SEND_OK"
    asked = producer.wait_for_checks(2)
    messages = consumer.wait_for_bodies({"committed", "committed when asked"})
    assert sorted(message.body or "" for message in messages) == [
        "committed",
        "committed when asked",
    ]
    assert {one["body"] for one in asked} == {"committed when asked", "rolled back when asked"}
    producer.stop()
    consumer.stop()
