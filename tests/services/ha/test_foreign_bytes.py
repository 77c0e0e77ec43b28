"""A master whose bytes are no records: its slave lives, says why, and follows when they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes.virtual_set import VirtualSet, virtual_set, without_waits
from trio.testing import MockClock

from trioha.store.message_store import FileMessageStore


def spoil_next_bytes(set_: VirtualSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change what the slave, broker 1, appends next: a record without its magic code."""
    append_log = FileMessageStore.append_log

    def spoilt(store: FileMessageStore, phy_offset: int, data: bytes | memoryview) -> None:
        if store is set_[1].node.store:
            monkeypatch.setattr(FileMessageStore, "append_log", append_log)
            data = bytes(data[:4]) + b"\0\0\0\0" + bytes(data[8:])
        append_log(store, phy_offset, data)

    monkeypatch.setattr(FileMessageStore, "append_log", spoilt)


async def test_a_slave_cuts_off_what_is_no_record_and_asks_for_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    without_waits(monkeypatch)
    async with virtual_set(tmp_path, 2) as set_:
        await set_.send_ok(0)
        sound = set_[1].node.store.max_phy_offset
        spoil_next_bytes(set_, monkeypatch)
        await set_.send(0)
        slave = set_[1]
        await set_.wait(lambda: slave.events.of("log_cut"))
        (cut,) = slave.events.of("log_cut")
        assert cut["from_offset"] == sound
        await set_.wait(lambda: slave.events.of("ha_refused"))
        reason = str(slave.events.of("ha_refused")[-1]["reason"])
        assert f"from offset {sound} on are no record" in reason
        assert "trioha log verify" in reason
        await set_.check_converged(0)
