"""Limits and timers of a Raft group, each with the source of its number."""

from __future__ import annotations

from typing import Final

import attrs

from trioha.errors import ConfigError

TERMS_MAX: Final = 1 << 16
"""Terms that a log may hold at once: 1 MiB in a COMPARE. One election a second for 18 hours."""
TERM_ROOM: Final = 1 << 32
"""Most that a message's term may exceed this member's: one election a second for 136 years. The
field of a term is 65,536 times as large, so one false term brings no group to its end."""
MEMBERS_MAX: Final = 15
"""Voters and learners together. One leader sends the whole log to each of them."""


@attrs.frozen(kw_only=True)
class RaftSettings:
    """Settings of one member; all members of a group should have the same."""

    heartbeat_interval_ms: int = 150
    """DLedger's 2000 ms make it take 6 s to notice a dead leader."""
    election_timeout_min_ms: int = 1000
    """A leader must also hear a majority within this time, and the lease derives from it."""
    election_timeout_max_ms: int = 2000
    retry_ms: int = 500
    """A push without any answer for so long counts as lost."""
    push_delay_ms: int = 0
    """Delay of pushes that no put waits for: of bytes to a follower that no majority needs at the
    moment, and of a commit to a follower that has all bytes, unless later bytes or a heartbeat
    carry it earlier. With 0 every follower gets each append and each commit at once. With one
    sender at a time most of that is work that delays the next put."""
    batch_bytes_max: int = 1 << 20
    inflight_bytes_max: int = 8 << 20
    """Bytes sent to one follower and not yet matched: about 60 ms of a 1 Gbit/s link."""
    inflight_count_max: int = 256
    early_election: bool = True
    """A follower whose connections with the leader have all ended, as they do when its process
    dies, stands once no lease can be left, and not only after an election timeout."""
    lease_reads: bool = True
    """Serve reads on a lease. This needs clocks that never stop or jump, like CLOCK_MONOTONIC.
    Where a hypervisor cannot promise that, set it to False: every read asks a majority then."""
    lease_drift_percent: int = 10
    """Two members' clocks drift apart by less than this within one election timeout."""
    caught_up_bytes: int = 4 << 20
    """A member further behind is not promoted, nor handed the leadership: half a second at
    8 MB/s."""
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
    def promise_ms(self) -> int:
        """Time after a heartbeat in which its receiver votes for no other, whatever it learns."""
        if self.early_election:
            return 2 * self.heartbeat_interval_ms
        return self.election_timeout_min_ms

    @property
    def lease_ms(self) -> int:
        """Time in which no other member is elected, from the sending of a heartbeat that a
        majority answered."""
        return self.promise_ms * (100 - self.lease_drift_percent) // 100
