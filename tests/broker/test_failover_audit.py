from __future__ import annotations

import pytest

from trioha.broker.failover_audit import RECORDS_MAX, AuditTrail
from trioha.errors import RemoteProtocolError


def test_the_last_word_on_an_attempt_is_what_is_kept() -> None:
    trail = AuditTrail()
    trail.keep({"ticket_id": "1", "result": "unknown"})
    trail.keep({"ticket_id": "2", "result": "done"})
    trail.keep({"ticket_id": "1", "result": "done"})
    assert [record["result"] for record in trail.records] == ["done", "done"]
    again = AuditTrail()
    again.load(trail.encode())
    assert again.records == trail.records
    assert trail.dirty


def test_the_oldest_make_room() -> None:
    trail = AuditTrail()
    for number in range(RECORDS_MAX + 5):
        trail.keep({"ticket_id": str(number)})
    assert [trail.records[0]["ticket_id"], len(trail.records)] == ["5", RECORDS_MAX]


def test_what_is_no_trail_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        AuditTrail().load(b'{"failovers": [1]}')
