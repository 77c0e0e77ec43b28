"""Options of a JVM for the bytes that it reads, and its heap for a local master."""

from __future__ import annotations

import os

import pytest

from trioha.analysis.spark.session import java_options, local_memory

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("master", "machine", "heap"),
    [
        ("local", 16 * GIB, 512 * MIB),
        ("local[2]", 16 * GIB, 512 * MIB),
        ("local[4]", 16 * GIB, 768 * MIB),
        ("local[4, 3]", 16 * GIB, 768 * MIB),
        ("local[*]", 16 * GIB, 1024 * MIB),
        ("local[64]", 64 * GIB, 2048 * MIB),
        ("local[64]", 4 * GIB, 1024 * MIB),
        ("local[64]", 1 * GIB, 512 * MIB),
    ],
)
def test_the_heap_follows_the_cores_and_the_machine(
    master: str, machine: int, heap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1}.get(name, machine))
    assert local_memory(master) == heap


@pytest.mark.parametrize("is_local", [True, False])
def test_only_what_takes_long_is_compiled_well(is_local: bool) -> None:
    small = java_options(100 * MIB, is_local=is_local).split()
    large = java_options(GIB, is_local=is_local).split()
    assert set(small) - set(large) == {"-XX:TieredStopAtLevel=1"}
    assert set(large) < set(small)
    assert ("-XX:+UseSerialGC" in large) is is_local
