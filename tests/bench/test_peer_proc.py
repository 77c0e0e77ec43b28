"""Reading /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.peer.proc import (
    CpuReading,
    all_cpu_seconds,
    cpu_seconds,
    memory_of,
    read_cpu,
    read_memory,
)

TICKS = os.sysconf("SC_CLK_TCK")
SMAPS = """\
55ff1f487000-55ff1f489000 r--p 00000000 fe:00 247278                     /usr/bin/java
Rss:                2048 kB
Anonymous:             0 kB
7f0000000000-7f0040000000 rw-s 00000000 fe:00 99   /tmp/a b/store/commitlog/00000000000000000000
Rss:               10240 kB
Anonymous:             0 kB
7f1000000000-7f1040000000 rw-s 00000000 fe:00 99   /tmp/a b/store/commitlog/0000 (deleted)
Rss:                1024 kB
Anonymous:             0 kB
7f2000000000-7f2040000000 rw-s 00000000 fe:00 99   /tmp/a b/storehouse
Rss:                1024 kB
Anonymous:             0 kB
7f3000000000-7f3040000000 rw-p 00000000 00:00 0
Rss:                4096 kB
Anonymous:          3072 kB
"""


def test_processor_time_is_found_behind_any_name() -> None:
    stat = f"7 (a) S (b)) S 1 1 1 0 -1 4194560 9 0 0 0 {3 * TICKS} {TICKS} 0 0 20 0 1 0"
    assert cpu_seconds(stat) == 4.0


def test_all_processor_time_leaves_out_idle_waits_and_interrupts() -> None:
    line = f"cpu  {TICKS} {TICKS} {2 * TICKS} 999999 999999 888 777 0 0 0"
    assert all_cpu_seconds(line) == 4.0


def test_what_nobody_we_know_used_is_the_others() -> None:
    before = CpuReading({"master": 10.0, "client": 1.0}, 100.0)
    used = before.until(CpuReading({"master": 14.0, "client": 3.0}, 107.0))
    assert used.by_name == {"master": 4.0, "client": 2.0}
    assert used.others == pytest.approx(1.0)


def test_ticks_out_of_step_do_not_make_others_negative() -> None:
    assert CpuReading({"master": 1.01}, 1.0).others == 0.0


def test_memory_without_the_store_leaves_out_its_files_only() -> None:
    memory = memory_of(SMAPS.splitlines(keepends=True), Path("/tmp/a b/store"))
    assert memory.rss == 18.0
    assert memory.private == 3.0
    assert memory.beyond_log == 7.0


def test_this_process_can_be_read() -> None:
    reading = read_cpu({"self": os.getpid()})
    assert 0 < reading.by_name["self"] <= reading.all_processes
    memory = read_memory(os.getpid(), Path("/nowhere"))
    assert 0 < memory.private <= memory.rss == memory.beyond_log
