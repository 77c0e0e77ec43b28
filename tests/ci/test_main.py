"""The gate and a release from the first line to the last, with plans of a few small commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from gate import __main__ as program
from gate import plan, prepare, steps
from gate.plan import Script, Step
from gate.running import CommandFailed, environment
from support.processes.rig import REPO

SET_UP = prepare.set_up


@pytest.fixture(autouse=True)
def _out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (program, steps):
        monkeypatch.setattr(module, "OUT", tmp_path / "out")
    monkeypatch.setattr(program, "KEPT", tmp_path / "kept")
    for name in ("state_of_checkout", "commit"):
        monkeypatch.setattr(program, name, lambda: "abc")
    for module in (program, steps):
        monkeypatch.setattr(module, "differences", lambda: "")
    monkeypatch.setattr(prepare, "set_up", lambda budget: None)
    # Packages are installed, as far as these gates know; those of README's command leave no stamp.
    monkeypatch.setattr(prepare, "STAMP", tmp_path / "stamp")
    prepare.STAMP.touch()


def script(name: str, text: str) -> Script:
    return Script(name, f"tries {name}", 60, (sys.executable, "-c", text))


def plan_of(monkeypatch: pytest.MonkeyPatch, tier: str, *chosen: Step) -> None:
    monkeypatch.setattr(plan, tier.upper(), chosen)
    monkeypatch.setitem(plan.TIERS, tier, chosen)


def test_the_last_line_of_a_gate_that_holds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan_of(monkeypatch, "gate", script("one", "print('fine')"))
    assert program.main([]) == 0
    out = capfd.readouterr().out
    assert "\n== one: tries one\nfine\n" in out
    assert out.endswith(
        "skipped: nothing\nnoted: nothing\n\n== all held\n0 passed, 0 failed, 0 skipped\n"
    )


def test_a_gate_goes_on_after_a_step_that_failed_and_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan_of(monkeypatch, "gate", script("one", "raise SystemExit(4)"), script("two", "print(2)"))
    assert program.main([]) == 1
    out = capfd.readouterr().out
    assert "== two: tries two\n2\n" in out
    assert "== FAILED\none: exit code 4: " in out
    assert out.endswith("\n0 passed, 1 failed, 0 skipped\n")


def test_a_step_ends_when_the_time_of_the_gate_is_over(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan_of(monkeypatch, "gate", script("one", "import time; time.sleep(50)"))
    monkeypatch.setattr(plan, "GATE_LIMIT_S", 2 * plan.GRACE_S + 0.2)
    assert program.main([]) == 1
    assert "== FAILED\none: did not end in time: " in capfd.readouterr().out


def test_a_test_that_fails_fails_the_gate_and_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass\n\ndef test_b(): assert not 'true'\n")
    (tmp_path / "pytest.ini").touch()
    monkeypatch.setattr(prepare, "compile_modules", lambda budget: None)
    plan_of(
        monkeypatch,
        "gate",
        plan.Tests(
            "real", "two tests", 600, "not slow", (f"{tmp_path}", "-p", "support.suite.skips")
        ),
    )
    monkeypatch.setattr(steps, "environment", with_tests_on_the_path)
    assert program.main([]) == 1
    out = capfd.readouterr().out
    assert "real: 1 passed, 1 failed, 0 skipped" in out
    assert "real: pytest's exit code 1: " in out
    assert out.endswith("\n1 passed, 1 failed, 0 skipped\n")


def with_tests_on_the_path(**changes: str) -> dict[str, str]:
    return environment(PYTHONPATH=str(REPO / "tests"), **changes)


def test_a_release_goes_on_with_the_parts_that_have_not_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = script("good", "print('ran good')")
    bad = script("bad", f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'ok')!r}))")
    plan_of(monkeypatch, "release", plan.SETUP, good, bad)
    assert program.main(["release"]) == 1
    assert "ran good" in capfd.readouterr().out
    (tmp_path / "ok").touch()
    assert program.main(["release"]) == 0
    out = capfd.readouterr().out
    assert "ran good" not in out
    assert "== good: has passed for these sources" in out
    assert program.main(["release", "good"]) == 0
    assert "ran good" in capfd.readouterr().out
    # The list knows how long each took, once the timings are kept.
    assert program.main(["timings"]) == 0
    assert program.main(["release", "--list"]) == 0
    assert "0.0     0.0  tries good" in capfd.readouterr().out


def sources_of(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the sources be one file outside the repository."""
    path.touch()
    monkeypatch.setattr(program, "state_of_checkout", lambda: f"state {path.read_text()}")
    for module in (program, steps):
        monkeypatch.setattr(module, "differences", path.read_text)


def test_a_step_that_changes_the_sources_fails_the_gate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources_of(monkeypatch, tmp_path / "source")
    change = script("change", f"open({str(tmp_path / 'source')!r}, 'a').write('!')")
    plan_of(monkeypatch, "gate", plan.SETUP, change, plan.SAME_FILES)
    assert program.main([]) == 1
    assert "files: the run changed files of the checkout" in capfd.readouterr().out


def test_a_release_ends_where_the_sources_change_and_what_changed_them_has_not_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources_of(monkeypatch, tmp_path / "source")
    change = script("change", f"open({str(tmp_path / 'source')!r}, 'a').write('!')")
    plan_of(monkeypatch, "release", script("one", "pass"), change, script("two", "print('ran')"))
    assert program.main(["release"]) == 1
    out = capfd.readouterr().out
    assert "ran" not in out.splitlines()
    assert "change: the sources changed while it ran; `git status` shows where" in out
    assert out.endswith("\n0 passed, 1 failed, 0 skipped\n")
    # A tree that differs from the commit is no release, whatever has passed for it.
    assert program.main(["release", "--check"]) == 1
    assert "no release of abc: the sources differ from it" in capfd.readouterr().out
    (tmp_path / "source").write_text("")
    assert program.main(["release", "--check"]) == 1
    assert "not passed: change, two; run .ci/run release" in capfd.readouterr().out


def test_a_release_may_be_tagged_when_all_parts_have_passed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan_of(monkeypatch, "release", plan.SETUP, script("one", "pass"), plan.SAME_FILES)
    assert program.main(["release", "--check"]) == 1
    assert program.main(["release"]) == 0
    capfd.readouterr()
    assert program.main(["release", "--check"]) == 0
    assert capfd.readouterr().out == "all parts of a release have passed for abc\n"
    tag = (REPO / "justfile").read_text().partition("\ntag ")[2].partition("\n\n")[0]
    assert tag.index(".ci/run release --check") < tag.index("git tag")


def test_without_git_no_run_is_green(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_git() -> str:
        raise CommandFailed("git is not installed: install it")

    for module in (program, steps):
        for name in ("state_of_checkout", "commit", "differences"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, no_git)
    monkeypatch.setattr(prepare, "commit", no_git)
    assert prepare.missing_commit() == [
        "the commit, for seeds and changed files (git is not installed: install it)"
    ]
    plan_of(monkeypatch, "gate", plan.SAME_FILES)
    assert program.main(["files"]) == 1
    plan_of(monkeypatch, "release", plan.SAME_FILES)
    for words in (["release"], ["release", "--check"]):
        assert program.main(words) == 1
        assert "git is not installed: install it" in capfd.readouterr().err


def test_a_user_without_rights_is_told_and_the_gate_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "set_up", SET_UP)
    for name in ("make_venv", "install_programs", "missing_commit"):
        monkeypatch.setattr(prepare, name, lambda *budget: [])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    plan_of(monkeypatch, "gate", plan.SETUP, script("one", "print('ran')"))
    assert program.main([]) == 1
    out = capfd.readouterr().out
    for line in (
        "network namespaces, for drills with cut networks (needs root)",
        "small disks, for drills with full disks (needs root)",
    ):
        assert f"cannot be had here: {line}\n" in out
        assert line in out.partition("== FAILED\nsetup: ")[2]
    assert "ran" in out.splitlines()


def test_a_right_that_root_lacks_is_missing_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container without the capability rejects both."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prepare, "_error_of", lambda *command: f"{command[0]}: not permitted")
    assert prepare.missing_rights() == [
        "network namespaces, for drills with cut networks (ip: not permitted; ip: not permitted)",
        "small disks, for drills with full disks (mount: not permitted)",
    ]


def test_the_time_of_a_step_that_failed_is_kept_and_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = script("bad", f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'ok')!r}))")
    plan_of(monkeypatch, "release", bad)

    def listed() -> str:
        program.main(["timings"])
        capfd.readouterr()
        program.main(["release", "--list"])
        return next(line for line in capfd.readouterr().out.splitlines() if line[:4] == "bad ")

    assert program.main(["release"]) == 1
    assert listed().endswith("  tries bad (failed)")
    (tmp_path / "ok").touch()
    assert program.main(["release"]) == 0
    assert listed().endswith("  tries bad")
    # The step may have ended early: its time does not replace one that was measured.
    (tmp_path / "ok").unlink()
    assert program.main(["release", "bad"]) == 1
    assert listed().endswith("  tries bad")


def test_a_release_ends_where_the_set_up_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lacks_everything(budget: object) -> None:
        raise CommandFailed("no tmux")

    monkeypatch.setattr(prepare, "set_up", lacks_everything)
    plan_of(monkeypatch, "release", plan.SETUP, script("one", "print('ran')"))
    assert program.main(["release"]) == 1
    out = capfd.readouterr().out
    assert "ran" not in out.splitlines()
    assert "setup: no tmux" in out


def test_a_sample_runs_less_and_the_list_says_that_it_is_an_estimate(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sample = plan.Sample(1, 1000, "rounds", command=(sys.executable, "-c", "print('a few')"))
    whole = (sys.executable, "-c", "print('all of them')")
    long = Script("long", "tries much", 60, whole, sample=sample)
    plan_of(monkeypatch, "release", long, script("short", "print('ran short')"))
    assert program.main(["release", "--sample"]) == 0
    out = capfd.readouterr().out
    assert "\n== long: tries much; here 1 of 1,000 rounds\na few\n" in out
    assert "ran short" in out
    assert program.main(["timings"]) == 0
    assert program.main(["release", "--list"]) == 0
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("long ")]
    assert " about " in line
    assert line.endswith("  tries much (estimated from 1 of 1,000 rounds)")
    # Only what was run whole has passed.
    assert program.main(["release"]) == 0
    out = capfd.readouterr().out
    assert "all of them" in out
    assert "== short: has passed for these sources" in out
    # A time that was measured stays, whatever is estimated later.
    program.main(["timings"])
    program.main(["release", "--sample"])
    program.main(["timings"])
    capfd.readouterr()
    program.main(["release", "--list"])
    assert "estimated from" not in capfd.readouterr().out


def test_a_sample_of_tests_is_the_share_that_they_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text(
        "from support.suite.sizes import campaign\n"
        "def test_it(): assert campaign(gate=2, release=4000) == 40\n"
    )
    (tmp_path / "pytest.ini").touch()
    monkeypatch.setattr(prepare, "compile_modules", lambda budget: None)
    monkeypatch.setattr(steps, "environment", with_tests_on_the_path)
    sample = plan.Sample(40, 4000, "rounds", tests=("tests/test_it.py::test_it",))
    peers = plan.Tests("peers", "rounds", 600, "not slow", (f"{tmp_path}",), sample=sample)
    plan_of(monkeypatch, "release", peers)
    assert program.main(["release", "--sample", "peers"]) == 0
    assert "peers: 1 passed, 0 failed" in capfd.readouterr().out


def test_the_gate_has_no_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(["--sample"])
    assert "--sample is for a release" in capsys.readouterr().err
