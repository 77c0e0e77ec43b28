"""A set under load that is failed over again and again, and the account of it.

`python -m failover_drills.drill --rounds 100` from tests/ is the release run (`just drill`); with
`--members 3 --rounds 300` it is that of `failover_drills.rounds`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from failover_drills.consumers import OffsetWatch
from support.clusters.replica_set import ReplicaSet, Switch
from support.histories.commitlog import stored_messages
from support.histories.judge import demand_none, judge_log, log_counts, stored_by_name
from support.histories.messages import Stored
from support.histories.senders import Attempt, OwnSender, Sender, StockSender
from support.histories.stood_still import told, wait_for_names
from support.peers.clients import KINDS, Clients, Kind, StockConsumer
from support.processes.admin import create_topic
from support.processes.rig import Processes, running_processes
from support.processes.status import check_sound
from support.suite.drawn_seed import drawn_seed

TOPIC = "drill"
QUEUES = 4
READ_S = 90.0
IN_A_ROW = 5


@attrs.define(eq=False)
class Gaps:
    """The times that each client went without an answer that says stored, one for each round."""

    by_client: dict[str, list[float]] = attrs.Factory(dict)
    first_stored_s: list[float] = attrs.Factory(list)
    """Times from the command's start, its own 0.3 s included, to the first answer "stored"."""
    command_s: list[float] = attrs.Factory(list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "write_gap_ms": {name: spread_ms(gaps) for name, gaps in self.by_client.items()},
            "command_to_first_stored_ms": spread_ms(self.first_stored_s),
            "command_ms": spread_ms(self.command_s),
        }


class Drill:
    """One set, its clients and its watches, from their start to the account."""

    def __init__(self, processes: Processes, *, slave_count: int = 1) -> None:
        self.set = ReplicaSet(processes, slave_count=slave_count).start()
        create_topic(self.set.master.address, self.set.namesrvs[0].address, TOPIC, QUEUES)
        self._clients = clients = Clients(processes)
        namesrv = self.set.namesrv
        self.senders: list[Sender] = [
            OwnSender("own", namesrv, TOPIC),
            StockSender(
                "js",
                clients.producer("js", namesrv, timeout_ms=3000, retries=0, poll_ms=1000),
                TOPIC,
            ),
            StockSender("cpp", clients.producer("cpp", namesrv, timeout_ms=3000), TOPIC),
        ]
        self.readers = {kind: self._start_reader(kind) for kind in KINDS}
        self.stood_still: list[str] = []
        """A sentence for each stock client whose own library stopped working."""
        self._master: str | None = self.set.master.address
        self.watches = [
            OffsetWatch(lambda: self._master, f"readers-{kind}", TOPIC, QUEUES) for kind in KINDS
        ]
        self.gaps = {"planned": Gaps(), "forced": Gaps()}
        for sender in self.senders:
            sender.start()
        self.wait_for_everybody()
        for watch in self.watches:
            watch.start()

    def _start_reader(self, kind: Kind) -> StockConsumer:
        return self._clients.consumer(kind, self.set.namesrv, f"readers-{kind}", TOPIC)

    def wait_for_everybody(self) -> None:
        """Wait until every sender has found the current master."""
        for sender in self.senders:
            sender.wait_for_more()

    def plan_once(self) -> Switch:
        """A planned switch."""
        self.set.wait_whole()
        self._master = None
        switch = self.set.fail_over()
        self._settle("planned", switch)
        return switch

    def force_once(self) -> Switch:
        """The master is killed, a slave takes over, the old master comes back."""
        self.set.wait_whole()
        victim = self.set.master
        self._master = None
        victim.kill()
        switch = self.set.fail_over()
        if self.set.slave_count == 1:
            # No slave is left to acknowledge: SEND_OK waits for the old master.
            victim.start()
        self._settle("forced", switch)
        if not victim.running:
            victim.start()
        return switch

    def _settle(self, kind: str, switch: Switch) -> None:
        assert switch.code == 0, f"{kind}: exit {switch.code}\n{switch.text}\n{self.set.describe()}"
        # The C++ client asks for routes every 30 s, and a dead broker cannot forward its messages:
        # forced rounds do not wait for it.
        prompt = self.senders if kind == "planned" else self.senders[:2]
        for sender in prompt:
            sender.wait_for_more()
        until_s = time.monotonic()
        self._master = self.set.master.address
        gaps = self.gaps[kind]
        for sender in prompt:
            gaps.by_client.setdefault(sender.label, []).append(
                sender.gap_s(switch.began_s, until_s)
            )
        first = self.senders[0].first_stored_after(switch.began_s)
        assert first is not None, "served again, and nothing was stored"
        gaps.first_stored_s.append(first.ended_s - switch.began_s)
        gaps.command_s.append(switch.ended_s - switch.began_s)

    def account(self) -> dict[str, Any]:
        """Stop sending, read all of it, stop the set; every promise is looked at.

        Errors: AssertionError with what was broken, or with an account of too little.
        """
        self.wait_for_everybody()
        for sender in self.senders:
            sender.stop()
        attempts = [attempt for sender in self.senders for attempt in sender.attempts]
        acknowledged = {attempt.name for attempt in attempts if attempt.is_ok}
        self.set.wait_whole()
        self.set.wait_level()
        for kind, reader in self.readers.items():
            fresh = wait_for_names(reader, acknowledged, partial(self._start_reader, kind), READ_S)
            if fresh is not None:
                self.stood_still.append(told(reader, fresh))
        for watch in self.watches:
            watch.stop()
        master = self.set.master
        self.set.stop()
        self.set.check_equal_logs()
        for node in self.set.nodes:
            check_sound(node)
        log = check_log(master.commitlog, attempts)
        regressions = [line for watch in self.watches for line in watch.regressions]
        assert not regressions, regressions[:5]
        assert all(watch.looks for watch in self.watches), "nobody looked at the offsets"
        account = {
            "sends": dict(Counter(attempt.status for attempt in attempts)),
            "acknowledged_by_client": {
                sender.label: sum(one.is_ok for one in sender.attempts) for sender in self.senders
            },
            **log_counts([one.put for one in attempts], log),
            "stood_still": self.stood_still,
            "offset_regressions": len(regressions),
            "offset_looks": sum(watch.looks for watch in self.watches),
            "stored_twice_by_a_client_that_tried_again": sum(
                len(found) > 1 for found in stored_by_name(log).values()
            ),
            "cpp_gaps_over_1_s": [round(gap, 1) for gap in self.senders[-1].gaps_over(1.0)],
            **{kind: gaps.as_dict() for kind, gaps in self.gaps.items() if gaps.command_s},
        }
        demand_enough(account, *(len(gaps.command_s) for gaps in self.gaps.values()))
        return account


def demand_enough(account: Mapping[str, Any], planned: int, forced: int) -> None:
    """A drill that did less than this proves nothing by losing nothing. Errors: AssertionError."""
    switches = planned + forced
    assert switches > 0, "no switch"
    assert account["sends"].get("SEND_OK", 0) > 500 + 100 * switches, account
    assert all(count > planned for count in account["acknowledged_by_client"].values()), account
    assert account["offset_looks"] > 10 * switches, account


def check_log(commitlog: Path, attempts: Sequence[Attempt]) -> list[Stored]:
    """Return the log. Errors: AssertionError unless what was acknowledged is in dense queues."""
    log = list(stored_messages(commitlog, TOPIC))
    demand_none([finding.words for finding in judge_log([one.put for one in attempts], log)])
    return log


def spread_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the worst."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    rank = min(len(ordered) - 1, int(0.99 * len(ordered)))
    return {
        "p50": round(statistics.median(ordered) * 1000, 1),
        "p99": round(ordered[rank] * 1000, 1),
        "max": round(ordered[-1] * 1000, 1),
        "n": len(ordered),
    }


def run_rounds(
    drill: Drill,
    planned: int,
    forced: int,
    say: Callable[[str], None] = lambda line: None,
    *,
    minutes: float = math.inf,
) -> None:
    """A few of one kind, a few of the other, and so on; no new ones after so many minutes."""
    until_s = time.monotonic() + minutes * 60
    done = {"planned": 0, "forced": 0}
    wanted = {"planned": planned, "forced": forced}
    switches = {"planned": drill.plan_once, "forced": drill.force_once}
    while done != wanted:
        for kind, count in wanted.items():
            drill.wait_for_everybody()
            for _ in range(min(IN_A_ROW, count - done[kind])):
                if time.monotonic() > until_s:
                    return
                switch = switches[kind]()
                done[kind] += 1
                say(f"{kind} {done[kind]}: {switch.ended_s - switch.began_s:.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of each kind (default: 100)")
    parser.add_argument("--slaves", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no new rounds after")
    parser.add_argument("--output", type=Path, help="write the account there as JSON, too")
    parser.add_argument(
        "--members", type=int, choices=(2, 3), default=2, help="3: drawn faults inside promotions"
    )
    parser.add_argument("--seed", type=int, help="of the drawn faults (default: the commit's)")
    parser.add_argument("--no-cuts", action="store_true", help="without network namespaces")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    root = Path(tempfile.mkdtemp(prefix="trioha-drill-"))
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        if options.members == 3:
            account = _draw_many(root, options, say)
        else:
            with running_processes(root) as processes:
                drill = Drill(processes, slave_count=options.slaves)
                run_rounds(drill, options.rounds, options.rounds, say)
                account = drill.account()
    except AssertionError:
        print(f"the stores and logs are in {root}", file=sys.stderr)
        raise
    shutil.rmtree(root)
    account["elapsed_s"] = round(time.monotonic() - began_s, 1)
    text = json.dumps(account, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return 0


def _draw_many(
    root: Path, options: argparse.Namespace, say: Callable[[str], None]
) -> dict[str, Any]:
    from failover_drills import rounds  # which needs this module

    seed = drawn_seed("rounds of three") if options.seed is None else options.seed
    return rounds.run_many(root, seed, options.rounds, cuts=not options.no_cuts, say=say)


if __name__ == "__main__":
    sys.exit(main())
