"""Rounds of switches in a set of three whose members are struck between two steps of a promotion.

`python -m failover_drills.drill --members 3 --rounds 300` from tests/ is the release run.

A round draws everything from its seed: the kind of switch, its target, how the master goes, which
member is struck after which step and with which signal, which links are cut, whether the name
server is restarted, and in which order the operator tries what docs/failover.md names. The operator
uses `--force` only where no acknowledged message can be on silent members alone: where two members
answer, or where all logs were equal when the master went.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from failover_drills.interrupted import fail_over, shorten, stop_process
from failover_drills.strikable_steps import MASTER_STEPS, OTHER_STEPS, TARGET_STEPS
from failover_drills.traps import Trap
from failover_drills.watched_set import TOPIC, WatchedSet
from support.clusters.replica_set import SETTINGS
from support.histories.senders import Sender, StockSender
from support.histories.stood_still import told, wait_for_names
from support.peers.clients import Clients, StockConsumer
from support.processes.admin import wait_for_route
from support.processes.namespaces import Net, open_net
from support.processes.rig import Node, Processes, ProcessFailed, running_processes

from trioha.failover.outcome import Result

QUICK = {
    **SETTINGS,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 1500,
    "registerNameServerPeriod": 10_000,
}
ROUNDS_PER_SET = 50
"""Then a new set begins: its logs are read whole to be judged."""
HOSTS = 4
"""Three members and a name server."""
READERS = "readers-cpp"
READ_S = 30.0
"""If the consumer is given nothing for so long, it has read all that it is ever given."""
SERVES_S = 1.5
"""If no send is acknowledged for so long, the operator tries the next thing."""
BY_ITSELF_S = 25.0
"""If all nodes are back and the set is not whole after so long, the operator steps in."""
REPAIRS_MAX = 6
REGISTERED_S = 2.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
TRIED = 3
"""Number of `TRIES` drawn for a round, in a drawn order."""
TRIES = ("again", "old back", "struck back", "force")

Say = Callable[[str], None]


@attrs.frozen
class Draw:
    """All that is drawn for one round."""

    kind: str
    target: int
    """The number of the slave that is promoted, 0 or 1."""
    level: bool
    """Sends pause until all logs are equal; then the master goes."""
    master_goes: signal.Signals
    """The signal that ends the master in a forced switch."""
    struck: str
    """"target", "other" or "master"."""
    step: str
    number: signal.Signals
    cut: str
    """The link that is cut while the switch lasts: "target", "other", "both" or ""."""
    forgets: str
    """The name server is killed and started "before" the switch, "after" it, or not at all ("")."""
    tries: tuple[str, ...]
    """The operator tries these one after the other until sends are acknowledged again."""


def draw_round(seed: int, number: int, *, cuts: bool) -> Draw:
    """Round `number` of a seed, whatever the rounds before it did."""
    rng = random.Random(f"{seed}/{number}")
    kind = rng.choice(("planned", "forced", "forced"))
    struck = rng.choice(("target", "target", "target", "other", "master"))
    if struck == "master" and kind == "forced":
        struck = "target"
    # Most strikes fall between the request to promote and the registration.
    inner = TARGET_STEPS[2:] if rng.random() < 0.7 else TARGET_STEPS
    steps = {"target": inner, "other": OTHER_STEPS, "master": MASTER_STEPS}[struck]
    return Draw(
        kind=kind,
        target=rng.randrange(2),
        level=rng.random() < 0.5,
        master_goes=rng.choice(SIGNALS),
        struck=struck,
        step=rng.choice(steps),
        number=rng.choice(SIGNALS),
        cut=rng.choice(("target", "other", "both", "", "", "")) if cuts else "",
        forgets=rng.choice(("before", "after", "", "")),
        tries=tuple(rng.sample(TRIES, TRIED)),
    )


class Rounds:
    """One set of three over many rounds, with a C++ producer and consumer."""

    def __init__(
        self, processes: Processes, seed: int, *, net: Net | None = None, say: Say = print
    ) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self._net = net
        self._say = say
        self._clients = clients = Clients(processes)
        self.stood_still: list[str] = []
        """A sentence for each stock client whose own library stopped working."""

        def stock(namesrv: str) -> list[Sender]:
            return [StockSender("cpp", clients.producer("cpp", namesrv, timeout_ms=3000), TOPIC)]

        self.watched = WatchedSet(processes, settings=QUICK, net=net, more_senders=stock)
        self.reader = self._start_reader()

    def _start_reader(self) -> StockConsumer:
        return self._clients.consumer("cpp", self.watched.set.namesrv, READERS, TOPIC)

    def run(self, numbers: range) -> None:
        """Errors: AssertionError when a round leaves a set that does not become whole."""
        for number in numbers:
            drawn = draw_round(self.seed, number, cuts=self._net is not None)
            began_s = time.monotonic()
            self._say(f"round {number} at {began_s:.1f}: {drawn}")
            _Round(self.watched, drawn, self._net, self.counts, self._say).live()
            self.seconds.append(time.monotonic() - began_s)
            self._say(f"  {self.seconds[-1]:.1f} s")

    def account(self) -> dict[str, Any]:
        """Judge what happened. Errors: AssertionError with every finding."""
        watched = self.watched
        missed: list[ProcessFailed] = []

        def read_all() -> None:
            wanted = watched.acknowledged
            try:
                fresh = wait_for_names(
                    self.reader, wanted, self._start_reader, READ_S, while_any_comes=True
                )
            except ProcessFailed as failure:
                missed.append(failure)
            else:
                if fresh is not None:
                    self.stood_still.append(told(self.reader, fresh))

        # The log is judged first: a fault there explains why a consumer misses messages.
        verdict = watched.account(read_all)
        for failure in missed:
            raise failure
        statuses = Counter(one.status for one in watched.attempts)
        return {
            "seed": self.seed,
            "rounds": len(self.seconds),
            **self.counts,
            "acknowledged": verdict.acknowledged,
            "acknowledged_to_cpp": sum(one.is_ok for one in watched.senders[1].attempts),
            "sends": dict(statuses),
            **{kind.replace(" ", "_"): count for kind, count in verdict.counts().items()},
            "offset_answers": len(watched.probes.told),
            "commits": len(watched.probes.commits),
            "slowest_round_s": round(max(self.seconds), 1),
            "stood_still": self.stood_still,
        }


class _Round:
    """One round."""

    def __init__(
        self, watched: WatchedSet, drawn: Draw, net: Net | None, counts: Counter[str], say: Say
    ) -> None:
        self.watched = watched
        self.drawn = drawn
        self.net = net
        self.counts = counts
        self.say = say
        self.master = watched.set.master
        slaves = [node for node in watched.nodes if node is not self.master]
        self.target = slaves[drawn.target]
        self.other = slaves[1 - drawn.target]
        victim = {"target": self.target, "other": self.other, "master": self.master}[drawn.struck]
        self.trap = Trap(victim, drawn.step, drawn.number)
        self.struck = False
        self.away: set[Node] = set()
        """Members that were killed or stopped, and are not back."""
        self.is_level = drawn.level and drawn.kind == "forced"
        """No message can have been acknowledged by silent members alone."""

    def live(self) -> None:
        """Run the fault, the operator's tries, and the return of every member."""
        drawn = self.drawn
        self.counts[drawn.kind] += 1
        if self.is_level:
            self.watched.make_level()
        if drawn.kind == "forced":
            self._go(self.master, drawn.master_goes)
        self.watched.resume()
        if drawn.forgets == "before":
            self._forget()
        self._cut()
        self.trap.arm()
        served = self._attempt(to=self.watched.name_of(self.target), force=False)
        if drawn.forgets == "after":
            self._forget()
        for what in [] if served else drawn.tries:
            self._try(what)
            if self.watched.acknowledges(20, SERVES_S):
                break
        self._end()

    def _attempt(self, *, to: int | None, force: bool) -> bool:
        """Run one `trioha failover`; return whether it is done and struck no member."""
        outcome = fail_over(self.watched.set, to=to, force=force)
        self.say(f"  {outcome.result.value}: {outcome.message}")
        self.counts[f"switch_{outcome.result.value}"] += 1
        if self.trap.struck:
            self._note_struck()
        return outcome.result is Result.DONE and not self.trap.struck

    def _note_struck(self) -> None:
        if not self.struck:
            self.struck = True
            self.trap.wait_struck()
            self.away.add(self.trap.node)
            self.counts["struck"] += 1
            self.counts[f"struck {self.drawn.step}"] += 1

    def _try(self, what: str) -> None:
        """One thing that docs/failover.md names after a refusal or an unknown outcome."""
        self.say(f"  the operator tries: {what}")
        if what == "again":
            self._attempt(to=None, force=False)
        elif what == "force" and self._may_force():
            self.counts["forces"] += 1
            self._attempt(to=None, force=True)
        elif what == "old back":
            self._back(self.master)
        elif what == "struck back":
            self._back(self.trap.node)

    def _may_force(self) -> bool:
        return len(self.away) < 2 or self.is_level

    def _go(self, node: Node, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            node.kill()
        else:
            stop_process(node)
        self.away.add(node)

    def _back(self, node: Node) -> None:
        if node in self.away:
            self.watched.bring_back(node)
            self.away.remove(node)
            self.is_level = False

    def _forget(self) -> None:
        self.counts["name_servers_wiped"] += 1
        for namesrv in self.watched.set.namesrvs:
            namesrv.kill()
            namesrv.start()
        # An operator would wait for that, too; if no member can register, no route comes.
        with contextlib.suppress(ProcessFailed):
            wait_for_route(self.watched.set.namesrv, TOPIC, REGISTERED_S)

    def _cut(self) -> None:
        if self.net is None or not self.drawn.cut:
            return
        self.counts["cuts"] += 1
        hosts = self.net.hosts
        for side, node in (("target", self.target), ("other", self.other)):
            if self.drawn.cut in (side, "both"):
                master, member = (hosts[self.watched.name_of(one)] for one in (self.master, node))
                self.net.separate(master, member)

    def _end(self) -> None:
        """Bring all members back; the set becomes whole by itself, or after an operator's try."""
        self.say(f"  everybody comes back at {time.monotonic():.1f}")
        if self.net is not None:
            self.net.heal()
        if self.trap.disarm():
            self._note_struck()
        for node in list(self.away):
            self._back(node)
        for repair in range(REPAIRS_MAX + 1):
            try:
                self.watched.wait_whole(BY_ITSELF_S if repair == 0 else BY_ITSELF_S / 4)
            except AssertionError:
                if repair == REPAIRS_MAX:
                    raise
                self.counts["repairs_by_the_operator"] += 1
                self._attempt(to=None, force=False)
            else:
                return


def run_rounds(
    root: Path, seed: int, numbers: range, *, cuts: bool, say: Say = print
) -> dict[str, Any]:
    """One set, its rounds and its account. Errors: AssertionError, with the seed in its notes."""
    with contextlib.ExitStack() as stack:
        shorten(stack.enter_context(pytest.MonkeyPatch.context()))
        net = stack.enter_context(open_net(HOSTS)) if cuts else None
        processes = stack.enter_context(running_processes(root))
        try:
            rounds = Rounds(processes, seed, net=net, say=say)
            rounds.run(numbers)
            return rounds.account()
        except AssertionError as error:
            error.add_note(f"TEST_SEED={seed}, rounds {numbers}, stores and logs in {root}")
            raise


def run_many(root: Path, seed: int, rounds: int, *, cuts: bool, say: Say = print) -> dict[str, Any]:
    """Set after set, and one account of them all.

    Errors: as `run_rounds`; AssertionError with an account of too little.
    """
    total: Counter[str] = Counter()
    sends: Counter[str] = Counter()
    slowest_s = 0.0
    stood_still: list[str] = []
    for first in range(0, rounds, ROUNDS_PER_SET):
        numbers = range(first, min(rounds, first + ROUNDS_PER_SET))
        home = root / f"set-{first}"
        home.mkdir()
        account = run_rounds(home, seed, numbers, cuts=cuts, say=say)
        say(json.dumps(account))
        sends.update(account.pop("sends"))
        slowest_s = max(slowest_s, account.pop("slowest_round_s"))
        stood_still += account.pop("stood_still")
        account.pop("seed")
        total.update(account)
        shutil.rmtree(home)
    # Rounds that did less than this prove nothing by losing nothing.
    assert total["rounds"] == rounds > 0, total
    assert total["struck"] >= rounds // 3, total
    assert total["acknowledged"] >= 40 * rounds, total
    assert total["acknowledged_to_cpp"] >= 2 * rounds, total
    assert total["commits"] >= 10 * rounds, total
    return {
        "seed": seed,
        **total,
        "sends": dict(sends),
        "slowest_round_s": slowest_s,
        "stood_still": stood_still,
    }
