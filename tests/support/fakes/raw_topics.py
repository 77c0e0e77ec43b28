"""Topics, queues and groups for a `RawCluster`."""

from __future__ import annotations

from support.fakes.raw_answers import RawCluster

TOPIC, GROUP = "orders", "billing"


def add_topics(cluster: RawCluster, *masters: str) -> None:
    """Topic `orders` with four queues on each master, read by `billing`, which is behind."""
    for index, master in enumerate(masters):
        config = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}
        cluster.say(master, "topics", {TOPIC: config, f"%RETRY%{GROUP}": config})
        cluster.say(master, "groups", {GROUP: {}, "TOOLS_CONSUMER": {}})
        now_ms = cluster.wall_ms
        ends = [[queue, 100, 1000 + 100 * queue + 7 * index, now_ms - 2500] for queue in range(4)]
        cluster.say(master, f"topic_stats/{TOPIC}", ends)
        progress = [
            [queue, end, end - 10 * queue, now_ms - 7000, first, now_ms - 6000 if queue else None]
            for queue, first, end, _ in ends
        ]
        cluster.say(master, "progress", {GROUP: {TOPIC: progress}})


def add_losing_groups(cluster: RawCluster, master: str) -> None:
    """Groups of `orders`: one reads along, one is about to lose messages, one has lost some."""
    now_ms, hour_ms = cluster.wall_ms, 3_600_000
    progress = {
        "audit": [[0, 9000, 9000, now_ms - 2500, 4000, None]],
        "billing": [
            [0, 9000, 8990, now_ms - hour_ms, 4000, now_ms - hour_ms],
            [1, 9000, 4200, now_ms - 60 * hour_ms, 4000, now_ms - 60 * hour_ms],
        ],
        "refunds": [
            [0, 9000, 3880, 0, 4000, None],
            [1, 9000, 3997, 0, 4000, None],
            [2, 9000, 9000, now_ms - 2500, 4000, None],
        ],
    }
    cluster.say(master, "progress", {name: {TOPIC: rows} for name, rows in progress.items()})


def add_members(cluster: RawCluster, *masters: str) -> None:
    """Two clients of `billing`, one in Java and one in Go."""
    clients = [
        {"client_id": "10.7.0.1@4711", "address": "10.7.0.1:5001", "language": "JAVA"},
        {"client_id": "10.7.0.2@4712", "address": "10.7.0.2:5002", "language": "GO"},
    ]
    for master in masters:
        name = cluster.members[master]["name"]
        members = {
            "consume_type": "CONSUME_PASSIVELY",
            "message_model": "CLUSTERING",
            "subscriptions": {TOPIC: "*"},
            "clients": [client | {"version": 401} for client in clients],
        }
        cluster.say(master, f"members/{GROUP}", members)
        for index, client in enumerate(clients):
            queues = [[TOPIC, name, queue] for queue in range(4) if queue % 2 == index]
            cluster.say(master, f"client/{GROUP}/{client['client_id']}", {"queues": queues})
