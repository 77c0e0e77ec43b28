"""The table of slaves that follow a master (HAService.java, its connectionList).

`push2slave_max_offset` is the highest offset that any slave has acknowledged: a put at or below it
is on a second machine. It never falls in a term of mastership, since bytes that were copied stay
copied; a new term starts from nothing, and links of an older one are gone by then. RocketMQ raises
it by whatever number arrives; here only acks that `MasterConnection` has checked get in.
`push2slave_max_metadata` is the same for what is not in the log, on extended links.

A put waits for a slave only while one is in sync. A slave is *in sync* from its first report that
is less than `LEVEL_BYTES` behind, until it is `haSlaveFallbehindMax` behind, its link ends, or it
stalls. RocketMQ lets puts wait for any connection, also for one that has gigabytes to copy.

A slave that is sent bytes and acknowledges none has a full disk, a stopped process or a dead cable.
After `stall_ms_min` it has *stalled*: it is not in sync until its next ack. A slave known to be
slow gets more time, eight times its slowest answer of the last minutes, but no more than
`slaveTimeout`. A suspicion that comes too soon loses nothing: waiting sends get a true answer, and
the link stays.

Nothing ticks while links are idle: there is one deadline for what must be said or noticed next
(progress once a second, a late report, a stall), and traffic or a slave that is behind creates it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

from trioha.journal import EventSink
from trioha.journal.line_limits import LineLimits

PROGRESS_INTERVAL_MS: Final = 1000
LEVEL_BYTES: Final = 1 << 20
STALL_MIN_MS: Final = 900  # a put that meets a stopped slave is answered within a second
STALL_PATIENCE: Final = 8
SLOWNESS_REMEMBERED_MS: Final = 60_000  # and at most twice that
_FOREVER_MS: Final = 1 << 62
REFUSALS_KEPT: Final = 8  # shown by `ha status`; the journal has them all
HOSTS_KEPT: Final = 64  # at most so many slaves; the most recent stay


@attrs.frozen
class ReplicaStatistics:
    """One link as `ha status` shows it."""

    peer: str
    slave_ack_offset: int
    """-1 until the slave has reported."""
    gap_bytes: int
    in_sync: bool
    last_ack_age_s: float
    heartbeat_interval_s: float
    housekeeping_s: float
    transferred_bytes_per_s: int
    connected_s: float
    reconnects: int
    """Links from the same host before this one."""
    last_error: str
    """Reason why the last link or attempt from the same host ended; "" when none has."""
    last_error_age_s: float | None
    doubt: str
    """Reason to doubt that the slave's log is this master's; "" for none. It may follow."""
    home_id: int | None = None
    """The slave's configured brokerId, on an extended link."""
    epoch: int = 0
    """Epoch of an extended link; 0 for a classic one."""
    metadata_ack_position: int = -1


@attrs.frozen
class AbsentHost:
    """A host from which a slave followed before."""

    host: str
    links: int
    last_error: str
    last_error_age_s: float


@attrs.frozen
class RefusedPeer:
    """A rejected peer and the reason."""

    peer: str
    reason: str
    at_ms: int


@attrs.define(eq=False)
class _Host:
    """Record of the links from one host. A slave's port changes with each link."""

    links: int = 0
    last_error: str = ""
    last_error_ms: int | None = None


class SlaveReplica:
    """One link. Changed by `Replicas` only."""

    def __init__(self, peer: str, now_ms: int, stall_ms: int) -> None:
        self.peer: Final = peer
        self.connected_ms: Final = now_ms
        self.last_ack_ms = now_ms
        self.slave_ack_offset = -1
        self.next_transfer_offset = -1
        self.in_sync = False
        self.stalled = False
        self.late = False
        self.waiting_since_ms: int | None = None
        """Since when bytes have been on their way without any ack."""
        self.stall_ms = stall_ms
        """Milliseconds without progress after which the link counts as stalled."""
        self.slowest_ms = 0
        """The longest it took since `slowest_since_ms`; `slowest_before_ms` in the time before."""
        self.slowest_before_ms = 0
        self.slowest_since_ms = now_ms
        self.told_ms = now_ms
        self.told_offsets = (-1, -1)
        """(slave_ack_offset, max_phy_offset) of the last ha_progress."""
        self.rate_since_ms = now_ms
        self.rate_bytes = 0
        self.rate_before = 0
        self.links_before = 0
        self.doubt = ""
        self.epoch = 0
        self.home_id: int | None = None
        self.metadata_ack_position = -1
        """-1 until the slave has taken the snapshot that an extended link begins with."""


class Replicas:
    """Every link to a slave, and what all of them together allow."""

    def __init__(
        self,
        events: EventSink,
        *,
        fallbehind_max: int,
        heartbeat_interval_ms: int,
        housekeeping_ms: int,
        stall_ms_max: int,
        stall_ms_min: int = STALL_MIN_MS,
    ) -> None:
        self.by_quorum = False
        self.push2slave_max_offset = 0
        """Highest acknowledged offset. Never falls within a term."""
        self.transferred_bytes = 0
        """Bytes sent to all slaves since the start."""
        self.push2slave_max_metadata = -1
        """Highest acknowledged position of metadata; -1 for none."""
        self.refusals: deque[RefusedPeer] = deque(maxlen=REFUSALS_KEPT)
        self._events = events
        self._lines = LineLimits(events)
        self._fallbehind_max = fallbehind_max
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._housekeeping_ms = housekeeping_ms
        self._level_bytes = min(LEVEL_BYTES, fallbehind_max)
        self._stall_ms_max = stall_ms_max
        self._stall_ms_min = min(stall_ms_min, stall_ms_max)
        self._replicas: list[SlaveReplica] = []
        self._hosts: dict[str, _Host] = {}
        # Perhaps earlier than necessary, never later: traffic only brings the deadline nearer.
        self._next_deadline_ms = _FOREVER_MS

    def __len__(self) -> int:
        return len(self._replicas)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which to call `on_time`; None while nothing is to be told."""
        return self._next_deadline_ms if self._next_deadline_ms < _FOREVER_MS else None

    def slave_available(self, need_offset: int) -> bool:
        """Is there a slave that can be expected to acknowledge `need_offset` soon?"""
        behind = need_offset - self._fallbehind_max
        for replica in self._replicas:
            if replica.in_sync and replica.slave_ack_offset > behind:
                return True
        return False

    def begin_term(self) -> None:
        """Begin a term of this master: acknowledgements of older terms do not count."""
        self.push2slave_max_offset, self.push2slave_max_metadata = 0, -1

    @property
    def metadata_available(self) -> bool:
        """Is there a slave that can be expected to acknowledge a change of metadata soon?"""
        for replica in self._replicas:
            if replica.in_sync and replica.metadata_ack_position >= 0:
                return True
        return False

    def connect(self, peer: str, now_ms: int) -> SlaveReplica:
        replica = SlaveReplica(peer, now_ms, self._stall_ms_min)
        self._replicas.append(replica)
        return replica

    def disconnect(self, replica: SlaveReplica, max_phy_offset: int) -> None:
        self._replicas.remove(replica)
        if replica.slave_ack_offset >= 0:
            self._tell_offsets(replica, max_phy_offset)
        replica.slave_ack_offset, last = -1, replica.slave_ack_offset
        self._set_in_sync(replica, False, max_phy_offset - last)

    def refuse(self, peer: str, reason: str, now_ms: int) -> None:
        """Note that a peer was rejected, for the journal and the status."""
        self.refusals.append(RefusedPeer(peer, reason, now_ms))
        self._note_end(peer, reason, now_ms)
        host = peer.rpartition(":")[0]
        self._lines.event("ha_refused", host, now_ms, peer=peer, reason=reason)

    def lose(self, peer: str, reason: str, now_ms: int) -> None:
        """Note that the link of a slave that had reported has ended."""
        self._note_end(peer, reason, now_ms)
        self._events.event("ha_disconnected", peer=peer, reason=reason)

    def doubt(self, replica: SlaveReplica, reason: str) -> None:
        """Note that the slave's log may differ from ours; the slave is served all the same."""
        replica.doubt = reason
        self._events.event("ha_doubtful", peer=replica.peer, reason=reason)

    def open_extended(self, replica: SlaveReplica, epoch: int, home_id: int) -> None:
        """Note that the slave has opened an extended link."""
        replica.epoch, replica.home_id = epoch, home_id

    def acknowledge(
        self,
        replica: SlaveReplica,
        offset: int,
        max_phy_offset: int,
        now_ms: int,
        metadata_position: int = -1,
    ) -> None:
        """A checked report arrived."""
        if replica.late:
            replica.late = False
            gap_ms = now_ms - replica.last_ack_ms
            self._events.event("ha_heartbeat_resumed", peer=replica.peer, gap_ms=gap_ms)
        replica.last_ack_ms = now_ms
        if replica.slave_ack_offset < 0:
            host = self._host(replica.peer)
            replica.links_before = host.links
            host.links += 1
        self.count_acknowledged(offset, metadata_position)
        if metadata_position > replica.metadata_ack_position:
            replica.metadata_ack_position = metadata_position
        if offset > replica.slave_ack_offset:
            replica.slave_ack_offset = offset
            if replica.waiting_since_ms is not None:
                waited_ms = now_ms - replica.waiting_since_ms
                if waited_ms > replica.slowest_ms:
                    replica.slowest_ms = waited_ms
                    self._set_stall_ms(replica)
            more = replica.next_transfer_offset > offset
            replica.waiting_since_ms = now_ms if more else None
            replica.stalled = False
            self._alarm_at(replica.told_ms + PROGRESS_INTERVAL_MS)
        self._alarm_at(now_ms + 2 * self._heartbeat_interval_ms)
        if not replica.in_sync:
            self._judge(replica, max_phy_offset)

    def count_acknowledged(self, offset: int, metadata_position: int) -> None:
        """Count every byte below `offset` and every change up to the position as on a slave.

        By a slave's checked report, or by the target's word in a planned switch, which may reach
        this node before the target's own report does.
        """
        if metadata_position > self.push2slave_max_metadata:
            self.push2slave_max_metadata = metadata_position
        if offset > self.push2slave_max_offset:
            self.push2slave_max_offset = offset

    def transferred(
        self, replica: SlaveReplica, size: int, next_transfer_offset: int, now_ms: int
    ) -> None:
        """`size` bytes, up to `next_transfer_offset`, are on their way to the slave."""
        replica.rate_bytes += size
        self.transferred_bytes += size
        replica.next_transfer_offset = next_transfer_offset
        if replica.waiting_since_ms is None:
            replica.waiting_since_ms = now_ms
            self._alarm_at(now_ms + replica.stall_ms)
        self._alarm_at(replica.told_ms + PROGRESS_INTERVAL_MS)
        if now_ms - replica.rate_since_ms >= PROGRESS_INTERVAL_MS:
            self._roll_rate(replica, now_ms)

    def on_time(self, max_phy_offset: int, now_ms: int) -> None:
        """Say and notice what is due; sets the next deadline exactly."""
        self._next_deadline_ms = _FOREVER_MS
        for replica in self._replicas:
            if replica.slave_ack_offset >= 0:
                self._notice_stall(replica, now_ms)
                self._judge(replica, max_phy_offset)
                self._notice_lateness(replica, now_ms)
                self._tell_progress(replica, max_phy_offset, now_ms)

    def statistics(self, max_phy_offset: int, now_ms: int) -> tuple[ReplicaStatistics, ...]:
        return tuple(
            self._statistics_of(replica, max_phy_offset, now_ms) for replica in self._replicas
        )

    def absent(self, now_ms: int) -> tuple[AbsentHost, ...]:
        """Hosts that slaves followed from and that no link is from now."""
        present = {_host_of(replica.peer) for replica in self._replicas}
        return tuple(
            AbsentHost(name, host.links, host.last_error, (now_ms - host.last_error_ms) / 1000)
            for name, host in self._hosts.items()
            if host.links and host.last_error_ms is not None and name not in present
        )

    def _statistics_of(
        self, replica: SlaveReplica, max_phy_offset: int, now_ms: int
    ) -> ReplicaStatistics:
        host = self._hosts.get(_host_of(replica.peer), _Host())
        error_ms = host.last_error_ms
        return ReplicaStatistics(
            peer=replica.peer,
            slave_ack_offset=replica.slave_ack_offset,
            gap_bytes=max_phy_offset - max(0, replica.slave_ack_offset),
            in_sync=replica.in_sync and self._follows(replica, max_phy_offset),
            last_ack_age_s=(now_ms - replica.last_ack_ms) / 1000,
            heartbeat_interval_s=self._heartbeat_interval_ms / 1000,
            housekeeping_s=self._housekeeping_ms / 1000,
            transferred_bytes_per_s=self._rate(replica, now_ms),
            connected_s=(now_ms - replica.connected_ms) / 1000,
            reconnects=replica.links_before,
            last_error=host.last_error,
            last_error_age_s=None if error_ms is None else (now_ms - error_ms) / 1000,
            doubt=replica.doubt,
            home_id=replica.home_id,
            epoch=replica.epoch,
            metadata_ack_position=replica.metadata_ack_position,
        )

    def _host(self, peer: str) -> _Host:
        """Return the record of a peer's host, and make it the most recent one."""
        name = _host_of(peer)
        host = self._hosts[name] = self._hosts.pop(name, _Host())
        if len(self._hosts) > HOSTS_KEPT:
            del self._hosts[next(iter(self._hosts))]
        return host

    def _note_end(self, peer: str, reason: str, now_ms: int) -> None:
        host = self._host(peer)
        host.last_error, host.last_error_ms = reason, now_ms

    def _alarm_at(self, deadline_ms: int) -> None:
        if deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms

    def _notice_stall(self, replica: SlaveReplica, now_ms: int) -> None:
        if now_ms - replica.slowest_since_ms >= SLOWNESS_REMEMBERED_MS:
            replica.slowest_before_ms, replica.slowest_ms = replica.slowest_ms, 0
            replica.slowest_since_ms = now_ms
            self._set_stall_ms(replica)
        if replica.waiting_since_ms is not None and not replica.stalled:
            due_ms = replica.waiting_since_ms + replica.stall_ms
            replica.stalled = now_ms >= due_ms
            if not replica.stalled:
                self._alarm_at(due_ms)

    def _set_stall_ms(self, replica: SlaveReplica) -> None:
        known_ms = STALL_PATIENCE * max(replica.slowest_ms, replica.slowest_before_ms)
        replica.stall_ms = max(self._stall_ms_min, min(known_ms, self._stall_ms_max))

    def _notice_lateness(self, replica: SlaveReplica, now_ms: int) -> None:
        if replica.late:
            return
        age_ms = now_ms - replica.last_ack_ms
        replica.late = age_ms >= 2 * self._heartbeat_interval_ms
        if replica.late:
            self._events.event("ha_heartbeat_late", peer=replica.peer, age_ms=age_ms)
        else:
            self._alarm_at(replica.last_ack_ms + 2 * self._heartbeat_interval_ms)

    def _tell_progress(self, replica: SlaveReplica, max_phy_offset: int, now_ms: int) -> None:
        offsets = (replica.slave_ack_offset, max_phy_offset)
        due_ms = replica.told_ms + PROGRESS_INTERVAL_MS
        if now_ms < due_ms:
            if offsets != replica.told_offsets:
                self._alarm_at(due_ms)
            return
        if replica.slave_ack_offset < max_phy_offset:
            # A slave that takes nothing makes no events, while its gap grows.
            self._alarm_at(now_ms + PROGRESS_INTERVAL_MS)
        if offsets != replica.told_offsets:
            replica.told_ms = now_ms
            self._tell_offsets(replica, max_phy_offset)

    def _tell_offsets(self, replica: SlaveReplica, max_phy_offset: int) -> None:
        """Write to the journal how far the slave is, if that is not there yet."""
        offsets = (replica.slave_ack_offset, max_phy_offset)
        if offsets == replica.told_offsets:
            return
        replica.told_offsets = offsets
        self._events.event(
            "ha_progress",
            peer=replica.peer,
            ack_offset=offsets[0],
            max_phy_offset=max_phy_offset,
            gap_bytes=max_phy_offset - offsets[0],
        )

    def _follows(self, replica: SlaveReplica, max_phy_offset: int) -> bool:
        allowed_bytes = self._fallbehind_max if replica.in_sync else self._level_bytes
        return (
            replica.slave_ack_offset >= 0
            and not replica.stalled
            and max_phy_offset - replica.slave_ack_offset < allowed_bytes
        )

    def _judge(self, replica: SlaveReplica, max_phy_offset: int) -> None:
        in_sync = self._follows(replica, max_phy_offset)
        self._set_in_sync(replica, in_sync, max_phy_offset - replica.slave_ack_offset)

    def _set_in_sync(self, replica: SlaveReplica, in_sync: bool, gap_bytes: int) -> None:
        if in_sync is not replica.in_sync:
            replica.in_sync = in_sync
            self._events.event(
                "ha_in_sync", peer=replica.peer, in_sync=in_sync, gap_bytes=gap_bytes
            )

    def _roll_rate(self, replica: SlaveReplica, now_ms: int) -> None:
        elapsed_ms = now_ms - replica.rate_since_ms
        replica.rate_before = replica.rate_bytes * 1000 // elapsed_ms
        replica.rate_bytes, replica.rate_since_ms = 0, now_ms

    def _rate(self, replica: SlaveReplica, now_ms: int) -> int:
        """Return the last full second's rate, or the rate since its end if that is longer ago."""
        elapsed_ms = now_ms - replica.rate_since_ms
        if elapsed_ms >= PROGRESS_INTERVAL_MS:
            return replica.rate_bytes * 1000 // elapsed_ms
        return replica.rate_before


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]
