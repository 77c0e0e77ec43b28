"""The detector is proven: each known fault, put back, is found by a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from trioha.broker.failover import Promotion
from trioha.failover.asking import Flow
from trioha.failover.engine import FailoverEngine
from trioha.ha.epochs import EpochRecord
from trioha.ha.mastership import Mastership
from trioha.ha.replicas import Replica, Replicas
from trioha.sim.pair.master_role import MasterRole
from trioha.sim.pair.messages import HelloAnswer
from trioha.sim.pair.node import SimNode
from trioha.sim.pair.roles import Roles
from trioha.sim.pair.simulation import SeedFailed, run_seed
from trioha.sim.pair.slave_role import SlaveRole

pytestmark = pytest.mark.slow
SEEDS_MAX = 400

Mutation = Callable[[pytest.MonkeyPatch], None]


def acknowledges_what_is_sent(patch: pytest.MonkeyPatch) -> None:
    """push2slave_max_offset counts bytes on their way."""
    real = Replicas.transferred

    def transferred(
        self: Replicas, replica: Replica, size: int, next_transfer_offset: int, now_ms: int
    ) -> None:
        real(self, replica, size, next_transfer_offset, now_ms)
        self.push2slave_max_offset = max(self.push2slave_max_offset, next_transfer_offset)

    patch.setattr(Replicas, "transferred", transferred)


def goes_on_after_it_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """A master hears of a newer epoch and does nothing."""
    patch.setattr(Mastership, "hear", lambda self, *args, **more: False)


def forgets_the_term_it_began(patch: pytest.MonkeyPatch) -> None:
    """begin_term is not durable."""
    real = Mastership.begin_term

    def begin_term(self: Mastership, *args: int, **more: object) -> EpochRecord:
        save, self._save = self._save, lambda payload: None
        try:
            return real(self, *args, **more)  # type: ignore[arg-type]
        finally:
            self._save = save

    patch.setattr(Mastership, "begin_term", begin_term)


def does_not_cut(patch: pytest.MonkeyPatch) -> None:
    """A slave takes over the history and keeps its own bytes."""
    patch.setattr(SimNode, "cut", lambda self, phy_offset: None)


def meets_at_the_shorter_log(patch: pytest.MonkeyPatch) -> None:
    """The common offset is the smaller end, whatever the epochs say."""

    def shake_hands(self: SimNode, hello: object) -> HelloAnswer:
        history = self.roles.mastership.history
        if self.roles.master is None:
            return HelloAnswer(history, 0, 0, "no master")
        end: int = hello.max_phy_offset  # type: ignore[attr-defined]
        return HelloAnswer(history, min(self.log_end, end), self.log_end)

    patch.setattr(SimNode, "_shake_hands", shake_hands)


def hands_over_before_the_target_is_level(patch: pytest.MonkeyPatch) -> None:
    """Writes are not paused, and nobody waits until the target has them."""

    def catch_up(*_: object) -> Flow[None]:
        yield from ()

    real = Roles.promote

    def promote(self: Roles, promotion: Promotion, done: Callable[[str], None]) -> None:
        real(self, attrs.evolve(promotion, log_offset=0), done)

    patch.setattr(Roles, "pause", lambda self: None)
    patch.setattr(Roles, "promote", promote)
    patch.setattr(FailoverEngine, "_catch_up", catch_up)


def resumes_its_term_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A master that lost its tail goes on without asking who holds it."""
    real = Roles.start

    def start(self: Roles) -> None:
        real(self)
        if self.mastership.confirm():
            self.take_role()

    patch.setattr(Roles, "start", start)


def lets_links_live_on(patch: pytest.MonkeyPatch) -> None:
    """Acks of an older epoch count: who was fenced still answers those who wait."""
    patch.setattr(MasterRole, "end", lambda self: None)
    patch.setattr(SlaveRole, "end", lambda self: None)


MUTATIONS: list[Mutation] = [
    acknowledges_what_is_sent,
    goes_on_after_it_is_fenced,
    forgets_the_term_it_began,
    does_not_cut,
    meets_at_the_shorter_log,
    hands_over_before_the_target_is_level,
    resumes_its_term_after_a_crash,
    lets_links_live_on,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_known_fault_is_found(mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    for seed in range(SEEDS_MAX):
        if f"just sim {seed}" in failure_of(seed):
            return
    pytest.fail(f"{mutate.__name__}: not found in {SEEDS_MAX} seeds")


def failure_of(seed: int) -> str:
    try:
        run_seed(seed)
    except SeedFailed as failure:
        return str(failure)
    return ""
