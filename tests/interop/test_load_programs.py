"""RocketMQ's own load programs, `rocketmq-example`'s package `benchmark`, at a trioha broker.

They send, consume and send in transactions side by side, and each tells every ten seconds what it
has done and what has failed.
"""

from __future__ import annotations

import pytest
from support.clusters.pair import SMALL_FILES
from support.peers.java import java_command, java_environment, require_java
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.admin import put_topic, wait_for_route
from support.processes.rig import Process, Processes, trioha_broker, trioha_namesrv

REPORT_WITHIN_S = 60.0
PLAIN, TRANSACTIONS = "LoadProgram", "LoadProgramTransactions"
REPORTS = {
    "Producer": r"Send TPS: [1-9]\d* .*Send Failed: 0 Response Failed: 0",
    "Consumer": r"^TPS: [1-9]\d* FAIL: 0 ",
    "TransactionProducer": (
        r"Send TPS: *[1-9]\d* .*Send Failed: 0 check: \d+ unexpectedCheck: 0 duplicatedCheck: 0"
    ),
}


def start_program(processes: Processes, name: str, namesrv: str, *options: str) -> Process:
    home = processes.root / name
    home.mkdir()
    command = java_command(
        f"org.apache.rocketmq.example.benchmark.{name}",
        home,
        ["-n", namesrv, *options],
        properties=QUICK_CONSUMER["system_properties"],
    )
    process = Process(name, command, home / "out.log", java_environment(home), home, is_java=True)
    processes.add(process).start()
    return process


@pytest.mark.slow
def test_the_load_programs_do_their_work_without_a_failure(processes: Processes) -> None:
    require_java()
    namesrv = trioha_namesrv(processes).start()
    broker = trioha_broker(processes, namesrv.address, settings=SMALL_FILES).start()
    for topic in (PLAIN, TRANSACTIONS):
        put_topic(broker.address, topic, 4)
        wait_for_route(namesrv.address, topic)
    programs = {
        name: start_program(processes, name, namesrv.address, *options)
        for name, options in {
            "Consumer": ("-t", PLAIN),
            "Producer": ("-t", PLAIN, "-w", "2"),
            "TransactionProducer": ("-t", TRANSACTIONS, "-w", "2"),
        }.items()
    }
    for name, program in programs.items():
        assert program.wait_for_line(REPORTS[name], REPORT_WITHIN_S)
