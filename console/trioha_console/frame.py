"""One moment as the screens get it."""

from __future__ import annotations

import attrs

from trioha.watch.history import History
from trioha.watch.snapshot import ClusterSnapshot


@attrs.frozen
class Frame:
    """A snapshot of the cluster, and the history before it."""

    snapshot: ClusterSnapshot
    history: History
    live: bool

    @property
    def wall_ms(self) -> int:
        return self.snapshot.at_wall_ms
