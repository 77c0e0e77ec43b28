"""Records of past failovers: ``config/failovers.json``, the newest last."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from trioha.wire import fastjson
from trioha.wire.json_fields import list_of, object_of

RECORDS_MAX = 100


class AuditTrail:
    """Records as the engine made them; of each attempt the last one is kept."""

    def __init__(self) -> None:
        self._records: deque[Mapping[str, object]] = deque(maxlen=RECORDS_MAX)
        self.dirty = False

    @property
    def records(self) -> list[Mapping[str, object]]:
        """Oldest first."""
        return list(self._records)

    def keep(self, record: Mapping[str, object]) -> None:
        for index, known in enumerate(self._records):
            if known.get("ticket_id") == record.get("ticket_id"):
                self._records[index] = record
                break
        else:
            self._records.append(record)
        self.dirty = True

    def encode(self) -> bytes:
        return fastjson.dumps({"failovers": list(self._records)})

    def load(self, data: bytes) -> None:
        """Errors: RemoteProtocolError when it is no such table."""
        fields = object_of(fastjson.loads(data), "the audit trail")
        records = list_of(fields.get("failovers"), "failovers")
        self._records.clear()
        self._records.extend(object_of(record, "a failover") for record in records)
