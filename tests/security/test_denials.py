"""Journal lines of rejected requests: each reason is seen, and no flood fills the journal."""

from __future__ import annotations

from trioha.security.denials import AGAIN_MS, KEPT_MAX, KEPT_OF_ONE_MAX, Denials
from trioha.testing.recorded_events import RecordedEvents


def test_the_same_reason_has_one_line_a_minute_with_its_count() -> None:
    events = RecordedEvents()
    denials = Denials(events)
    for now_ms in (0, 1, 2, AGAIN_MS - 1, AGAIN_MS):
        denials.add(f"10.0.0.1:{now_ms + 1}", 310, "No accessKey is configured", now_ms)
    told = events.of("acl_denied")
    assert [line["count"] for line in told] == [1, 4]
    assert told[0] == {
        "peer": "10.0.0.1",
        "code": 310,
        "reason": "No accessKey is configured",
        "count": 1,
    }
    denials.add("10.0.0.2:1", 310, "No accessKey is configured", AGAIN_MS)
    assert len(events.of("acl_denied")) == 3


def test_a_flood_of_reasons_has_a_limit_a_minute_and_hides_no_other_host() -> None:
    events = RecordedEvents()
    denials = Denials(events)
    for number in range(10 * KEPT_MAX):
        denials.add("10.0.0.1:1", 310, f"No acl config for {number}", number)
    assert len(events.of("acl_denied")) == KEPT_OF_ONE_MAX + 1
    assert events.of("acl_denied")[-1]["reason"] == "other reasons"
    denials.add("10.0.0.2:1", 310, "No accessKey is configured", 10 * KEPT_MAX)
    assert events.of("acl_denied")[-1]["peer"] == "10.0.0.2"
    denials.add("10.0.0.1:1", 310, "another", 2 * AGAIN_MS)
    assert events.of("acl_denied")[-1]["reason"] == "another"


def test_a_flood_of_hosts_has_a_limit_a_minute() -> None:
    events = RecordedEvents()
    denials = Denials(events)
    for number in range(10 * KEPT_MAX):
        denials.add(f"10.0.{number >> 8}.{number & 255}:1", 310, "No accessKey", number)
    assert len(events.of("acl_denied")) == KEPT_MAX
    denials.add("10.1.0.1:1", 310, "No accessKey", 2 * AGAIN_MS)
    assert events.of("acl_denied")[-1]["peer"] == "10.1.0.1"


def test_the_addresses_of_one_ipv6_network_are_one_origin() -> None:
    events = RecordedEvents()
    denials = Denials(events)
    for number in range(2, 100):
        denials.add(f"[2001:db8::{number:x}]:1", 310, "No accessKey is configured", number)
    denials.add("2001:db8::1:1", 310, "No accessKey is configured", AGAIN_MS + 50)
    denials.add("[::ffff:10.0.0.7]:1", 310, "No accessKey is configured", AGAIN_MS + 50)
    assert [(line["peer"], line["count"]) for line in events.of("acl_denied")] == [
        ("2001:db8::/64", 1),
        ("2001:db8::/64", 98),
        ("10.0.0.7", 1),
    ]


def test_what_a_stranger_sent_commands_no_terminal() -> None:
    events = RecordedEvents()
    Denials(events).add("10.0.0.1:1", 310, "No acl config for \x1b[2J\x07\u202e" + "x" * 999, 0)
    (line,) = events.of("acl_denied")
    assert str(line["reason"]).startswith("No acl config for ?[2J??xxx")
    assert len(str(line["reason"])) == 300
