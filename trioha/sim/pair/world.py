"""The set as one world: machines, name server, network, and how processes start and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from trioha.sim.disk import Crashed
from trioha.sim.network import Item, Network
from trioha.sim.pair.checker import Checker
from trioha.sim.pair.namesrv import SimNamesrv
from trioha.sim.pair.node import Machine, SimNode
from trioha.sim.pair.records import RecordLog
from trioha.sim.scheduler import Scheduler

HOSTS = ("a", "b", "c", "d")


class World:
    """A replica set and its surroundings, made from a seed alone."""

    def __init__(self, rng: Random, node_count: int) -> None:
        self.rng = rng
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, rng)
        self.checker = Checker()
        self.overrides: set[str] = set()
        """Tickets of failovers that were refused without `--force`, which the operator overrode.

        The one name server tells who the members are, and without it no failover begins. So each of
        the refusals was about a loss, or about a member that may have held more.
        """
        self.crash_chance = 0.0
        """Chance of each disk operation to be the last one of the process or of the machine."""
        self.crashes_at: tuple[str, str] | None = None
        """Host and disk operation that a script lets be the next one to end a process."""
        self.on_step: Callable[[], None] = lambda: None
        """An operator's attempt has come one step further."""
        self.on_crash: Callable[[Machine], None] = lambda machine: None
        self.namesrv = SimNamesrv(self.scheduler, self.network)
        self.machines = {
            host: Machine.make(host, home_id, partial(self._crash_point, host))
            for home_id, host in enumerate(HOSTS[:node_count])
        }

    def start(self) -> None:
        self.namesrv.start()
        for machine in self.machines.values():
            self.start_node(machine)

    def start_node(self, machine: Machine) -> None:
        # The index of the log in memory ended with the process before.
        machine.log = RecordLog(machine.file)
        node = machine.node = SimNode(self, machine, partial(self.crash, machine))
        node.run(node.start)

    def kill(self, machine: Machine) -> None:
        """SIGKILL: the kernel closes its connections and keeps the page cache."""
        node = machine.running
        if node is not None:
            node.alive = False
            self.network.process_died(machine.host)
            self.checker.counts.crashes += 1

    def crash(self, machine: Machine) -> None:
        """A disk operation was the last one of the process, or of the machine."""
        if self.rng.random() < 0.5 and self.may_lose_power(machine):
            self.lose_power(machine)
        else:
            self.kill(machine)
        self.on_crash(machine)

    def may_lose_power(self, machine: Machine) -> bool:
        """Return True if some machine keeps every acknowledged message: no mode promises more."""
        flushed = machine.file.flushed_offset
        others = [log for host, log in self.logs().items() if host != machine.host]
        return all(
            entry.end <= flushed or any(log.by_message.get(number) == entry for log in others)
            for number, entry in self.checker.acknowledged.items()
        )

    def lose_power(self, machine: Machine) -> None:
        node = machine.running
        if node is not None:
            node.alive = False
            self.network.machine_died(machine.host)
            lost = machine.file.lose_power(self.rng)
            machine.log = RecordLog(machine.file)
            self.checker.power_lost(self.logs())
            machine.boot += 1
            machine.lost_end = max(machine.lost_end, machine.log.max_phy_offset + lost)
            self.scheduler.tell(machine.host, f"lost power, and {lost} bytes")
            self.checker.counts.crashes += 1

    def logs(self) -> Mapping[str, RecordLog]:
        """Return the log of every machine, disk and page cache, whether it runs or not."""
        return {host: machine.log for host, machine in self.machines.items()}

    def lost_ends(self) -> Mapping[str, int]:
        """Return the end of each log before its machine lost power; 0 if it never did."""
        return {host: machine.lost_end for host, machine in self.machines.items()}

    def ask(
        self,
        source: str,
        target: str,
        request: object,
        hear: Callable[[Item], None],
        patience_ms: int,
    ) -> None:
        """A connection for one request. `hear` gets None when it ends without an answer."""
        end = self.network.connect(source, target, "remoting")
        heard = False

        def conclude(answer: Item) -> None:
            nonlocal heard
            if not heard:
                heard = True
                timer.cancel()
                end.close()
                hear(answer)

        timer = self.scheduler.after(patience_ms, lambda: conclude(None))
        end.on_item = conclude
        end.on_close = lambda: conclude(None)
        end.send(request)

    def _crash_point(self, host: str, where: str) -> None:
        if self.crashes_at == (host, where):
            self.crashes_at = None
            raise Crashed(where)
        if self.crash_chance and self.rng.random() < self.crash_chance:
            raise Crashed(where)
