"""What the produce benchmark is told, and what it tells."""

from __future__ import annotations

import attrs

from trioha.bench.histogram import LatencySummary
from trioha.wire.codes import SerializeType


@attrs.frozen(kw_only=True)
class ProduceOptions:
    """What is sent, and how."""

    group: str = "trioha_bench"
    size: int = 128
    batch: int = 1
    concurrency: int = 64
    connections: int = 1
    """Per broker."""
    rate: float = 0.0
    """Sends per second of an open loop; 0: a closed loop."""
    seconds: float = 10.0
    count: int = 0
    """Messages to measure; 0: as many as fit into `seconds`."""
    warm_up_s: float = 2.0
    serialize_type: SerializeType = SerializeType.JSON
    id_prefix: str = "0" * 24
    """First 24 digits of every UNIQ_KEY."""


@attrs.frozen(kw_only=True)
class ProduceReport:
    """What a run measured, after its warm-up."""

    messages: int
    seconds: float
    messages_per_s: float
    body_mb_per_s: float
    send_latency: LatencySummary
    refusals: dict[int, int]
    """Response codes other than 0, the whole run."""
    unanswered: int
    client_cpu_us_per_message: float
