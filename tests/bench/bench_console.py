"""What the console costs: 50 brokers, 500 links and 10,000 queues, all of it new every second.

    PYTHONPATH=tests:console python tests/bench/bench_console.py [SECONDS] [TABLES_EVERY_S]

A broker's tables are asked for every five seconds; here they are new each second, unless a rhythm
is given. A fake link hands out the frames, so what is measured is the console alone: understanding
what came and drawing it, at 200x50, in each screen. It prints CPU seconds per second, as a share of
one core.
"""

from __future__ import annotations

import asyncio
import sys
import time

from support.fakes.raw_answers import RawCluster
from support.screens.screens import LARGE, FakeSource
from trioha_console.app import ConsoleApp

from trioha.cli.garbage import tune_garbage_collector

BROKERS, SLAVES, QUEUES = 50, 10, 10_000
_TOPICS = 25
SCREENS = ("replication", "brokers", "topics", "queues", "groups", "alerts")


def a_fleet() -> RawCluster:
    """50 sets of a master with ten links each; 25 topics of 8 queues on each master."""
    cluster = RawCluster()
    for number in range(BROKERS):
        cluster.add_set(f"broker-{number:02}", SLAVES)
    return cluster


def busy(cluster: RawCluster, second: int, *, tables: bool) -> None:
    """Every number moves; those of queues if `tables`."""
    cluster.tick()
    for address, status in cluster.statuses.items():
        status["max_phy_offset"] += 1000
        status["put_total"] += 100
        for index, link in enumerate(status["connections"]):
            link["gap_bytes"] = (second * 37 + index * 11) % 5000
            link["last_ack_age_s"] = (second + index) % 5
        if tables and cluster.members[address]["id"] == 0:
            _tables(cluster, address, second)


def _tables(cluster: RawCluster, address: str, second: int) -> None:
    queues = QUEUES // BROKERS // _TOPICS
    config = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": False}
    names = [f"topic-{number:02}" for number in range(_TOPICS)]
    cluster.say(address, "topics", dict.fromkeys(names, config))
    progress = {}
    for name in names:
        ends = [[queue, 0, 1000 + second * 10 + queue, cluster.wall_ms] for queue in range(queues)]
        cluster.say(address, f"topic_stats/{name}", ends)
        progress[name] = [[queue, end, end - queue, cluster.wall_ms] for queue, _, end, _ in ends]
    cluster.say(address, "progress", {"group": progress})


async def measure(seconds: int, tables_every_s: int) -> None:
    cluster = a_fleet()
    source = FakeSource(cluster)
    app = ConsoleApp(source)
    tune_garbage_collector()
    async with app.run_test(size=LARGE) as pilot:
        for screen in SCREENS:
            await app.action_view(screen)
            frames = []
            for second in range(seconds):
                busy(cluster, second, tables=second % tables_every_s == 0)
                frames.append(cluster.raw())
            cpu = time.process_time()
            for raw in frames:
                source._frames.put_nowait(raw)
                at_wall_ms = raw["at_wall_ms"]
                while app.frame is None or app.frame.wall_ms < at_wall_ms:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await pilot.pause()
            share = (time.process_time() - cpu) / seconds
            print(f"{screen:<12} {share:6.1%} of a core at one frame a second")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    asyncio.run(measure(*numbers, *(20, 1)[len(numbers) :]))
