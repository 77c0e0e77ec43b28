"""A simulated set to which nothing happens but what a script says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from trioha.failover.outcome import Outcome
from trioha.ha.promotion import Promotion
from trioha.sim.pair.messages import Put
from trioha.sim.pair.node import SimNode
from trioha.sim.pair.operators import attempt, drive
from trioha.sim.pair.world import World


class Set:
    """A quiet set: nothing happens but what the script says."""

    def __init__(self, node_count: int) -> None:
        self.world = World(Random(1), node_count)
        self.world.start()
        self._ids: Iterator[int] = iter(range(1, 1_000_000))
        self.wait()

    def wait(self, ms: int = 3000) -> None:
        self.world.scheduler.run_until(self.world.scheduler.now_ms + ms)

    def node(self, host: str) -> SimNode:
        node = self.world.machines[host].running
        assert node is not None, f"{host} does not run"
        return node

    def put(self, host: str, count: int = 5) -> list[object]:
        """Send messages to a node; return the list that its answers come into."""
        answers: list[object] = []
        for _ in range(count):
            self.node(host).roles.put(Put(0, next(self._ids)), answers.append)
        return answers

    def fail_over(self, *, to: int | None = None, force: bool = False) -> Outcome:
        """Run `trioha failover` from its begin to its end."""
        outcomes: list[Outcome] = []
        drive(
            self.world,
            "operator-0",
            attempt(self.world, "operator-0", to=to, force=force),
            outcomes.append,
        )
        for _ in range(200):
            if outcomes:
                break
            self.wait(100)
        return outcomes[0]

    def promote(self, host: str, epoch: int, nonce: bytes) -> None:
        """Promote the node as an operator with --force, who sees this node alone."""
        self.world.overrides.add(nonce.hex())
        roles = self.node(host).roles
        promotion = Promotion(
            epoch=epoch,
            nonce=nonce,
            sync=True,
            log_offset=0,
            operator="operator-0",
            written_off=tuple(roles.mastership.members),
        )
        refused: list[str] = []
        roles.promote(promotion, refused.append)
        assert refused == [""], refused

    def cut_off(self, host: str) -> None:
        self.cut(host, *(other for other in [*self.world.machines, "namesrv"] if other != host))

    def cut(self, host: str, *others: str) -> None:
        """Cut the links between the host and `others`, both ways."""
        for other in others:
            self.world.network.cut(host, other)
            self.world.network.cut(other, host)

    def lose_power(self, host: str) -> None:
        """Lose everything on the machine but what was flushed."""
        machine = self.world.machines[host]
        flushed_offset = machine.file.flushed_offset
        self.world.lose_power(machine)
        machine.file.truncate(flushed_offset)

    def kill(self, host: str) -> None:
        self.world.kill(self.world.machines[host])

    def start(self, host: str) -> None:
        self.world.start_node(self.world.machines[host])

    def stop(self, host: str) -> None:
        """Stop the node as SIGSTOP does."""
        self.node(host).stopped = True

    def forget(self) -> None:
        """Start the name server anew, without its memory."""
        self.world.namesrv.die()
        self.world.namesrv.start()

    @property
    def masters(self) -> list[str]:
        return [
            host
            for host, machine in self.world.machines.items()
            if machine.running is not None and machine.running.roles.master is not None
        ]

    def check_converged(self) -> None:
        """Check for one master, equal logs, equal histories."""
        nodes = {host: self.node(host) for host in self.world.machines}
        assert len(self.masters) == 1, self.masters
        self.world.checker.check_converged(
            self.world.logs(),
            {host: node.roles.mastership.history for host, node in nodes.items()},
        )
