"""The gate, and the campaigns before a release.

.ci/run                     everything that must hold, from an empty checkout, in half an hour
.ci/run STEP ...            some of its steps
.ci/run release             the campaigns at full size; a run that was stopped goes on where it was
.ci/run release PART ...    some of its parts, once more
.ci/run release --sample    the same, but a small share of the longest parts: how long they take
.ci/run release --list      what there is, and how long each took when it was timed
.ci/run release --check     whether all parts have passed for the commit; `just tag` asks this
.ci/run timings             keep the last run's timings as those that the next is compared with
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from pathlib import Path
from types import FrameType

from gate import plan, prepare, timings
from gate.passed import PassedParts, commit, differences, state_of_checkout
from gate.running import OUT, ROOT, CommandFailed, kill_all
from gate.steps import Steps, say

KEPT = ROOT / ".ci" / "timings"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=".ci/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="STEP")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--again", action="store_true", help="forget which parts have passed")
    parser.add_argument("--check", action="store_true", help="only say which parts have not passed")
    parser.add_argument(
        "--sample",
        action="store_true",
        help="run a share of each long part, and estimate its time; it has not passed then",
    )
    options = parser.parse_intermixed_args(words)
    tier, names = "gate", list(options.words)
    if names[:1] == ["release"]:
        tier, names = "release", names[1:]
    if names == ["timings"]:
        return keep_timings()
    try:
        steps = plan.named(plan.RELEASE if tier == "release" else plan.GATE, names)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(listing(steps if names else plan.TIERS[tier], timings.load(kept(tier)))))
        return 0
    if tier == "gate" and (options.sample or options.check):
        word = "sample" if options.sample else "check"
        parser.error(f"--{word} is for a release: the gate has no parts that long")
    try:
        if options.check:
            return check_release(steps if names else plan.RELEASE)
        if tier == "gate":
            return run_gate(steps if names else plan.GATE)
        again = options.again or bool(names)
        return run_release(steps if names else plan.RELEASE, again=again, samples=options.sample)
    except CommandFailed as error:
        print(error, file=sys.stderr)
        return 1


def run_gate(steps: tuple[plan.Step, ...]) -> int:
    """Run all of them, whatever fails on the way; only without packages nothing can be judged."""
    run = Steps("gate", limit_s=plan.GATE_LIMIT_S - 2 * plan.GRACE_S)
    for step in steps:
        run.carry_out(step)
        if step != plan.STATIC:
            run.join()
        if step == plan.SETUP and not prepare.STAMP.exists():
            break
    run.join()
    return account(run, "gate")


def run_release(steps: tuple[plan.Step, ...], *, again: bool, samples: bool = False) -> int:
    """Run the parts that have not passed for the sources as they are.

    With `samples`, of a part that has a sample no more than that; it has not passed then. A release
    ends when the sources change: what follows would be a release of others.

    Errors: CommandFailed where git does not work.
    """
    run = Steps("release", samples=samples)
    if plan.SETUP in steps and not run.carry_out(plan.SETUP):
        return account(run, "release")  # a release needs everything
    state = state_of_checkout()
    passed = PassedParts(OUT / "passed", state)
    for step in steps:
        if again:
            passed.forget(step.name)
    for step in steps:
        if step == plan.SETUP:
            continue
        if step.name in passed:
            say(f"{step.name}: has passed for these sources")
            continue
        held = run.carry_out(step)
        if step == plan.STATIC:
            held = run.join()
        save_times(run, "release")
        if state_of_checkout() != state:
            run.fail(step, "the sources changed while it ran; `git status` shows where")
            break
        if held and not (samples and step.sample):
            passed.add(step.name)
    return account(run, "release")


def check_release(steps: tuple[plan.Step, ...]) -> int:
    """Print which parts have not passed for the commit; return 0 when all have.

    Errors: CommandFailed where git does not work.
    """
    head = commit()[:12]
    if differences():
        print(f"no release of {head}: the sources differ from it; `git status` shows where")
        return 1
    passed = PassedParts(OUT / "passed", state_of_checkout())
    missing = [step.name for step in steps if step != plan.SETUP and step.name not in passed]
    if missing:
        print(f"no release of {head}: not passed: {', '.join(missing)}; run .ci/run release")
        return 1
    print(f"all parts of a release have passed for {head}")
    return 0


def account(run: Steps, tier: str) -> int:
    """Print tables and totals; return the exit code."""
    outcome = run.outcome
    last = timings.load(kept(tier))
    save_times(run, tier)
    say("timings, beside those that were kept")
    for table in (timings.slowest_table, timings.folder_table, timings.step_table):
        print("\n".join(table(outcome.times, last)), end="\n\n")
    print("\n".join(["skipped:", *outcome.skips] if outcome.skips else ["skipped: nothing"]))
    print("\n".join(["noted:", *outcome.notes] if outcome.notes else ["noted: nothing"]))
    if outcome.failures:
        say("FAILED")
        print("\n".join(outcome.failures))
    else:
        say("all held")
    print(outcome.line, flush=True)
    return 1 if outcome.failures else 0


def save_times(run: Steps, tier: str) -> None:
    """Save the times of its steps beside those of runs before it."""
    kept_times = timings.merged(timings.load(last_run(tier)), run.outcome.times)
    timings.save(last_run(tier), kept_times)


def listing(steps: tuple[plan.Step, ...], times: timings.Run) -> list[str]:
    """Return a line for each step, with how long it took when it was timed, or its limit.

    An estimate says that it is one, and from what; the time of a step that failed says so.
    """
    lines = [f"{'part':<14}{'tests':>7}{'minutes':>11}{'of CPU':>8}  what"]
    wall_s = cpu_s = 0.0
    for step in steps:
        known = times.get(step.name)
        if known is None:
            limit = f"< {math.ceil(step.limit_s / 60)}"
            lines.append(f"{step.name:<14}{'-':>7}{limit:>11}{'':>8}  {step.what}")
            continue
        wall_s += known.wall_s
        cpu_s += known.cpu_s
        if known.estimated_from:
            cells = f"{f'about {known.wall_s / 60:.0f}':>11}{known.cpu_s / 60:>8.0f}"
            note = f" (estimated from {known.estimated_from})"
        else:
            cells, note = f"{known.wall_s / 60:>11.1f}{known.cpu_s / 60:>8.1f}", ""
        if known.failed:
            note += " (failed)"
        lines.append(f"{step.name:<14}{known.passed or '-':>7}{cells}  {step.what}{note}")
    sums = f"{'':<14}{'':>7}{wall_s / 60:>11.1f}{cpu_s / 60:>8.1f}"
    lines.append(f"{sums}  timed or estimated; the others have a limit")
    return lines


def keep_timings() -> int:
    """Take over the steps that the last runs timed; the others stay as they were."""
    for tier in plan.TIERS:
        now = timings.load(last_run(tier))
        if now:
            timings.save(kept(tier), timings.merged(timings.load(kept(tier)), now))
            print(f"{kept(tier)}: {', '.join(now)}")
    return 0


def kept(tier: str) -> Path:
    """Return the path of the timings that a run is compared with."""
    return KEPT / f"{tier}.json"


def last_run(tier: str) -> Path:
    return OUT / f"timings-{tier}.json"


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    # In the background of a script it would be ignored, here and in every step that is interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        kill_all()
