"""Time without an acknowledgement, with the default timers.

    python -m raft_drills.failover_times --trials 30      (`just raft-times --trials 30`)

A sender at every member tries for ever, so the figures are of the group, not of a client's way to
find its leader. `kill`: from kill -9 of the leader to the first acknowledged put that began after
it. `black hole`: the same with a leader whose host is cut off. `transfer`: the longest time without
an acknowledgement around a planned transfer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failover_drills.drill import spread_ms
from raft_drills.drill import TOPIC, cut_group
from raft_drills.faults import host_of, net_of
from raft_drills.hurt_group import HurtGroup
from raft_drills.load import RaftLoad
from raft_drills.member_clients import Mix
from support.processes.admin import create_topic
from support.processes.rig import running_processes

CALM_S = (0.3, 1.0)
"""Between two trials: no fixed distance to the group's own timers."""
LIGHT = Mix(window=1, pace_s=0.01, large_chance=0.0, patience_s=0.3)
"""A sender does not wait long for an answer of the old leader, direct or forwarded."""


def after_kill(group: HurtGroup, load: RaftLoad) -> float:
    leader = group.leader
    leader.kill()
    took_s = load.wait_for_progress(30.0)
    leader.node.start()
    return took_s


def after_black_hole(group: HurtGroup, load: RaftLoad) -> float:
    leader = group.leader
    net_of(group).isolate(host_of(group, leader))
    took_s = load.wait_for_progress(30.0, leader)
    net_of(group).heal()
    return took_s


def around_transfer(group: HurtGroup, load: RaftLoad) -> float:
    leader = group.leader
    began_s = time.monotonic()
    group.transfer(group.others(leader)[0])
    load.wait_for_progress(30.0, leader)
    return load.longest_gap_s(began_s, time.monotonic())


TRIALS: dict[str, Callable[[HurtGroup, RaftLoad], float]] = {
    "kill": after_kill,
    "black hole": after_black_hole,
    "transfer": around_transfer,
}


def measure(group: HurtGroup, load: RaftLoad, kind: str, count: int) -> list[float]:
    """Seconds, one per trial."""
    rng = random.Random(count)
    taken = []
    for _ in range(count):
        group.wait_whole()
        time.sleep(rng.uniform(*CALM_S))
        taken.append(TRIALS[kind](group, load))
        print(f"{kind}: {taken[-1] * 1000:.0f} ms", file=sys.stderr, flush=True)
    return taken


def run(root: Path, trials: int, kinds: list[str]) -> dict[str, Any]:
    with running_processes(root) as processes, cut_group(processes, timers={}) as group:
        create_topic(group.leader.address, group.namesrv, TOPIC)
        load = RaftLoad(group, TOPIC, mix=LIGHT).start()
        taken = {kind: measure(group, load, kind, trials) for kind in kinds}
        load.stop_senders()
        load.stop_readers()
    return {f"{kind.replace(' ', '_')}_ms": spread_ms(seconds) for kind, seconds in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=30, help="of each kind (default: 30)")
    parser.add_argument("--only", choices=sorted(TRIALS), help="one kind")
    parser.add_argument("--output", type=Path, help="write the figures there as JSON, too")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="trioha-raft-times-"))
    try:
        figures = run(root, options.trials, [options.only] if options.only else list(TRIALS))
    finally:
        shutil.rmtree(root)
    figures |= {"cpus": os.cpu_count(), "python": platform.python_version()}
    text = json.dumps(figures, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
