"""One seed, from its draw to its verdict."""

from __future__ import annotations

from random import Random

import attrs

from trioha.sim.pair.checker import Broken, Counts
from trioha.sim.pair.clients import make_senders
from trioha.sim.pair.faults import Draw, PairFaults
from trioha.sim.pair.operators import ByTheBook, Operator, Rescuer
from trioha.sim.pair.world import World

GENERATOR = 3
"""Number that is raised whenever a seed comes to mean another history."""
QUIET_MS = 1500
HOSTILE_MS = 9000
HEALING_MS = 4000
HEALINGS_MAX = 10
"""A ticket that was left behind lasts for half a minute."""
SETTLING_MS = 1500
TRACE_LINES_SHOWN = 120


@attrs.frozen
class SeedFailed(Exception):
    """An invariant broke; the text is all there is to know."""

    seed: int
    text: str

    def __str__(self) -> str:
        return self.text


def run_seed(seed: int) -> Counts:
    """Live through one seed. Errors: SeedFailed with the seed, its options and its trace."""
    rng = Random(seed)
    draw = Draw.of(rng)
    world = World(rng, draw.node_count)
    world.checker.counts.sets[draw.node_count] += 1
    try:
        _live(world, draw)
    except Exception as error:
        what = str(error) if isinstance(error, Broken) else repr(error)
        trace = "\n".join(list(world.scheduler.trace)[-TRACE_LINES_SHOWN:])
        raise SeedFailed(
            seed,
            f"seed {seed} at {world.scheduler.now_ms} ms: {what}\n{draw}\n{trace}\n"
            f"again: just sim {seed}",
        ) from error
    return world.checker.counts


def _live(world: World, draw: Draw) -> None:
    faults = PairFaults(world, draw)
    senders = make_senders(world, 2)
    operators = [
        Operator(world, f"operator-{number}", bold=number > 0 or draw.bold)
        for number in range(draw.operators)
    ]
    if draw.by_the_book:
        operators.append(ByTheBook(world, bold=draw.bold))
    world.start()
    for sender in senders:
        sender.start()
    scheduler = world.scheduler
    scheduler.run_until(QUIET_MS)
    faults.start()
    for operator in operators:
        operator.start()
    scheduler.run_until(QUIET_MS + HOSTILE_MS)
    faults.heal()
    scheduler.tell("FAULT", "all is healed")
    for operator in operators:
        operator.stop()
    Rescuer(world).start()
    for _ in range(HEALINGS_MAX):
        scheduler.run_until(scheduler.now_ms + HEALING_MS)
        if all(sender.is_served for sender in senders):
            break
    else:
        raise Broken("senders hear no SEND_OK, though all is healed")
    for sender in senders:
        sender.stop()
    scheduler.run_until(scheduler.now_ms + SETTLING_MS)
    _check_converged(world)


def _check_converged(world: World) -> None:
    nodes = [machine.running for machine in world.machines.values()]
    assert all(node is not None for node in nodes)
    world.checker.check_converged(
        world.logs(),
        {node.host: node.roles.mastership.history for node in nodes if node is not None},
    )
