"""The settings that every benchmark takes, and the result that it gives."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class BenchSetup:
    """The cluster, the topic and the message size. Sizes in bytes."""

    namesrv: str | None
    role: str
    slaves: int
    settings: tuple[str, ...]
    topic: str
    queues: int
    size: int
    quiet: bool
    """No progress on stderr."""

    def facts(self) -> dict[str, object]:
        """The settings that a report repeats."""
        cluster: dict[str, object] = {"namesrv": self.namesrv}
        if self.namesrv is None:
            cluster = {"role": self.role, "slaves": self.slaves}
            cluster |= {"settings": " ".join(self.settings)} if self.settings else {}
        return {**cluster, "size": self.size, "queues": self.queues}


@attrs.frozen
class BenchResult:
    """The figures of one run."""

    bench: str
    setup: Mapping[str, object]
    report: attrs.AttrsInstance
