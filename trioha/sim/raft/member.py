"""A member's shell: does what the core wants, on a disk and a clock that cannot be relied on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import attrs

from trioha.dledger.leader_elector import LEADER_LOST
from trioha.dledger.membership import Configuration
from trioha.dledger.messages import RaftMessage
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import (
    Control,
    HardState,
    LogReset,
    LogTruncate,
    LogWrite,
    ReadReady,
    Ready,
    Role,
)
from trioha.dledger.settings import RaftSettings
from trioha.sim.disk import Crashed
from trioha.sim.raft.disk import DATA, RaftDisk, encode, encode_control
from trioha.sim.raft.invariants import Invariants
from trioha.sim.raft.packets import PacketNetwork
from trioha.sim.scheduler import Scheduler, Timer

ROOM_MIN = 4096
"""Room in bytes below which a disk counts as full: a batch from the leader always fits."""
RESTART_MS_MAX = 4000


@attrs.define(eq=False)
class DiskWeather:
    """Delays and errors of the disks in one seed."""

    fsync_ms_max: int = 2
    stall: float = 0.0
    stall_ms_max: int = 5000
    fsync_error: float = 0.0
    save_error: float = 0.0
    crash_point: float = 0.0
    """Chance to lose power at any step of a `Ready`."""


@attrs.frozen
class Waiting:
    """A client's bytes that are not committed yet."""

    end_offset: int
    answer: Callable[[bool | None, int], None]
    """Called with True for safe or None for unknown, and the end of the record."""


class SimMember:
    """One machine: on or off."""

    def __init__(
        self,
        member_id: str,
        settings: RaftSettings,
        initial_configuration: Configuration,
        scheduler: Scheduler,
        network: PacketNetwork,
        invariants: Invariants,
        weather: DiskWeather,
        rng: Random,
        clock_rate: float,
        on_elected: Callable[[SimMember], None],
        on_first_commit: Callable[[SimMember], None],
        on_killed: Callable[[SimMember], None],
    ) -> None:
        self.member_id = member_id
        self.initial_configuration = initial_configuration
        self.disk = RaftDisk(initial_configuration)
        self.is_up = False
        self.is_retired = False
        """The member is never started again."""
        self.pending_reads: dict[int, int] = {}
        """token: what was acknowledged when it was asked for"""
        self._settings = settings
        self._scheduler = scheduler
        self._network = network
        self._invariants = invariants
        self._weather = weather
        self._rng = rng
        self._clock_rate = clock_rate
        self._on_elected = on_elected
        self._on_first_commit = on_first_commit
        self._on_killed = on_killed
        self._first_commit_of = 0
        self._committed_at_election = 0
        self._clock_ahead_ms = rng.randint(0, 100_000)
        self._node: RaftNode | None = None
        self._alarm: Timer | None = None
        self._alarm_deadline_ms = 0
        self._flushing = False
        self._untold: tuple[int, int] | None = None
        """An fsync has ended; the core hears of it with its next input."""
        self._life = 0
        self._waiting: deque[Waiting] = deque()
        self._paused_until_ms = 0
        self._inbox: list[RaftMessage] = []
        self._questions: list[Callable[[RaftNode, int], object]] = []

    @property
    def node(self) -> RaftNode:
        assert self._node is not None, f"{self.member_id} is down"
        return self._node

    @property
    def begun(self) -> bool:
        return self.is_up

    @property
    def is_leader(self) -> bool:
        return self.is_up and self.node.state.role is Role.LEADER

    def now_ms(self) -> int:
        """Return the time of this machine's clock."""
        return int(self._scheduler.now_ms * self._clock_rate) + self._clock_ahead_ms

    def start(self) -> None:
        assert not self.is_up
        self.is_up = True
        self._life += 1
        self._flushing = False
        self._untold = None
        self._paused_until_ms = 0
        self._inbox.clear()
        self._questions.clear()
        self._waiting.clear()
        self.pending_reads.clear()
        self._invariants.restarted(self.member_id)
        recovered = self.disk.recover()
        self.disk.synced_offset = recovered.end_offset
        self._node = RaftNode(
            self.member_id, self._settings, recovered, self.disk, self._rng, self.now_ms()
        )
        self._tell(f"starts: {recovered.hard_state}, log to {recovered.end_offset}")
        self._do(lambda: None)

    def stop(self, *, power: bool) -> None:
        """Kill the process, or the machine and what it had not fsynced."""
        if not self.is_up:
            return
        self.is_up = False
        gone = self.disk.lose_power(self._rng) if power else 0
        self._tell(f"loses power and {gone} records" if power else "is killed")
        if not power:
            self._on_killed(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        life = self._life
        self._scheduler.after(self._rng.randint(1, RESTART_MS_MAX), lambda: self._restart(life))

    def _restart(self, life: int) -> None:
        if not self.is_up and self._life == life and not self.is_retired:
            self.start()

    def wipe(self) -> None:
        """Lose the disk, and stop: what comes back under this name must not vote."""
        self.stop(power=False)
        self.disk = RaftDisk(self.initial_configuration)
        self.disk.hard_state = HardState(impaired=True)
        self._invariants.forgot(self.member_id)

    def pause(self, duration_ms: int) -> None:
        """SIGSTOP. The clock goes on."""
        if self.is_up:
            self._tell(f"sleeps for {duration_ms} ms")
            self._paused_until_ms = self._scheduler.now_ms + duration_ms
            life = self._life
            self._scheduler.after(duration_ms, lambda: self._wake(life))

    def jump_clock(self, jump_ms: int) -> None:
        self._clock_ahead_ms += jump_ms
        self._tell(f"clock jumps by {jump_ms} ms")

    def deliver(self, message: RaftMessage) -> None:
        if not self.is_up:
            return
        if self.is_paused:
            self._inbox.append(message)
            return
        self._do(lambda: self.node.step(message, self.now_ms()))

    def lose_peer(self, member_id: str) -> None:
        """All connections with another member have ended."""
        self.ask(lambda node, now_ms: node.peer_lost(member_id, now_ms))

    @property
    def is_paused(self) -> bool:
        return self._scheduler.now_ms < self._paused_until_ms

    @property
    def may_append(self) -> bool:
        awake = self.is_up and not self.is_paused
        return awake and self.node.may_append and self.disk.has_room(ROOM_MIN)

    def propose(self, payload: bytes, answer: Callable[[bool | None, int], None]) -> None:
        """Append a client's message. Ask `may_append` before."""
        record = encode(DATA, payload)
        end = self.disk.end_offset + len(record)
        self._waiting.append(Waiting(end, answer))

        def append() -> None:
            first = len(self.disk.ends)
            self.disk.append(record)
            self._invariants.appended(self, first, self.node.state.term)
            self.node.appended(end, self.now_ms())

        self._do(append)

    def ask(self, question: Callable[[RaftNode, int], object]) -> None:
        """Let an operator or a client ask the core; one that sleeps is asked when it wakes."""
        if self.is_paused:
            self._questions.append(question)
        elif self.is_up:
            self._do(lambda: question(self.node, self.now_ms()))

    def trim(self, begin_offset: int) -> None:
        """Retention deletes what lies before."""
        self.disk.trim(begin_offset)
        self.node.log_trimmed(begin_offset)
        self._invariants.counts["trims"] += 1

    def _wake(self, life: int) -> None:
        if self.is_up and self._life == life and not self.is_paused:
            inbox, self._inbox = self._inbox, []
            questions, self._questions = self._questions, []
            for question in questions:
                self.ask(question)
            self._do(lambda: None)
            for message in inbox:
                self.deliver(message)

    def _do(self, action: Callable[[], object]) -> None:
        """Let something happen to the core, then do what it wants."""
        try:
            self._watch_room()
            action()
            self._do_ready()
            if self._untold is not None and not self.node.state.failed:
                flushed, self._untold = self._untold, None
                self.node.flushed(*flushed, self.now_ms())
                self._do_ready()
        except Crashed as crash:
            self._invariants.counts["crash points"] += 1
            self._tell(f"dies {crash}")
            self.stop(power=True)
            return
        if self.node.state.failed:
            # A node whose disk fails ends; what it had not fsynced may be gone for ever.
            self.stop(power=True)
            return
        self._arm()

    def _do_ready(self) -> None:
        node = self.node
        while (ready := node.ready()) is not None:
            if ready.hard_state is not None and not self._save(ready):
                return
            for operation in ready.log:
                self._do_operation(operation)
            controls = [self._append_control(control) for control in ready.controls]
            self._invariants.check(self)
            self._crash_point("before it sends")
            for message in ready.messages:
                self._network.send(message)
            for soft in ready.soft_states:
                if soft.role is Role.LEADER:
                    self._committed_at_election = node.state.committed_offset
                    self._on_elected(self)
                else:
                    self._answer_unknown()
                self._tell(f"{soft.role.value} term {soft.term}: {soft.reason}")
                self._invariants.counts["early rounds"] += soft.reason == LEADER_LOST
            self._answer_committed(ready.committed_offset)
            self._answer_reads(ready.reads)
            node.advance(ready)
            for control, end in controls:
                node.control_appended(control, end, self.now_ms())
        self._flush_soon()

    def _watch_room(self) -> None:
        writable = self.disk.has_room(ROOM_MIN)
        if writable != self.node.state.writable:
            self._tell("has room again" if writable else "has a full disk")
            self.node.set_writable(writable, self.now_ms())
            self._do_ready()

    def _save(self, ready: Ready) -> bool:
        hard = ready.hard_state
        assert hard is not None
        self._crash_point("before it saves")
        if self._weather.save_error and self._rng.random() < self._weather.save_error:
            self._invariants.counts["failed saves"] += 1
            if self._rng.random() < 0.5:
                # It failed, and is there all the same: that is how disks fail.
                self.disk.hard_state = hard
            self.node.storage_failed("cannot save the vote", self.now_ms())
            return False
        self.disk.hard_state = hard
        self._invariants.saved(self.member_id, hard)
        self._crash_point("after it saved")
        return True

    def _do_operation(self, operation: LogWrite | LogTruncate | LogReset) -> None:
        disk, invariants = self.disk, self._invariants
        match operation:
            case LogWrite():
                first = len(disk.ends)
                disk.append(bytes(operation.body))
                invariants.appended(self, first, operation.term)
                if not disk.has_room(0):
                    raise Crashed("of a full disk")
            case LogTruncate():
                self._crash_point("before it cuts")
                invariants.about_to_cut(self, operation.phy_offset)
                disk.truncate(operation.phy_offset)
                self._tell(f"cuts its log at {operation.phy_offset}")
                self._crash_point("after it cut")
            case LogReset():
                invariants.about_to_cut(self, operation.begin_offset)
                invariants.counts["installs"] += 1
                disk.reset(operation, invariants.committed_chain(operation.begin_offset))
                self._tell(f"empties its log, begins at {operation.begin_offset}")
                self._crash_point("after it emptied its log")

    def _append_control(self, control: Control) -> tuple[Control, int]:
        first = len(self.disk.ends)
        self.disk.append(encode_control(control, self.disk.end_offset))
        self._invariants.appended(self, first, control.term)
        return control, self.disk.end_offset

    def _flush_soon(self) -> None:
        disk, weather, rng = self.disk, self._weather, self._rng
        if self._flushing or disk.synced_offset >= disk.end_offset:
            return
        self._flushing = True
        delay_ms = rng.randint(0, weather.fsync_ms_max)
        if weather.stall and rng.random() < weather.stall:
            delay_ms = rng.randint(1, weather.stall_ms_max)
        end, cut_count, life = disk.end_offset, self.node.state.cut_count, self._life
        self._scheduler.after(delay_ms, lambda: self._flushed(end, cut_count, life))

    def _flushed(self, end: int, cut_count: int, life: int) -> None:
        if not self.is_up or self._life != life:
            return
        self._flushing = False
        if self._weather.fsync_error and self._rng.random() < self._weather.fsync_error:
            self._invariants.counts["failed fsyncs"] += 1
            self._do(lambda: self.node.storage_failed("fsync failed", self.now_ms()))
            return
        if cut_count == self.node.state.cut_count:
            self.disk.synced_offset = max(self.disk.synced_offset, end)
        if self.is_paused:
            # The kernel has fsynced; the process hears of it when it wakes.
            left = self._paused_until_ms - self._scheduler.now_ms
            self._flushing = True
            self._scheduler.after(left + 1, lambda: self._flushed(end, cut_count, life))
            return
        self._untold = (end, cut_count)
        if self.node.awaits_flush or self.disk.end_offset > end:
            self._do(lambda: None)

    def _answer_committed(self, committed_offset: int) -> None:
        state = self.node.state
        if (
            state.role is Role.LEADER
            and self._first_commit_of != state.term
            and state.committed_offset > self._committed_at_election
        ):
            self._first_commit_of = state.term
            self._on_first_commit(self)
        while self._waiting and self._waiting[0].end_offset <= committed_offset:
            waiting = self._waiting.popleft()
            self._invariants.acknowledged(waiting.end_offset)
            waiting.answer(True, waiting.end_offset)

    def _answer_unknown(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer(None, one.end_offset)

    def _answer_reads(self, reads: tuple[ReadReady, ...]) -> None:
        for read in reads:
            acknowledged_before = self.pending_reads.pop(read.token)
            if read.committed_offset >= 0:
                self._invariants.read(self.member_id, read.committed_offset, acknowledged_before)

    def _arm(self) -> None:
        """Wake the core at its deadline, by this machine's clock."""
        deadline_ms = self.node.next_deadline_ms
        if self._alarm is not None and self._alarm.action is not None:
            if self._alarm_deadline_ms == deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_deadline_ms = deadline_ms
        delay_ms = max(0, int((deadline_ms - self.now_ms()) / self._clock_rate) + 1)
        self._alarm = self._scheduler.after(delay_ms, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if not self.is_up:
            return
        if self.is_paused:
            left = self._paused_until_ms - self._scheduler.now_ms
            self._alarm = self._scheduler.after(left, self._on_alarm)
            return
        self._do(lambda: self.node.on_time(max(self.now_ms(), 0)))

    def _crash_point(self, where: str) -> None:
        chance = self._weather.crash_point
        if chance and self._rng.random() < chance:
            raise Crashed(where)

    def _tell(self, text: str) -> None:
        self._scheduler.tell(self.member_id, text)
