"""Lines that peers cause: each host has its own, no flood fills the journal, none is uncounted."""

from __future__ import annotations

from trioha.journal.line_limits import HOSTS_MAX, INTERVAL_MS, LINES_MAX, LineLimits
from trioha.testing.recorded_events import RecordedEvents


def test_a_flood_of_one_host_hides_no_other_and_is_counted() -> None:
    events = RecordedEvents()
    limits = LineLimits(events)
    for port in range(1000):
        limits.event(
            "ha_refused", "10.0.0.1", port, peer=f"10.0.0.1:{port}", reason=f"no proof {port}"
        )
    limits.event("ha_refused", "10.0.0.2", 1000, peer="10.0.0.2:1", reason="no proof")
    told = events.of("ha_refused")
    assert len(told) == LINES_MAX + 1
    assert told[-1] == {"peer": "10.0.0.2:1", "reason": "no proof"}
    limits.event("ha_refused", "10.0.0.1", INTERVAL_MS, peer="10.0.0.1:7", reason="again")
    left_out = 1000 - LINES_MAX
    assert events.of("ha_refused")[-1] == {
        "peer": "10.0.0.1:7",
        "reason": "again",
        "left_out": left_out,
    }


def test_many_hosts_share_the_lines_of_one() -> None:
    events = RecordedEvents()
    limits = LineLimits(events)
    for host in range(10 * HOSTS_MAX):
        for _ in range(2 * LINES_MAX):
            limits.event(
                "connection_closed",
                f"[fd00::{host:x}]",
                5,
                peer=f"[fd00::{host:x}]:1",
                reason="no frame",
            )
    assert len(limits._hosts) <= HOSTS_MAX + 1
    told = events.of("connection_closed")
    assert len(told) == (HOSTS_MAX + 1) * LINES_MAX
    limits.event(
        "connection_closed", "10.0.0.1", INTERVAL_MS + 5, peer="10.0.0.1:1", reason="no frame"
    )
    limits.event("connection_closed", "", INTERVAL_MS + 5, reason="no frame")
    told = events.of("connection_closed")
    all_of_them = 10 * HOSTS_MAX * 2 * LINES_MAX + 2
    assert len(told) + sum(int(str(line.get("left_out", 0))) for line in told) == all_of_them
