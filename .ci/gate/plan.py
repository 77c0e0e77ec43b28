"""The plans of the gate and of a release: steps, paths, limits, allowed skips. No I/O.

A step is a pytest run, a command, or one of the jobs in `__main__`. Its limit in the gate is at
least three times what it takes on the machine whose timings are kept: others are half as fast. One
step that hangs up to its limit leaves all others their time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Build = Literal["pure", "compiled"]

GATE_LIMIT_S = 90 * 60
GRACE_S = 30
"""Time for a step that is over its limit to write its report, before it is killed."""

COMPILED_PATHS = (
    "tests/wire",
    "tests/remoting",
    "tests/security",
    "tests/ha",
    "tests/store",
    "tests/broker",
    "tests/services",
    "tests/client",
    "tests/namesrv",
    "tests/dledger",
    "tests/bench/cost",
    "tests/test_compiled.py",
)
"""Tests of packages that hold compiled modules, or are built on them."""

REAL_PATHS = (
    "tests/failover_drills",
    "tests/raft_drills",
    "tests/reliability",
    "tests/analysis",
    "tests/cli",
    "tests/client",
    "tests/clients",
    "tests/console",
    "tests/interop",
    "tests/peers",
    "tests/services",
    "tests/testing",
    "tests/test_compiled.py",
    "tests/ci",
    "tests/test_mutation_probe.py",
)
"""Tests of real processes: the folders with tests marked `slow` or `interop`."""

SIMULATION_PATHS = ("tests/sim",)

QUICK = "not slow and not interop"


@dataclass(frozen=True)
class Sample:
    """A small share of a long step's campaign. The time of the whole is estimated from its time."""

    taken: int
    whole: int
    unit: str
    """The plural noun of what is counted."""
    tests: tuple[str, ...] = ()
    """Node ids of the tests that grow with the campaign. All others run as in the whole step."""
    command: tuple[str, ...] = ()
    """The smaller command of a script."""

    def __str__(self) -> str:
        return f"{self.taken:,} of {self.whole:,} {self.unit}"


@dataclass(frozen=True)
class Step:
    """One part of a run. Without a subclass: the job of that name in `__main__`."""

    name: str
    what: str
    limit_s: int
    sample: Sample | None = field(default=None, kw_only=True)
    """For a step that takes too long to be timed often."""


@dataclass(frozen=True)
class Tests(Step):
    """One pytest run."""

    marker: str = ""
    paths: tuple[str, ...] = ("tests",)
    build: Build = "compiled"
    test_limit_s: int = 300
    workers: int = 2
    """Processes that run tests at once: one for each core where tests compute."""
    allowed_skips: tuple[str, ...] = ()
    """Node ids of tests that may be skipped even where CI is set."""

    @property
    def limits(self) -> tuple[str, ...]:
        """Options of pytest: a test's limit, and when a test that outlives it shows its stacks.

        That is when the step's time is over: some tests set longer limits themselves, and
        faulthandler can end a process of which compiled code runs.
        """
        return f"--timeout={self.test_limit_s}", f"-ofaulthandler_timeout={self.limit_s}"


@dataclass(frozen=True)
class Script(Step):
    """One command in the repository's root, with the virtual environment's programs first."""

    command: tuple[str, ...] = ()


SETUP = Step("setup", "the virtual environment, programs, rights", 420)
STATIC = Step("static", "style, types, direction of imports", 540)
BUILD = Step("build", "the wheel and a demo from it, stock clients, compiled modules", 540)
SAME_FILES = Step("files", "the checkout is as it was", 60)

GATE: tuple[Step, ...] = (
    SETUP,
    STATIC,
    BUILD,
    Tests(
        *("quick", "tests without real clusters, plain Python", 1500, QUICK),
        build="pure",
        workers=3,  # some of them start processes, and wait
    ),
    Tests("compiled", "the same where compiled modules are", 600, QUICK, COMPILED_PATHS, workers=3),
    Tests("simulations", "drawn seeds, known faults", 360, "slow", SIMULATION_PATHS),
    Tests(
        *(
            "real",
            "real processes, stock clients, Java, Spark",
            3600,
            "slow or interop",
            REAL_PATHS,
        ),
        test_limit_s=1000,  # one starts Spark three times: 107 s on a slow machine, by itself
        workers=4,  # half of their time these tests wait
    ),
    SAME_FILES,
)

_HOUR_S = 3600
_RELEASE_TEST_S = 50 * 60


def _real(name: str, what: str, hours: float, *folders: str, sample: Sample | None = None) -> Tests:
    paths = tuple(f"tests/{folder}" for folder in folders)
    limit_s = int(hours * _HOUR_S)
    marker = "slow or interop"
    return Tests(name, what, limit_s, marker, paths, test_limit_s=_RELEASE_TEST_S, sample=sample)


_QUICK_SAMPLE = Sample(
    *(5, 25, "runs of whole nodes on virtual time"),
    (
        "tests/services/ha/test_pops.py::test_popped_messages_survive_switches",
        "tests/services/ha/test_timers.py::test_timers_survive_switches",
        "tests/services/ha/test_transactions.py::test_transactions_survive_switches",
        "tests/services/raft/test_pops.py::test_popped_messages_survive_elections",
        "tests/services/raft/test_timers.py::test_timers_survive_elections",
        "tests/services/raft/test_transactions.py::test_transactions_survive_elections",
    ),
)

RELEASE: tuple[Step, ...] = (
    SETUP,
    STATIC,
    BUILD,
    Tests(
        *("quick", "tests without real clusters, plain Python", 2 * _HOUR_S, QUICK),
        build="pure",
        test_limit_s=_RELEASE_TEST_S,
        sample=_QUICK_SAMPLE,
    ),
    Tests(
        *("compiled", "all of them again, compiled", 2 * _HOUR_S, QUICK),
        test_limit_s=_RELEASE_TEST_S,
        sample=_QUICK_SAMPLE,
    ),
    Tests(
        *("simulations", "all seeds of replica sets and Raft groups, known faults", 6 * _HOUR_S),
        *("slow", SIMULATION_PATHS),
        test_limit_s=5 * _HOUR_S,
        sample=Sample(
            *(2_000, 100_000, "seeds of replica sets"),
            (
                "tests/sim/pair/test_seeds.py"
                "::test_many_seeds_hold_and_meet_what_they_are_there_for",
            ),
        ),
    ),
    _real("members", "whole Raft members on virtual time", 1, "services", "testing"),
    _real(
        *("switches", "switches under load, a fault at every step", 4, "failover_drills"),
        sample=Sample(
            *(1, 25, "shares of its drawn rounds"),
            (
                "tests/failover_drills/test_rounds_of_three.py"
                "::test_members_die_between_the_steps_of_a_promotion_and_nothing_is_lost",
                "tests/failover_drills/test_transactions.py"
                "::test_transactions_and_timers_live_through_kills_and_planned_switches",
            ),
        ),
    ),
    _real(
        *("groups", "a hundred faults in real Raft groups, controls of the rig", 2, "raft_drills"),
        sample=Sample(
            *(1, 25, "runs with transactions"),
            (
                "tests/raft_drills/test_transactions.py"
                "::test_transactions_and_timers_live_through_kills_and_power_losses",
            ),
        ),
    ),
    _real("reliability", "kill rounds, damage, failing disks, bad clients", 2, "reliability"),
    _real("analysis", "every report on both engines, Spark clusters", 2, "analysis"),
    _real(
        *("clients", "stock clients, the console in a terminal", 1),
        *("cli", "client", "clients", "console", "test_compiled.py"),
        *("ci", "test_mutation_probe.py"),
    ),
    _real(
        *("peers", "20 million frames of hostile peers, Java's stores", 9, "peers"),
        sample=Sample(
            *(40, 4_000, "rounds of hostile frames"),
            (
                "tests/peers/test_hostile_frames.py"
                "::test_no_frame_of_any_peer_ends_a_node_or_is_a_fault",
                "tests/peers/test_hostile_leaders.py::test_no_word_of_a_leader_ends_its_follower",
                "tests/peers/test_hostile_masters.py"
                "::test_no_word_of_a_name_server_ends_a_broker_or_fences_a_proven_master",
                "tests/peers/test_hostile_masters.py::test_no_word_of_a_master_ends_its_slave",
            ),
        ),
    ),
    _real(
        *("interop", "Java brokers, Java and Go clients, RocketMQ's own tests", 3, "interop"),
        sample=Sample(
            *(4, 48, "classes of RocketMQ's tests"),
            ("tests/interop/test_rocketmq_tests.py::test_what_passes_on_java_passes_here",),
        ),
    ),
    Script(
        *("100-switches", "100 switches of each kind", 2 * _HOUR_S),
        ("just", "drill", "--rounds", "100"),
        sample=Sample(
            10, 100, "switches of each kind", command=("just", "drill", "--rounds", "10")
        ),
    ),
    Script(
        *("1000-faults", "1,000 faults in real Raft groups", 6 * _HOUR_S),
        ("just", "raft-drill", "--rounds", "1000"),
        sample=Sample(40, 1_000, "faults", command=("just", "raft-drill", "--rounds", "40")),
    ),
    Script(
        *("pythons", "quick tests on each Python at hand, plain and compiled", 3 * _HOUR_S),
        ("just", "pythons"),
    ),
    Script(
        *("mutations", "small faults put into the product are noticed", 6 * _HOUR_S),
        ("python", "tests/mutation_probe.py"),
    ),
    Script(
        *("coverage", "branch coverage of both tiers, into docs/testing.md", 8 * _HOUR_S),
        ("just", "coverage"),
    ),
    SAME_FILES,
)

TIERS = {"gate": GATE, "release": RELEASE}


def named(steps: tuple[Step, ...], names: list[str]) -> tuple[Step, ...]:
    """Return these steps in the plan's order. Errors: ValueError for an unknown name."""
    known = [step.name for step in steps]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown step {name!r}; there are {', '.join(known)}")
    return tuple(step for step in steps if step.name in names)
