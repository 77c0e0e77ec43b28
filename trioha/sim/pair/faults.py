"""Faults of one seed. A draw says which families of faults there are, so that each seed is
hostile in its own way and rare combinations are not drowned by common ones."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from trioha.sim.pair.node import Machine
    from trioha.sim.pair.world import World

CLIENT_HOSTS = ("client-0", "client-1", "operator-0", "operator-1")


@attrs.frozen
class Draw:
    """The options of a seed, printed when it fails."""

    node_count: int
    kills: bool
    power_losses: bool
    stops: bool
    resets: bool
    one_way_cuts: bool
    both_way_cuts: bool
    namesrv_restarts: bool
    crash_chance: float
    """Chance of each save and flush to be the last thing that a process does."""
    interrupts: float
    """Chance that a member is killed or stopped after a step of an operator's attempt."""
    absence_ms_max: int
    """Longest absence of a member or name server, and longest cut, in milliseconds."""
    by_the_book: bool
    """An operator looks often, and fails over when there is no master, as docs/failover.md says."""
    operators: int
    bold: bool
    """The first operator, too, uses --force."""
    pause_ms: int
    """Mean time between two faults."""

    @classmethod
    def of(cls, rng: Random) -> Draw:
        def maybe() -> bool:
            return rng.random() < 0.5

        return cls(
            node_count=rng.choice((2, 2, 3, 3, 3, 4)),
            kills=maybe(),
            power_losses=maybe(),
            stops=maybe(),
            resets=maybe(),
            one_way_cuts=maybe(),
            both_way_cuts=maybe(),
            namesrv_restarts=maybe(),
            crash_chance=rng.choice((0.0, 0.01, 0.1)),
            interrupts=rng.choice((0.0, 0.05, 0.2)),
            absence_ms_max=rng.choice((800, 2500, 6000)),
            by_the_book=maybe(),
            operators=rng.choice((1, 1, 2)),
            bold=maybe(),
            pause_ms=rng.choice((200, 500, 1200)),
        )


class PairFaults:
    """Breaks things until it is told to stop; every fault ends by itself, or with `heal`."""

    def __init__(self, world: World, draw: Draw) -> None:
        self._world = world
        self._draw = draw
        self._over = False
        families = [
            (draw.kills, self._kill),
            (draw.power_losses, self._lose_power),
            (draw.stops, self._stop),
            (draw.resets, self._reset),
            (draw.one_way_cuts, self._cut_one_way),
            (draw.both_way_cuts, self._cut_both_ways),
            (draw.namesrv_restarts, self._restart_namesrv),
        ]
        self._families = [fault for wanted, fault in families if wanted]

    def start(self) -> None:
        self._world.crash_chance = self._draw.crash_chance
        self._world.on_step = self.interrupt
        self._world.on_crash = lambda machine: self._later(lambda: self._start(machine))
        if self._families:
            self._next()

    def interrupt(self) -> None:
        """Kill or stop a member, by chance, after a step of an operator's attempt."""
        if not self._over and self._world.rng.random() < self._draw.interrupts:
            self._world.rng.choice((self._kill, self._kill, self._stop))()

    def heal(self) -> None:
        """End all faults: no more cuts, and every process runs."""
        world = self._world
        self._over = True
        world.crash_chance = 0.0
        world.network.heal()
        if not world.namesrv.up:
            world.namesrv.start()
        for machine in world.machines.values():
            if machine.running is None:
                world.start_node(machine)
            elif machine.running.stopped:
                machine.running.go_on()

    def _next(self) -> None:
        world = self._world
        delay_ms = 1 + int(world.rng.expovariate(1 / self._draw.pause_ms))
        world.scheduler.after(delay_ms, self._strike)

    def _strike(self) -> None:
        if not self._over:
            self._world.rng.choice(self._families)()
            self._next()

    def _later(self, action: object) -> None:
        assert callable(action)

        def act() -> None:
            if not self._over:
                action()

        delay_ms = self._world.rng.randint(50, self._draw.absence_ms_max)
        self._world.scheduler.after(delay_ms, act)

    def _kill(self) -> None:
        machine = self._any_machine()
        if machine.running is not None:
            self._tell(f"{machine.host} is killed")
            self._world.kill(machine)
            self._later(lambda: self._start(machine))

    def _lose_power(self) -> None:
        machine = self._any_machine()
        if machine.running is not None and self._world.may_lose_power(machine):
            self._world.lose_power(machine)
            self._later(lambda: self._start(machine))

    def _stop(self) -> None:
        node = self._any_machine().running
        if node is not None and not node.stopped:
            self._tell(f"{node.host} is stopped")
            node.stopped = True
            self._later(node.go_on)

    def _reset(self) -> None:
        self._tell(f"reset of {self._world.network.reset_one()}")

    def _cut_one_way(self) -> None:
        source, target = self._two_hosts()
        self._tell(f"cut {source} -> {target}")
        self._world.network.cut(source, target)
        self._later(self._world.network.heal)

    def _cut_both_ways(self) -> None:
        one = self._any_machine().host
        others = [host for host in self._hosts() if host != one]
        cut = others if self._world.rng.random() < 0.5 else [self._world.rng.choice(others)]
        self._tell(f"cut {one} <-> {' '.join(cut)}")
        for other in cut:
            self._world.network.cut(one, other)
            self._world.network.cut(other, one)
        self._later(self._world.network.heal)

    def _restart_namesrv(self) -> None:
        namesrv = self._world.namesrv
        if namesrv.up:
            self._tell("name server dies")
            namesrv.die()
            self._later(lambda: None if namesrv.up else namesrv.start())

    def _start(self, machine: Machine) -> None:
        if machine.running is None:
            self._world.start_node(machine)

    def _any_machine(self) -> Machine:
        return self._world.rng.choice(list(self._world.machines.values()))

    def _hosts(self) -> list[str]:
        return [*self._world.machines, self._world.namesrv.host, *CLIENT_HOSTS]

    def _two_hosts(self) -> tuple[str, str]:
        source, target = self._world.rng.sample(self._hosts(), 2)
        return source, target

    def _tell(self, text: str) -> None:
        self._world.scheduler.tell("FAULT", text)
