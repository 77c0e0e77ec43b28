"""A failover that is struck at a chosen step, driven in this process.

The engine tells of each step when it is over; the fault strikes right then, before the next request
leaves. Patience is shortened (tickets, pauses, answers), not the order of things.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
import trio
from failover_drills.drill import check_log
from support.clusters.replica_set import BROKER, ReplicaSet
from support.histories.senders import OwnSender
from support.processes.rig import Node, ProcessFailed
from support.processes.status import check_sound, wait_until

import trioha.failover.attempt as attempt
import trioha.failover.engine as engine
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.failover import new_order, run_failover
from trioha.failover.outcome import Outcome, Result, Step

PATIENCE_S = 0.5
REPAIR_S = 40.0
ATTEMPTS = 3

Strike = Callable[[], None]


def shorten(patch: pytest.MonkeyPatch) -> None:
    """An attempt that is never heard of again ends within two seconds."""
    patch.setattr(attempt, "TICKET_MS", 2500)
    patch.setattr(engine, "PAUSE_MS", 1500)
    patch.setattr(engine, "CATCH_UP_MS", 1000)
    patch.setattr(engine, "PROMOTE_PATIENCE_S", 1.0)
    patch.setattr(engine, "VERIFY_ROUNDS", 10)


def fail_over(
    replica_set: ReplicaSet,
    strike_after: str = "",
    strike: Strike | None = None,
    *,
    to: int | None = None,
    force: bool = False,
) -> Outcome:
    """One attempt; `strike` happens once, after the step of that name.

    An attempt whose facts changed before that step, as when a node was slow to answer, has changed
    nothing: it is made again, as an operator does.
    """
    struck = False

    def on_step(step: Step) -> None:
        nonlocal struck
        if strike is not None and not struck and step.name == strike_after:
            struck = True
            strike()

    async def run() -> Outcome:
        config = ClusterConfig(connect_timeout_s=PATIENCE_S, request_timeout_s=PATIENCE_S)
        async with open_cluster(replica_set.namesrv, config) as cluster:
            return await run_failover(
                cluster, new_order(cluster, BROKER, to=to, force=force), on_step
            )

    for _ in range(ATTEMPTS):
        outcome = trio.run(run)
        is_stale = outcome.result is Result.REFUSED and "the facts have changed" in outcome.message
        if struck or strike is None or not is_stale:
            break
    assert strike is None or struck, f"no step {strike_after}: {outcome.steps} {outcome.message}"
    return outcome


class Struck:
    """A set under load whose failovers are struck, one after the other."""

    def __init__(self, replica_set: ReplicaSet, topic: str) -> None:
        self.set = replica_set
        self.sender = OwnSender("own", replica_set.namesrv, topic)
        self.sender.start()
        self.sender.wait_for_more()
        self.outcomes: list[tuple[str, Result]] = []

    def other(self, node: Node) -> Node:
        return next(one for one in self.set.nodes if one is not node)

    def strike(self, step: str, strike: Strike, *restore: Strike) -> Outcome:
        """Strike one attempt, check that what it says is true, restore, and try again."""
        master_id = self.set.master_id()
        outcome = fail_over(self.set, step, strike)
        self.outcomes.append((step, outcome.result))
        for one in restore:
            one()
        if outcome.result is Result.DONE:
            wait_until("as it said", lambda: self.set.master_id() not in (None, master_id))
        elif outcome.result is not Result.UNKNOWN and master_id is not None:
            wait_until("as it was", lambda: self.set.master_id() == master_id, REPAIR_S)
        self.repair()
        return outcome

    def repair(self) -> None:
        """A second attempt, or a third when the first one's tickets have to expire."""
        deadline = time.monotonic() + REPAIR_S
        told: list[str] = []
        while True:
            outcome = fail_over(self.set)
            told.append(f"{outcome.result.value}: {outcome.message}")
            if outcome.result is Result.DONE:
                break
            assert time.monotonic() < deadline, "\n".join([*told, self.set.describe()])
            time.sleep(0.2)
        self.set.wait_whole()
        self.sender.wait_for_more()

    def account(self) -> None:
        """Nothing acknowledged is lost, logs are equal, queues are dense."""
        self.sender.stop()
        self.set.wait_whole()
        self.set.wait_level()
        master = self.set.master
        self.set.stop()
        self.set.check_equal_logs()
        for node in self.set.nodes:
            check_sound(node)
        check_log(master.commitlog, self.sender.attempts)


def stop_process(node: Node) -> None:
    node.process.signal(signal.SIGSTOP)


def continue_process(node: Node) -> None:
    node.process.signal(signal.SIGCONT)


def start_again(node: Node) -> None:
    """It may have been killed; if it has, it comes back."""
    if not node.running:
        try:
            node.start()
        except ProcessFailed as error:
            raise AssertionError(f"{node.name} does not come back: {error}") from error
