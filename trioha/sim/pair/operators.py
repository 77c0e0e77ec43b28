"""Operators: people who look at the set now and then and fail it over, well advised or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trioha.failover.asking import Answer, Failed, Flow, Reply, Wait
from trioha.failover.engine import FailoverEngine, Order
from trioha.failover.gathering import gather_facts
from trioha.failover.outcome import Outcome, Result
from trioha.failover.plan import Kind, make_plan
from trioha.sim.pair.messages import BROKER
from trioha.sim.pair.world import World
from trioha.wire.remoting_command import RemotingCommand

LOOK_MS_MEAN = 2500
RESCUE_MS_MEAN = 300
FORCE_CHANCE = 0.5
PATIENCE_S = 0.7
TICKET_BYTES = 8

T = TypeVar("T")


class Operator:
    """Fails over at random; repeats an attempt of which it does not know how it ended."""

    def __init__(
        self, world: World, name: str, *, bold: bool, look_ms_mean: int = LOOK_MS_MEAN
    ) -> None:
        self._world = world
        self._look_ms_mean = look_ms_mean
        self._name = name
        self._bold = bold
        """Uses --force when a plan is refused."""
        self._over = False

    def start(self) -> None:
        self._rest()

    def stop(self) -> None:
        self._over = True

    def _rest(self) -> None:
        delay_ms = 1 + int(self._world.rng.expovariate(1 / self._look_ms_mean))
        self._world.scheduler.after(delay_ms, self._act)

    def _act(self) -> None:
        if not self._over:
            force = self._bold and self._world.rng.random() < 0.3
            self._drive(_attempt(self._world, self._name, force=force))

    def _drive(self, flow: Flow[str]) -> None:
        def conclude(words: str) -> None:
            self._world.scheduler.tell(self._name, words)
            self._rest()

        drive(self._world, self._name, flow, conclude)


def drive(
    world: World,
    host: str,
    flow: Flow[T],
    conclude: Callable[[T], None],
    send: list[Reply] | None = None,
) -> None:
    """Carry out what the flow asks for, step after step, from that host."""
    try:
        wanted = flow.send(send) if send is not None else next(flow)
    except StopIteration as end:
        conclude(end.value)
        return
    if isinstance(wanted, Wait):
        world.scheduler.after(
            int(wanted.seconds * 1000), lambda: drive(world, host, flow, conclude, [])
        )
        return
    replies: dict[int, Reply] = {}

    def hear(index: int, answer: object) -> None:
        replies[index] = _reply_of(answer)
        if len(replies) == len(wanted):
            drive(world, host, flow, conclude, [replies[number] for number in range(len(wanted))])

    for index, one in enumerate(wanted):
        request = one.command()
        world.ask(
            host,
            one.address,
            request,
            lambda answer, index=index: hear(index, answer),  # type: ignore[misc]
            int(one.patience_s * 1000),
        )


def _reply_of(answer: object) -> Reply:
    if not isinstance(answer, RemotingCommand):
        return Failed("no answer in time")
    return Answer.of(answer)


def _attempt(world: World, operator: str, *, force: bool) -> Flow[str]:
    to = world.rng.choice((None, None, *range(len(world.machines))))
    outcome = yield from attempt(world, operator, to=to, force=force)
    return f"{outcome.result.value}: {outcome.message[:200]}"


def attempt(world: World, operator: str, *, to: int | None, force: bool) -> Flow[Outcome]:
    """Look, then do it: the facts of the look decide what the judge lets be lost."""
    namesrvs = (world.namesrv.host,)
    if force:
        facts = yield from gather_facts(BROKER, namesrvs, patience_s=PATIENCE_S)
        plan, honest = make_plan(facts, to=to, force=True), make_plan(facts, to=to)
        overrides = bool(honest.refusals)
    else:
        plan, overrides = None, False
    order = Order(
        broker_name=BROKER,
        namesrvs=namesrvs,
        ticket_id=world.rng.randbytes(TICKET_BYTES).hex(),
        operator=operator,
        to=to,
        force=force,
        confirmed=plan,
        patience_s=PATIENCE_S,
    )
    if overrides:
        world.overrides.add(order.ticket_id)
    engine = FailoverEngine(
        order,
        now_ms=lambda: world.scheduler.now_ms,
        wall_ms=lambda: world.scheduler.now_ms,
        on_step=lambda step: world.on_step(),
    )
    outcome: Outcome = yield from engine.run()
    counts = world.checker.counts
    if outcome.result is Result.DONE:
        counts.planned += outcome.plan.kind is Kind.PLANNED
        counts.forced += outcome.plan.kind is Kind.FORCED
    return outcome


class ByTheBook(Operator):
    """Fails over whenever there is no master, first without `--force`, as docs/failover.md says."""

    def __init__(self, world: World, *, bold: bool) -> None:
        super().__init__(world, "operator-0", bold=bold, look_ms_mean=RESCUE_MS_MEAN)

    def _act(self) -> None:
        nodes = [machine.running for machine in self._world.machines.values()]
        if self._over:
            return
        if any(node is not None and node.roles.master is not None for node in nodes):
            self._rest()
        else:
            force = self._bold and self._world.rng.random() < FORCE_CHANCE
            self._drive(_attempt(self._world, self._name, force=force))


class Rescuer(ByTheBook):
    """Operator that comes after all faults are healed, and may use `--force`."""

    def __init__(self, world: World) -> None:
        super().__init__(world, bold=True)
