"""Sizes of the campaigns: the gate's share, or all of it before a release.

`.ci/run` is the gate and has less than thirty minutes; `.ci/run release` sets TEST_TIER=release.
Without it, as on a laptop, the sizes are the gate's. (A name that begins with TRIOHA_ would be a
setting of every node.) A test that has no place in the gate at all
carries the marker `release`.

TEST_SHARE=1/50 takes that share of the longest campaigns of a release. `.ci/run release --sample`
estimates by it how long they take.

Seeds of simulations are drawn from the commit: each commit tries others, so that coverage adds up,
and the same commit tries the same.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

Tier = Literal["gate", "release"]
T = TypeVar("T")

BLOCKS = 1_000_000
"""Blocks of seeds that a commit may draw."""


def tier_of(environment: dict[str, str] | os._Environ[str]) -> Tier:
    """Return the tier that TEST_TIER asks for. Errors: ValueError for an unknown one."""
    match environment.get("TEST_TIER") or "gate":
        case "gate":
            return "gate"
        case "release":
            return "release"
        case other:
            raise ValueError(f"TEST_TIER is {other!r}, and must be gate or release")


def share_of(environment: dict[str, str] | os._Environ[str]) -> Fraction:
    """Return the share that TEST_SHARE asks for. Errors: ValueError unless 0 < share <= 1."""
    text = environment.get("TEST_SHARE") or "1"
    share = Fraction(text)
    if not 0 < share <= 1:
        raise ValueError(f"TEST_SHARE is {text!r}, and must be above 0 and at most 1")
    return share


TIER = tier_of(os.environ)
SHARE = share_of(os.environ)


def sized(gate: T, release: T) -> T:
    """Return the one that this run's tier asks for."""
    return release if TIER == "release" else gate


def campaign(gate: int, release: int) -> int:
    """Return the gate's number, or the share that is asked for of the release's."""
    return sized(gate, max(1, round(release * SHARE)))


def some_of(cases: Sequence[T]) -> Sequence[T]:
    """Return the share of these that is asked for, spread over all of them."""
    return cases[:: round(1 / SHARE)]


RAFT_SEEDS = sized(gate=200, release=2000)
"""Simulated Raft groups."""
PAIR_SEEDS = campaign(gate=200, release=100_000)
"""Simulated replica sets."""
MEMBER_SEEDS = sized(gate=12, release=60)
"""Whole Raft members on virtual time."""
RAFT_ROUNDS = sized(gate=24, release=100)
"""Faults in groups of real brokers, over all plans."""
SWITCHES = sized(gate=3, release=10)
"""Switches of each kind, planned and forced, under load."""
TRANSACTION_RUNS = campaign(gate=1, release=25)
"""Runs of two switches of each of the ten kinds, of whole nodes on virtual time: with open
transactions, with waiting timer messages, and with popped messages."""
TRANSACTION_DRILLS = campaign(gate=1, release=25)
"""Runs of two switches of real sets, and of two faults of real groups, with open transactions and
waiting timer messages. With those above 24 rounds of each in the gate, 600 in a release."""
SWITCHES_OF_THREE = sized(gate=1, release=3)
"""The same in a set of three."""
ROUNDS_OF_THREE = campaign(gate=8, release=300)
"""Switches in sets of three whose members are struck inside promotions."""
HOSTILE_ROUNDS = campaign(gate=20, release=4000)
"""Rounds of 5,000 frames of hostile peers, at every port of whole nodes."""
HOSTILE_MASTERS = campaign(gate=4, release=2000)
"""Rounds of 120 changed frames that a slave hears of its master and its name server."""
HOSTILE_LEADERS = campaign(gate=12, release=2000)
"""Rounds of 40 changed frames that a follower hears of the other members of its Raft group."""
HOSTILE_NAMESRVS = campaign(gate=4, release=2000)
"""Rounds of 60 changed answers that a master and its slave hear of their name server."""
HOSTILE_PARTS = sized(gate=1, release=min(20, HOSTILE_MASTERS, HOSTILE_LEADERS, HOSTILE_NAMESRVS))
"""Tests over which the rounds of hostile leaders, masters and name servers are spread."""
HOSTILE_FRAME_PARTS = sized(gate=1, release=min(40, HOSTILE_ROUNDS))
"""The same for the rounds of hostile frames."""
ORACLE_SEEDS = sized(gate=60, release=1000)
"""Generated stores and journals whose truth is known, for the reports of `trioha analyze`."""
WAITING_TIMERS = sized(gate=3_000_000, release=10_000_000)
"""Timer messages that wait at once. If memory held all of the gate's, they would exceed the test's
limit, too."""
KILL_ROUNDS = sized(gate=12, release=50)
"""kill -9 of a master, its slave, or both, over all roles and settings."""
PLANNED_STEPS = sized(
    gate=("hand over", "promote"),
    release=("ticket", "pause", "catch up", "hand over", "promote", "follow", "verify"),
)
"""Steps of a planned switch after which a fault strikes."""
FORCED_STEPS = sized(gate=("ticket", "promote"), release=("ticket", "promote", "verify"))
"""Steps of a forced switch after which a fault strikes."""


def commit() -> str:
    """Return the commit under test; TEST_COMMIT overrides it. Without a repository: "none".

    Where CI is set, that is an error: all commits would draw the same seeds.
    """
    return os.environ.get("TEST_COMMIT") or _head()


@functools.cache
def _head() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout.strip()
    if os.environ.get("CI"):
        raise RuntimeError(f"no commit to draw seeds from: {done.stderr.strip()}")
    return "none"


def drawn_seeds(kind: str, count: int, commit_id: str = "") -> range:
    """Return `count` seeds in a row, drawn from the commit.

    In a row, so that the range can be run again: `just sim-raft --from N --to M`.
    """
    digest = sha256(f"{kind} {commit_id or commit()}".encode()).digest()
    first = int.from_bytes(digest[:8], "big") % BLOCKS * count
    return range(first, first + count)


def drawn_cases(kind: str, cases: Sequence[T], count: int = 1) -> Sequence[T]:
    """Return `count` of these in a row, drawn from the commit; before a release all of them.

    `TEST_TIER=release pytest TEST` runs all, too.
    """
    if TIER == "release":
        return cases
    first = drawn_seeds(kind, 1).start
    return [cases[number % len(cases)] for number in range(first, first + count)]


def hostile_rounds(kind: str, count: int, part: int = 0, parts: int = 1) -> range:
    """Rounds of hostile peers, or those that HOSTILE_ROUND=N:M names.

    A release runs all of a part's, the gate those that its commit draws. Errors: ValueError when
    there are none.
    """
    if wanted := os.environ.get("HOSTILE_ROUND"):
        first, _, last = wanted.partition(":")
        rounds = range(int(first), int(last or first) + 1)
    elif TIER == "gate":
        rounds = drawn_seeds(kind, count)
    else:
        rounds = range(part, count, parts)
    if not rounds:
        raise ValueError(f"no round of {kind} in part {part} of {parts}: a test of nothing")
    return rounds
