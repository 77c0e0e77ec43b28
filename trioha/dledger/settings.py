"""The limits and timers of a Raft group, each with where the number comes from."""

from __future__ import annotations

import attrs

from trioha.errors import ConfigError

TERMS_MAX = 1 << 16
"""Terms that a log may hold at once: 1 MiB in a COMPARE. One election a second for 18 hours."""
MEMBERS_MAX = 15
"""Voters and learners. Everybody is sent everything by one leader."""


@attrs.frozen(kw_only=True)
class RaftSettings:
    """How one member behaves; all members of a group should be given the same."""

    heartbeat_interval_ms: int = 150
    """DLedger's 2000 makes it take 6 s to notice a death."""
    election_timeout_min_ms: int = 1000
    """Also the time within which a majority must have been heard, and the base of the lease."""
    election_timeout_max_ms: int = 2000
    retry_ms: int = 500
    """A push without any answer for so long is taken for lost."""
    commit_delay_ms: int = 0
    """How much later a commit is told to followers that have all bytes, if none come before, nor a
    heartbeat. With 0 each commit of an idle group is a message of its own to everybody, which with
    one sender at a time is half of what followers do."""
    batch_bytes_max: int = 1 << 20
    inflight_bytes_max: int = 8 << 20
    """Sent to one follower and not yet matched: about 60 ms of a 1 Gbit/s link."""
    inflight_count_max: int = 256
    lease_reads: bool = True
    """Serve reads on a lease. Needs clocks that run on and never jump, as CLOCK_MONOTONIC does;
    where a hypervisor cannot promise that, every read asks a majority instead."""
    lease_drift_percent: int = 10
    """Clocks of two members run apart by less than this within one election timeout."""
    caught_up_bytes: int = 4 << 20
    """A transfer or a promotion is refused to who is further behind: half a second at 8 MB/s."""
    replicated_in_memory: bool = False
    """Count bytes as held once appended, not once fsynced: a power cut of a majority loses them."""
    preferred_leader_ids: tuple[str, ...] = ()
    preferred_check_ms: int = 1000
    preferred_backoff_ms_max: int = 60_000

    def __attrs_post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_ms * 2 <= self.election_timeout_min_ms:
            raise ConfigError(
                f"heartbeat of {self.heartbeat_interval_ms} ms is too rare for an election "
                f"timeout of {self.election_timeout_min_ms} ms; allow at least two in it"
            )
        if self.election_timeout_max_ms <= self.election_timeout_min_ms:
            raise ConfigError(
                f"election timeouts from {self.election_timeout_min_ms} to "
                f"{self.election_timeout_max_ms} ms leave nothing to draw from; "
                "make the longest larger than the shortest"
            )
        if min(self.batch_bytes_max, self.inflight_bytes_max, self.inflight_count_max) < 1:
            raise ConfigError("batch and window of a Raft group must be at least 1; raise them")

    @property
    def lease_ms(self) -> int:
        """For how long after a heartbeat that a majority answered nobody else can be elected."""
        return self.election_timeout_min_ms * (100 - self.lease_drift_percent) // 100
