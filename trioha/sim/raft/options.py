"""Options of one seed: drawn, printed, and the same for ever.

Swarm: every family of faults is off with probability one half, so that rare combinations are not
drowned by common ones. A change of a draw raises `GENERATOR`: seeds mean something else then.
"""

from __future__ import annotations

from random import Random

import attrs

from trioha.dledger.settings import RaftSettings
from trioha.sim.raft.member import DiskWeather
from trioha.sim.raft.packets import PacketWeather

GENERATOR = 4

CUT_KINDS = ("one", "halves", "one-way", "bridge", "ring")


@attrs.frozen(kw_only=True)
class Options:
    """One seed, spelled out."""

    seed: int
    member_count: int
    duration_ms: int
    settings: RaftSettings
    packets: PacketWeather
    disk: DiskWeather
    clock_drift: float
    """Rates lie within 1 ± this."""
    clock_jumps: bool
    cuts: bool
    assassin: bool
    """New leaders are struck right after their election, when most is undecided."""
    kills: bool
    hang_ups: bool
    """Members learn when connections end, and elect early; connections also end for no reason."""
    power_losses: bool
    pauses: bool
    full_disks: bool
    transfers: bool
    membership: bool
    trims: bool
    wipes: bool
    damage: bool
    fault_gap_ms: int
    """Mean time between two faults."""
    client_count: int
    client_pause_ms_max: int
    """0 for a group that stays idle."""
    client_timeout_ms: int

    @property
    def all_disks_whole(self) -> bool:
        """No disk forgets what it had fsynced."""
        return not (self.wipes or self.damage or self.settings.replicated_in_memory)


def draw_options(seed: int) -> Options:
    rng = Random(f"options {seed}")

    def on() -> bool:
        return rng.random() < 0.5

    latency_max = int(2 ** rng.uniform(0, 6))
    packets = PacketWeather(
        latency_ms_min=1,
        latency_ms_max=latency_max,
        loss=rng.choice((0.01, 0.05, 0.3)) if on() else 0.0,
        duplicate=rng.uniform(0, 0.05) if on() else 0.0,
        spike=rng.choice((0.005, 0.05)) if on() else 0.0,
        stray=rng.choice((0.001, 0.01)) if on() else 0.0,
    )
    faulty = on()
    disk = DiskWeather(
        fsync_ms_max=int(2 ** rng.uniform(0, 6)),
        stall=0.02 if on() else 0.0,
        fsync_error=0.001 if faulty and on() else 0.0,
        save_error=0.02 if faulty and on() else 0.0,
        crash_point=rng.choice((0.0005, 0.003)) if on() else 0.0,
    )
    member_count = 3 if rng.random() < 0.7 else 5
    clock_jumps = on()
    # Not drawn: seeds that were kept before there were hang-ups are none of these.
    hang_ups = seed % 7 > 3
    settings = RaftSettings(
        lease_reads=not clock_jumps,
        batch_bytes_max=rng.choice((60, 400, 2000)),
        inflight_bytes_max=rng.choice((500, 4000)),
        inflight_count_max=rng.choice((1, 2, 16)),
        caught_up_bytes=2000,
        preferred_leader_ids=("n1",) if rng.random() < 0.2 else (),
        # Drawn from a generator of its own, so that all other draws stay as they were.
        push_delay_ms=Random(f"commit delay {seed}").choice((0, 0, 10, 40)),
        early_election=hang_ups,
    )
    forgetful = rng.random() < 0.3
    return Options(
        seed=seed,
        member_count=member_count,
        duration_ms=rng.choice((15_000, 30_000)),
        settings=settings,
        packets=packets,
        disk=disk,
        clock_drift=0.05 if on() else 0.0,
        clock_jumps=clock_jumps,
        cuts=on(),
        assassin=on(),
        kills=on(),
        hang_ups=hang_ups,
        power_losses=on(),
        pauses=on(),
        full_disks=rng.random() < 0.2,
        transfers=on(),
        membership=rng.random() < 0.3,
        trims=on(),
        wipes=forgetful and on(),
        damage=forgetful and on(),
        fault_gap_ms=rng.choice((400, 1500, 4000)),
        client_count=rng.randint(1, 3),
        client_pause_ms_max=rng.choice((0, 40, 400)),
        client_timeout_ms=rng.choice((300, 1500, 4000)),
    )
