"""Benchmark of a broker that a console watches: processor time with large tables.

    PYTHONPATH=tests:console python tests/bench/bench_watched_broker.py [SECONDS]

A real master holds its share of the cluster of `bench_console.py`: 200 topics with two queues each,
and 500 groups, each with an offset in every queue of one topic. It prints the master's processor
time as a share of one core, alone and with a console at each screen.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.fleet import GROUPS, QUEUES, TOPICS, group_name, topic_name
from support.clusters.pair import Cluster
from support.processes.admin import put_topic, request
from support.processes.faults import processor_s
from support.processes.rig import Node, running_processes
from support.screens.screens import LARGE
from trioha_console.app import ConsoleApp
from trioha_console.source import LiveSource

from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SCREENS = ("replication", "groups", "topics")


def fill(master: Node) -> None:
    """Create the topics, and the groups by an offset in each queue."""
    for number in range(TOPICS):
        put_topic(master.address, topic_name(0, number), QUEUES)
    for number in range(GROUPS):
        group, topic = group_name(0, number), topic_name(0, number % TOPICS)
        request(
            master.address,
            RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=_group(group)),
        )
        for queue_id in range(QUEUES):
            fields: dict[str, ExtValue] = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": queue_id,
                "commitOffset": 0,
            }
            command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            request(master.address, command)


def _group(name: str) -> bytes:
    return b'{"groupName":"%b","consumeEnable":true}' % name.encode()


async def share(pid: int, seconds: int) -> float:
    began_s, before = time.monotonic(), processor_s(pid)
    await asyncio.sleep(seconds)
    return (processor_s(pid) - before) / (time.monotonic() - began_s)


async def measure(cluster: Cluster, seconds: int) -> None:
    pid = cluster.master.process.pid
    print(f"alone        {await share(pid, seconds):6.2%} of a core", flush=True)
    app = ConsoleApp(LiveSource((cluster.namesrv,)))
    async with app.run_test(size=LARGE):
        for screen in SCREENS:
            await app.action_view(screen)
            await asyncio.sleep(10)
            print(f"{screen:<12} {await share(pid, seconds):6.2%} of a core", flush=True)


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch, running_processes(Path(scratch)) as processes:
        cluster = Cluster(processes).start("ASYNC_MASTER")
        fill(cluster.master)
        asyncio.run(measure(cluster, seconds))


if __name__ == "__main__":
    main()
