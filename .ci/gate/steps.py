"""Carry out steps one after the other, and remember what came of them."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gate import plan, prepare, timings
from gate.junit import Case, NoReport, Totals, read_report, totals
from gate.passed import differences
from gate.running import OUT, ROOT, VENV, Budget, CommandFailed, check, environment, run


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


@dataclass
class Outcome:
    """The results of a run so far."""

    times: timings.Run = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    failures: list[str] = field(default_factory=list)
    """Sentences, each begins with the name of its step."""
    skips: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences for the report, from tests that passed."""

    @property
    def line(self) -> str:
        """Totals of all tests; a step that failed without a failed test counts as one."""
        return str(self.totals)


class Steps:
    """One run of a tier."""

    def __init__(self, tier: str, *, samples: bool = False, limit_s: float = math.inf) -> None:
        """`samples`: run no more than the sample of a step that has one. `limit_s`: for all steps
        together; the last ones have what those before them left."""
        self.outcome = Outcome()
        self._all = Budget.of(limit_s)
        self._tier = tier
        self._samples = samples
        self._before: str | None = None
        self._beside: list[_Background] = []
        self._jobs: dict[str, Callable[[Budget], None]] = {
            plan.SETUP.name: prepare.set_up,
            plan.BUILD.name: prepare.build_all,
            plan.SAME_FILES.name: self._check_files,
        }

    def carry_out(self, step: plan.Step) -> bool:
        """Run one step to its end; whether it held. `static` only begins here: see `join`."""
        sample = self._sample_of(step)
        say(f"{step.name}: {step.what}" + (f"; here {sample}" if sample else ""))
        if step == plan.STATIC:
            self._beside.append(_Background(step, [sys.executable, "-m", "gate.static"]))
            print("runs beside the next step", flush=True)
            return True
        budget = Budget.of(min(step.limit_s, self._all.left_s))
        began_s = time.monotonic()
        cases: list[Case] = []
        failure = ""
        try:
            if self._before is None and step != plan.SETUP:  # which installs git
                self._before = differences()
            if isinstance(step, plan.Tests):
                cases = self._run_tests(step, budget)
            elif isinstance(step, plan.Script):
                command = sample.command if sample else step.command
                check(command, budget, env=environment(TEST_TIER=self._tier))
            else:
                self._jobs[step.name](budget)
        except (CommandFailed, NoReport) as error:
            failure = str(error)
            cases = cases or _cases_of(step)
        return self._judge(step, time.monotonic() - began_s, budget.cpu_s, cases, failure)

    def join(self) -> bool:
        """Wait for what runs beside the others; whether it held."""
        held = True
        while self._beside:
            one = self._beside.pop()
            wall_s, cpu_s, output, failure = one.wait()
            say(f"{one.step.name}: what it said")
            print(output.strip(), flush=True)
            held &= self._judge(one.step, wall_s, cpu_s, [], failure)
        return held

    def _judge(
        self, step: plan.Step, wall_s: float, cpu_s: float, cases: list[Case], failure: str
    ) -> bool:
        found = totals(cases)
        if isinstance(step, plan.Tests):
            if not failure and found.passed == 0:
                failure = "no test passed"
            print(f"{step.name}: {found}", flush=True)
            self.outcome.skips += [
                f"{step.name}: {case.name}: {case.reason}"
                for case in cases
                if case.outcome == "skipped"
            ]
            self.outcome.notes += [
                f"{step.name}: {case.name}: {words}" for case in cases for words in case.noted
            ]
        self.outcome.totals += found
        if failure:
            self.fail(step, failure, counted=bool(found.failed))
        times = timings.step_times(wall_s, cpu_s, cases, found, failed=bool(failure))
        sample = self._sample_of(step)
        self.outcome.times[step.name] = timings.estimated(times, sample, cases) if sample else times
        return not failure

    def fail(self, step: plan.Step, why: str, *, counted: bool = False) -> None:
        """Let the run fail; `counted` when a failed test of the step already counts."""
        print(f"{step.name}: {why}", flush=True)
        self.outcome.failures.append(f"{step.name}: {why}")
        if not counted:
            self.outcome.totals += Totals(failed=1)

    def _sample_of(self, step: plan.Step) -> plan.Sample | None:
        return step.sample if self._samples else None

    def _run_tests(self, step: plan.Tests, budget: Budget) -> list[Case]:
        """Run pytest. Errors: CommandFailed, NoReport."""
        if step.build == "pure":
            prepare.use_plain_python(budget)
        else:
            prepare.compile_modules(budget)
        sample = self._sample_of(step)
        share = f"{sample.taken}/{sample.whole}" if sample else "1"
        report = _report_of(step)
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        code = run(
            [
                *(VENV / "pytest", "-q", "-m", step.marker, "--dist", "loadgroup"),
                *("-n", str(step.workers)),
                *(f"--junitxml={report}", *step.limits),
                *(f"--allow-skip={nodeid}" for nodeid in step.allowed_skips),
                *step.paths,
            ],
            budget,
            env=environment(TEST_TIER=self._tier, TEST_SHARE=share),
        )
        cases = read_report(report)
        if code:
            failed = [case.name for case in cases if case.outcome == "failed"]
            what = ", ".join(failed[:5]) + (", ..." if len(failed) > 5 else "")
            raise CommandFailed(f"pytest's exit code {code}: {what or 'see above'}")
        return cases

    def _check_files(self, budget: Budget) -> None:
        """Compare the sources with those before the first step that followed the set-up."""
        after = differences()
        if after != self._before:
            print(after, flush=True)
            raise CommandFailed("the run changed files of the checkout")


def _report_of(step: plan.Step) -> Path:
    return OUT / f"{step.name}.xml"


def _cases_of(step: plan.Step) -> list[Case]:
    """Return what a failed run reported, if it did."""
    if not isinstance(step, plan.Tests):
        return []
    try:
        return read_report(_report_of(step))
    except NoReport:
        return []


class _Background:
    """A job whose output waits until it is asked for."""

    def __init__(self, step: plan.Step, command: list[str]) -> None:
        self.step = step
        self._began_s = time.monotonic()
        self._ended_s = self._began_s
        self._budget = Budget.of(step.limit_s)
        self._failure = ""
        OUT.mkdir(parents=True, exist_ok=True)
        self._log = OUT / f"{step.name}.log"
        self._thread = threading.Thread(target=self._run, args=(command,), daemon=True)
        self._thread.start()

    def _run(self, command: list[str]) -> None:
        env = environment(PYTHONPATH=str(ROOT / ".ci"))
        try:
            with self._log.open("wb") as output:
                check(command, self._budget, env=env, output=output)
        except CommandFailed as error:
            self._failure = str(error)
        self._ended_s = time.monotonic()

    def wait(self) -> tuple[float, float, str, str]:
        """Return wall clock, processor time, output, and why it failed."""
        self._thread.join()
        wall_s = self._ended_s - self._began_s
        output = self._log.read_text(errors="replace")
        return wall_s, self._budget.cpu_s, output, self._failure
